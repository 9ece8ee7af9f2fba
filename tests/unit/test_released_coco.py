"""iDRO of the recipe and its variants over an episode: weights that may collapse, and what is said of it."""

from __future__ import annotations

import logging

import pytest
import torch
from tests.unit.training_helpers import tiny_examples, tiny_model
from tests.unit.weighting_helpers import KINDS, PAIRWISE, batch_of, one_step, tiny, weighted, with_groups
from torch import Tensor

from zerodr.config.load import load_bench
from zerodr.papers.coco_dr.cluster_weights import ClusterState, updated
from zerodr.papers.coco_dr.losses import effective_share
from zerodr.papers.coco_dr.settings import GroupSettings

STEPS, CLUSTERS, SPREAD = 45000, 50, 0.2
ALL = torch.ones(CLUSTERS, dtype=torch.bool)
TOGETHER = 450  # steps that are one here: exact where weights add up (kappa 1), no fewer than settle them (kappa .1)


@pytest.fixture(scope="module")
def methods(root):
    return load_bench(root, {"scale": "paper"}).methods


def groups_of(methods, name: str) -> GroupSettings:
    """Settings of the weights in the first episode with clusters."""
    return methods[name].settings.chain["ep1"].find("groups")


def effective(settings: GroupSettings, seed: int) -> float:
    """Effective clusters, exp(entropy), after an episode whose similarities have a constant sd of .2 over clusters."""
    sums = torch.randn(CLUSTERS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * SPREAD
    state = ClusterState.start(settings.mode, CLUSTERS)
    factor = TOGETHER if settings.kappa == 1 else 1
    for step in range(STEPS // TOGETHER):
        state, _ = updated(settings, state, sums * factor, ALL, step + 1, STEPS // TOGETHER)
    return CLUSTERS * effective_share(state.omega)


def test_the_recipe_neither_collapses_nor_stands_still(methods):
    """At T = 1,000, as before: with kappa 1 1.9 of 50 effective clusters, with kappa .1 all 50. Steered: 35."""
    default, published = groups_of(methods, "coco-dr"), groups_of(methods, "coco-dr+paper")
    assert (default.kappa, default.similarity, default.layers) == (1.0, "cosine", 3)
    assert (default.timing, default.effective) == ("lagged", 0.7)
    assert (published.kappa, published.effective) == (1.0, 0.7)
    assert methods["coco-dr"].settings.chain["ep1"].training.steps == STEPS
    remembering = default.model_copy(update={"effective": None})
    released = remembering.model_copy(update={"kappa": 0.1})
    for seed in range(3):
        assert effective(default, seed) == pytest.approx(35) == effective(published, seed)
        assert effective(released, seed) > 49.9
        assert effective(remembering, seed) < CLUSTERS / 4


def test_the_published_form_is_the_equations(methods):
    """Equations 5, 11, 12: inner products of all weights, weights of this step, no floor, nothing scaled."""
    made = groups_of(methods, "coco-dr+paper")
    assert (made.mode, made.similarity, made.layers, made.timing) == ("idro", "dot", "all", "current")
    assert (made.kappa, made.normalise_present, made.beta) == (1.0, False, 0.25)


def test_the_released_form_is_the_code(methods):
    made, stage = groups_of(methods, "coco-dr+official"), methods["coco-dr+official"].settings.chain
    assert (made.mode, made.rho, made.ema, made.layers) == ("official", 0.05, 0.1, 3)
    assert (made.similarity, made.timing, made.beta) == ("cosine", "lagged", 0.25)
    assert (stage["ep1"].find("clusters").sample, stage["ep1"].negatives.exclude) == (256, "one")
    assert stage["coco"].objective.backbone_dropout is False


def test_the_papers_control_is_pretrained_on_the_source(methods):
    """The paper's -COCO, section 5.3: contrastive pretraining on MS MARCO alone, with iDRO."""
    control = methods["coco-dr+no-coco"].settings.chain
    assert control["coco"].corpora == ("source",) and control["ep1"].find("groups") == groups_of(methods, "coco-dr")
    assert "coco" not in methods["coco-dr+no-pretraining"].settings.chain
    assert groups_of(methods, "coco-dr+alpha-only").mode == "alpha"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A tiny model and data with clusters."""
    folder = tmp_path_factory.mktemp("weights")
    return tiny(tiny_model(folder / "model")), with_groups(tiny_examples(folder))


def stepped(small, steps: int = 3, **settings):
    """An objective after some steps, and the facts of the last one."""
    model, examples = small
    objective = weighted(model, examples, **settings)
    for step in range(steps):
        one_step(model, examples, objective, batch_of(examples, step=step))
        facts = objective.on_step(step + 1)
    return objective, facts


def test_weights_that_collapse_are_warned_of_once_with_the_reason(small, caplog):
    with caplog.at_level(logging.WARNING, "zerodr"):
        _, facts = stepped(small, temperature=1e-3)
    said = [record.message for record in caplog.records if "weights are those" in record.message]
    assert len(said) == 1 and f"of {KINDS} groups: omega^1 exp(s / 0.001)" in said[0]
    assert "lower groups.kappa, or raise groups.temperature" in said[0]
    assert facts["effective_groups"] < KINDS / 4 and facts["similarity_sd"] > 0
    caplog.clear()
    with caplog.at_level(logging.WARNING, "zerodr"):
        _, facts = stepped(small, temperature=1e9)
    assert not caplog.records and facts["effective_groups"] == pytest.approx(KINDS)


def test_alpha_alone_weighs_by_loss_without_gradients(small):
    model, examples = small
    objective = weighted(model, examples, mode="alpha", similarity="cosine", temperature=1000.0, layers=3)
    found = one_step(model, examples, objective, batch_of(examples))
    losses: Tensor = objective._seen.losses.detach()
    powers = losses.pow(0.25)
    assert float(found[f"term.{PAIRWISE.name}"]) == pytest.approx(
        float((powers * losses).sum() / powers.sum()), rel=1e-5
    )
    assert objective.engine is None and "omega_max" not in objective.on_step(1)
