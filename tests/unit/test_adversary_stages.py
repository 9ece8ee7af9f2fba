"""Stages with an adversary: resume and processes change nothing, divergence is named, bad input is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.adversary_helpers import OFFICIAL, SMALL, make_target, spec
from tests.unit.encoder_helpers import make_collection
from tests.unit.training_helpers import begun, fork_ranks, lay_out, seal

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import run_spec
from zerodr.errors import ArtifactError, ClassifierDiverged, CollectionError, ConfigError
from zerodr.papers.modir.objective import CLASSIFIER, Adversary
from zerodr.training.loop.checkpoint import checkpoints, finished_steps


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)
    make_target(tmp_path / "results/target")
    return tmp_path


COMPARED = "vector_gradient.adversary.confusion"


def facts_of(place: str) -> dict[str, Any]:
    return read_record(f"results/{place}/manifest.json")


def test_a_stage_trains_and_says_what_it_saw(project):
    run_spec(spec())
    told = {point["name"] for point in facts_of("ep0")["metrics"]}
    assert {
        "ranking.info_nce",
        "adversary.confusion",
        "adversary.lambda",
        "adversary.domain_accuracy",
        "adversary.domain_accuracy_queries",
        "adversary.classifier_loss",
        "adversary.classifier_norm",
        "vector_gradient.adversary.confusion",
        "vector_gradient_cosine.adversary.confusion",
        "dev.ndcg_cut_10",
    } <= told
    notes = facts_of("ep0")["notes"]
    assert notes["target_documents"] == 30 and notes["target_queries"] == 6 and notes["queue_mib"] == 0
    assert set(load_file(project / "results/ep0" / CLASSIFIER)) >= {"weight", "moments.0.exp_avg"}


def test_two_processes_are_one(project, monkeypatch):
    fork_ranks(monkeypatch)
    for place, processes in (("one", 1), ("two", 2)):
        run_spec(spec(place, processes=processes, dropout=0.0, steps=4, total_steps=4))
    one, two = (load_file(project / f"results/{place}" / CLASSIFIER) for place in ("one", "two"))
    torch.testing.assert_close(one["weight"], two["weight"], rtol=1e-4, atol=1e-5)
    one, two = ({(p["name"], p["step"]): p["value"] for p in facts_of(place)["metrics"]} for place in ("one", "two"))
    for name in ("ranking.info_nce", "adversary.confusion", "adversary.classifier_loss", "gradient_norm", COMPARED):
        for step in range(1, 5):
            assert two[name, step] == pytest.approx(one[name, step], rel=1e-3), (name, step)


@pytest.mark.parametrize("adversary", [{}, OFFICIAL], ids=["paper", "official"])
def test_a_run_that_stopped_ends_with_the_same_bits(project, monkeypatch, adversary):
    run_spec(spec("whole", adversary))
    stop, push = {"at": 8}, Adversary._learn

    def dies(self: Adversary, step: int) -> None:
        if step == stop["at"]:
            raise KeyboardInterrupt
        push(self, step)

    monkeypatch.setattr(Adversary, "_learn", dies)
    with pytest.raises(KeyboardInterrupt):
        run_spec(spec("broken", adversary))
    stop["at"] = -1
    run_spec(spec("broken", adversary))
    for file in (Path("model.safetensors"), CLASSIFIER):
        assert (project / "results/whole" / file).read_bytes() == (project / "results/broken" / file).read_bytes()
    assert [p for p in facts_of("whole")["metrics"]] == [p for p in facts_of("broken")["metrics"]]


def test_a_stage_may_go_on_with_the_classifier_and_the_queue_before_it(project):
    first = spec("ep0")
    first.params["save_optimizer"] = True
    run_spec(first)
    after = spec("ep1", steps=1, total_steps=1, learning_rate=1e-12)
    after.inputs["model"] = "results/ep0/manifest.json"
    after.params["continue_classifier"] = True
    after.params["settings"]["adversary"] = SMALL | {"learning_rate": 1e-12}
    after.params["save_optimizer"] = True
    run_spec(after)
    old, new = (load_file(project / f"results/{place}" / CLASSIFIER) for place in ("ep0", "ep1"))
    torch.testing.assert_close(old["weight"], new["weight"])
    size = len(old["queue"]) // SMALL["queue_length"]
    kept = (old["queue"] == new["queue"]).flatten(1).all(1).view(-1, size).all(1)
    assert int(old["filled"]) == SMALL["queue_length"] and kept.sum() == SMALL["queue_length"] - 1
    assert not kept[int(old["next"])], "the one step of the second stage replaces the oldest batch"
    after.params["settings"]["adversary"] |= {"optimizer": "lamb"}
    after.outputs["model"] = "results/ep3/manifest.json"
    with pytest.raises(ArtifactError, match="has moments of another optimiser than lamb"):
        run_spec(after)
    run_spec(spec("alone"))
    after.inputs["model"], after.outputs["model"] = "results/alone/manifest.json", "results/ep4/manifest.json"
    with pytest.raises(ArtifactError, match="has no queue of 4 batches"):
        run_spec(after)
    bare = spec("ep2")
    bare.params["continue_classifier"] = True
    with pytest.raises(Exception, match="has no domain classifier"):
        run_spec(bare)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"learning_rate": 1e30}, "its weights hold NaN or infinity|its loss is"),
        ({"largest_loss": 1e-3}, r"its loss is 0\.\d+, at most 0\.001"),
    ],
)
def test_a_classifier_that_diverges_is_named_and_the_run_can_go_on(project, changes, what):
    with pytest.raises(ClassifierDiverged, match=what) as caught:
        run_spec(spec("lost", changes))
    told = str(caught.value)
    assert "domain classifier, step 0" in told or "domain classifier, step 1" in told
    assert "lambda" in told and "changed settings train from the start: lower adversary.learning_rate" in told
    (kept,) = checkpoints(next(Path("results/.state").glob("*/work")))
    assert f"are kept in {kept}, after {finished_steps(kept)} steps of the stage" in told
    weight = load_file(kept / "objective.safetensors")["adversary.weight"]
    assert all(bool(tensor.isfinite().all()) for tensor in [weight, *load_file(kept / "model.safetensors").values()])
    assert not (project / "results/lost").exists()


@pytest.fixture
def lost_at(monkeypatch) -> dict[str, Any]:
    """The classifier is lost once, at step `step`; `begun` lists the steps that were begun."""
    check, facts = Adversary._check, {"step": -1, "begun": begun(monkeypatch)}

    def lost(self: Adversary, step: int, losses: torch.Tensor) -> None:
        if step == facts["step"]:
            facts["step"] = -1
            self.classifier.weight.fill_(torch.nan)
        check(self, step, losses)

    monkeypatch.setattr(Adversary, "_check", lost)
    return facts


SHORT = {"steps": 6, "total_steps": 6, "dev_queries": 0}


@pytest.mark.parametrize(("own", "more"), [({}, SHORT), (OFFICIAL, SHORT | {"accumulation": 2})])
def test_after_a_failure_that_passes_the_run_ends_with_the_same_bits(project, lost_at, own, more):
    """At a step at which no checkpoint is due."""
    run_spec(spec("whole", own, **more))
    lost_at["step"] = 4
    with pytest.raises(ClassifierDiverged, match="weights hold NaN.*checkpoint-00000004, after 4 steps of the stage"):
        run_spec(spec("broken", own, **more))
    lost_at["begun"].clear()
    run_spec(spec("broken", own, **more))
    assert lost_at["begun"] == [4, 5]
    for file in (Path("model.safetensors"), CLASSIFIER):
        assert (project / "results/whole" / file).read_bytes() == (project / "results/broken" / file).read_bytes()
    assert facts_of("whole")["metrics"] == facts_of("broken")["metrics"]


def test_changed_settings_begin_at_step_0(project, lost_at):
    lost_at["step"] = 3
    with pytest.raises(ClassifierDiverged, match="changed settings train from the start"):
        run_spec(spec(**SHORT))
    run_spec(spec(adversary={"learning_rate": 0.01}, **SHORT))
    assert lost_at["begun"] == [*range(4), *range(6)]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s: s.params.update(targets={"other": {}}), ConfigError, r"has \['target'\], params.targets names"),
        (lambda s: s.params["settings"].pop("adversary"), ConfigError, "adversary and targets go together"),
        (
            lambda s: s.params["settings"]["training"].update(batch_queries=40),
            CollectionError,
            "has 30 documents with a text, a batch",
        ),
        (
            lambda s: (
                s.params["settings"]["adversary"].update(queries="unlabelled")
                or s.params.update(targets={"target": {}})
            ),
            CollectionError,
            "has no unlabelled queries",
        ),
    ],
    ids=["names", "alone", "small", "queries"],
)
def test_bad_input(project, change, error, message):
    made = spec()
    change(made)
    with pytest.raises(error, match=message):
        run_spec(made)


def test_the_source_is_no_target(project):
    made = spec(targets={"source": {"split": "none"}})
    made.inputs["targets"] = ["results/source/manifest.json"]
    with pytest.raises(ConfigError, match="source and target are the same collection"):
        run_spec(made)


def test_empty_documents_are_counted(project):
    folder = project / "results/target"
    shutil.rmtree(folder)
    make_collection(folder, [(f"t{i}", "", "" if i < 3 else f"word{i}") for i in range(20)], [("s", "asked")])
    seal(folder)
    run_spec(spec(steps=2, total_steps=2))
    assert facts_of("ep0")["notes"]["target_documents_empty"] == 3
