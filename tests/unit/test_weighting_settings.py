"""Settings of groups: what goes together, which engine is chosen, and the sentences of refusals."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from zerodr.config.training import ObjectiveSettings, TrainingSettings
from zerodr.papers.coco_dr.settings import ClusterSettings, GroupSettings, check_groups, choose_engine

PAIRWISE = ObjectiveSettings(name="pairwise_nll")
OWN = ObjectiveSettings(name="info_nce", in_batch=False)
IN_BATCH = ObjectiveSettings(name="info_nce")
PLAIN = TrainingSettings()


def test_settings_survive_a_round_trip_through_json():
    for mode in ("idro", "official", "balanced", "alpha", "erm", "group_dro"):
        made = GroupSettings(mode=mode, layers=3)
        assert GroupSettings.model_validate(made.model_dump(mode="json")) == made
    made = GroupSettings(mode="idro", layers="all", similarity="dot")
    assert GroupSettings.model_validate(made.model_dump(mode="json")) == made


@pytest.mark.parametrize(
    "settings, said",
    [
        (
            {"mode": "balanced", "beta": 0.5},
            "beta is for mode idro and official and alpha, mode balanced does not use it",
        ),
        ({"mode": "erm", "eta": 0.5}, "eta is for mode group_dro"),
        ({"mode": "official", "kappa": 0.5}, "kappa is for mode idro"),
        ({"mode": "official", "timing": "current"}, "timing is for mode idro"),
        ({"mode": "idro", "rho": 0.1}, "rho is for mode official"),
        ({"mode": "group_dro", "similarity": "dot"}, "similarity is for mode idro and official"),
        ({"mode": "official", "similarity": "dot"}, "mode official compares cosines"),
        ({"layers": 0}, "layers is at least 1"),
        ({"layers": "most"}, "layers"),
        ({"mode": "dro"}, "mode"),
    ],
)
def test_what_a_mode_does_not_use_is_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        GroupSettings(**settings)


@pytest.mark.parametrize(
    "settings, objective, engine",
    [
        ({}, PAIRWISE, "segment"),
        ({"mode": "official"}, OWN, "segment"),
        ({"similarity": "dot"}, PAIRWISE, "segment"),
        ({"similarity": "dot", "exclude_self": True}, PAIRWISE, "segment"),
        ({"similarity": "dot"}, IN_BATCH, "jvp"),
        ({"similarity": "dot", "layers": "all"}, OWN, "jvp"),
    ],
)
def test_the_engine_follows_from_what_is_asked_for(settings, objective, engine):
    name, reason = choose_engine(GroupSettings(**settings), objective)
    assert name == engine and reason
    check_groups(GroupSettings(**settings), objective, PLAIN)


@pytest.mark.parametrize(
    "settings, objective, training, said",
    [
        ({}, IN_BATCH, {}, "cosine needs each group's own gradient and can't be combined with in-batch negatives"),
        ({"layers": "all"}, PAIRWISE, {}, "can't be combined with layers: all"),
        ({"similarity": "dot", "exclude_self": True}, IN_BATCH, {}, "exclude_self needs each group's own gradient"),
        ({}, ObjectiveSettings(name="kl"), {}, "groups weigh losses of queries"),
        ({}, PAIRWISE, {"cache_chunk": 8}, "engine segment holds the activations .* which training.cache_chunk avoids"),
        ({"mode": "balanced"}, PAIRWISE, {"accumulation": 2}, "training.accumulation cuts: set it to 1"),
    ],
)
def test_what_can_t_be_combined_is_refused_with_a_sentence(settings, objective, training, said):
    with pytest.raises(ValueError, match=said):
        check_groups(GroupSettings(**settings), objective, TrainingSettings(**training))


def test_what_can_be_combined():
    check_groups(GroupSettings(mode="erm"), IN_BATCH, TrainingSettings(accumulation=2, cache_chunk=4))
    check_groups(GroupSettings(mode="group_dro"), IN_BATCH, TrainingSettings(cache_chunk=4))
    check_groups(GroupSettings(similarity="dot"), IN_BATCH, TrainingSettings(cache_chunk=4))


def test_clusters_have_the_published_defaults():
    made = ClusterSettings()
    assert (made.count, made.metric, made.iterations, made.restarts, made.sample) == (50, "l2", 500, 5, None)
