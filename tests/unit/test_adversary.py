"""Adversarial adaptation: the two phases keep apart, resume and processes change nothing, divergence is named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.unit.encoder_helpers import make_collection
from tests.unit.group_helpers import weighted, with_groups
from tests.unit.training_helpers import (
    QUERIES,
    begun,
    finetune_spec,
    lay_out,
    load_tiny,
    seal,
    tiny_examples,
    tiny_model,
    words,
)

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import Stage, StageSpec, run_spec
from zerodr.config.trained import FinetuneParams
from zerodr.config.training import ObjectiveSettings
from zerodr.errors import ClassifierDiverged, CollectionError, ConfigError
from zerodr.papers.modir.objective import CLASSIFIER, Adversary
from zerodr.papers.modir.settings import AdversarySettings
from zerodr.papers.modir.training import Adapting
from zerodr.training.additions import Prepared
from zerodr.training.data.batches import Stream
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.checkpoint import checkpoints, finished_steps
from zerodr.training.loop.gradcache import Forward, add_gradients
from zerodr.training.objectives.ranking import make_objective

SMALL = {
    "queue_length": 4,
    "updates": 3,
    "minibatch": 8,
    "learning_rate": 0.05,
    "optimizer": "adamw",
    "half_life_steps": 10,
}
OFFICIAL = {"mode": "official", "minibatch": None, "updates": 2}


def make_target(folder: Path, documents: int = 30, queries: int = 6) -> Path:
    generator = np.random.default_rng(3)
    make_collection(
        folder,
        [(f"t{i}", "", words(generator, 2, 10)) for i in range(documents)],
        [(f"s{i}", words(generator, 1, 4)) for i in range(queries)],
    )
    return folder


def adaptation(target: Path, batch: int, accumulation: int, negatives: int, name: str, own: dict) -> Adapting:
    """What adapts a stage of seed 5 to a target."""
    objective = {"name": name, "negatives_per_query": negatives}
    training = {"batch_queries": batch, "accumulation": accumulation, "steps": 20}
    settings = {"objective": objective, "training": training, "adversary": SMALL | own, "scope": "target"}
    settings |= {} if negatives else {"negatives": {"source": "none"}}
    params = {
        "settings": settings,
        "schedule": {"stage": "ep0", "stage_index": 0, "total_steps": 20},
        "source_split": "train",
        "targets": {"target": {"split": None if own.get("queries") == "none" else "test"}},
    }
    inputs = {"targets": [str(target / "manifest.json")], "source": "source/manifest.json"}
    stage = Stage(StageSpec("stage", 1, {}, inputs, {}, params, 5), target)
    checked = FinetuneParams.model_validate(params)
    assert Adapting.asked(stage, checked)
    return Adapting(stage, checked)


class Parts:
    """One stage without an engine."""

    def __init__(
        self,
        folder: Path,
        batch: int = 8,
        accumulation: int = 1,
        negatives: int = 1,
        name: str = "pairwise_nll",
        chunk: int | None = None,
        **settings: Any,
    ) -> None:
        self.model = load_tiny(tiny_model(folder / "model") if not (folder / "model").exists() else folder / "model")
        examples = tiny_examples(folder) if not (folder / "source").exists() else None
        if examples is None:
            from zerodr.training.data.examples import load_examples

            examples = load_examples(folder / "mined", folder / "source", " ")
        target = folder / "target"
        target = target if target.exists() else make_target(target)
        self.adapting = adapting = adaptation(target, batch, accumulation, negatives, name, settings)
        rows = np.arange(QUERIES)
        source = Stream(examples, rows, batch, negatives, [5, 0])
        self.forward = adapting.forward(Forward(self.model, examples, "cpu", chunk))
        self.stream = adapting.batches(source)
        ranking = make_objective(ObjectiveSettings(name=name, negatives_per_query=negatives))
        self.objective = adapting.objective(ranking, Prepared(self.model, examples, rows, lambda step: 1.0))
        self.adversary: Adversary = self.objective.objectives["adversary"][1]
        self.accumulation = accumulation

    def step(self, step: int) -> dict[str, torch.Tensor]:
        """Gradients and terms of one step, summed over micro-batches."""
        self.model.zero_grad()
        group, batch, terms = Group(), self.stream.batch(step), {}
        for part in range(self.accumulation):
            share = self.forward.prepare(batch.shard(part, self.accumulation), group)
            found = add_gradients(self.forward, self.objective, share, group, [1, step, part], 1 / self.accumulation)
            terms = {k: terms.get(k, 0) + v / self.accumulation for k, v in found.items()}
        self.facts = self.objective.on_step(step + 1)
        return {n: p.grad.clone() for n, p in self.model.named_parameters() if p.grad is not None} | terms


def test_the_encoder_gets_no_gradient_while_the_classifier_learns(tmp_path, monkeypatch):
    parts = Parts(tmp_path)
    seen: list[bool] = []
    learn = parts.adversary._learn

    def watched(step: int) -> None:
        before = {name: weight.detach().clone() for name, weight in parts.model.named_parameters()}
        old = parts.adversary.classifier.weight.clone()
        learn(step)
        seen.append(not torch.equal(old, parts.adversary.classifier.weight))
        assert all(weight.grad is None for weight in parts.model.parameters())
        assert all(torch.equal(before[name], weight) for name, weight in parts.model.named_parameters())

    monkeypatch.setattr(parts.adversary, "_learn", watched)
    parts.step(0)
    assert seen == [True]


def test_the_encoders_turn_leaves_the_classifier_bit_for_bit(tmp_path, monkeypatch):
    parts = Parts(tmp_path)
    call, after = parts.adversary.__call__, []

    def kept(batch):
        made = call(batch)
        after.append(parts.adversary.classifier.weight.clone())
        return made

    monkeypatch.setattr(Adversary, "__call__", lambda self, batch: kept(batch))
    parts.step(0)
    assert torch.equal(after[0], parts.adversary.classifier.weight) and parts.adversary.classifier.weight.grad is None


def test_the_adversary_moves_the_encoder_towards_confusion(tmp_path, monkeypatch):
    """A small step along the adversarial gradient lowers the loss that it is of, for the same classifier."""
    parts, plain = Parts(tmp_path, half_life_steps=1e9), Parts(tmp_path, weight=0.0)
    found, ranking = parts.step(0), plain.step(0)
    monkeypatch.setattr(parts.adversary, "_learn", lambda step: None)
    with torch.no_grad():
        for name, weight in parts.model.named_parameters():
            if name in found:
                weight -= 1e-3 * (found[name] - ranking[name])
    assert float(parts.step(0)["adversary.confusion"]) < float(found["adversary.confusion"])


def test_with_lambda_0_the_ranking_gradient_is_untouched(tmp_path):
    parts = Parts(tmp_path, weight=0.0)
    found = parts.step(3)
    group = Group()
    parts.model.zero_grad()
    source = Forward(parts.model, parts.forward.examples, "cpu")
    batch = parts.stream.source.batch(3)
    terms = add_gradients(
        source, make_objective(ObjectiveSettings(name="pairwise_nll")), source.prepare(batch, group), group, [1, 3, 0]
    )
    assert float(found["ranking.pairwise_nll"]) == pytest.approx(float(terms["pairwise_nll"]), rel=1e-5)
    for name, weight in parts.model.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(found[name], weight.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("changes", [{"chunk": 5}, {"queries": "none", "chunk": 5}], ids=str)
def test_gradient_caching_gives_the_same(tmp_path, changes):
    own = {key: value for key, value in changes.items() if key != "chunk"}
    one, two = Parts(tmp_path, **own).step(0), Parts(tmp_path, **changes).step(0)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-5)


def test_positives_and_negatives_take_turns(tmp_path):
    parts = Parts(tmp_path)
    for step in (0, 1):
        parts.step(step)
    vectors = parts.adversary.queue.oldest_first()
    for step in (0, 1):
        texts = parts.forward.padded(parts.forward.texts(parts.stream.batch(step)))
        held = parts.forward.represent(texts, [1, step, 0, 0])
        documents = held.leaf[8:][texts.documents].detach()
        queued = vectors[8 * step : 8 * (step + 1)]
        torch.testing.assert_close(queued[:, 1], documents[:, step], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(queued[:, 0], held.leaf[:8].detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(queued[:, 2], held.leaf[-8:].detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(queued[:, 3], held.leaf[-16:-8].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "minimax"},
        {"loss": "gan"},
        {"queries": "none"},
        OFFICIAL | {"accumulation": 2},
        OFFICIAL | {"queue_unit": "step", "accumulation": 2},
        {"accumulation": 4},
        {"optimizer": "lamb"},
        {"queue_unit": "micro_step", "accumulation": 2},
        {"negatives": 0, "name": "info_nce"},
        {"logit_clamp": 0.5},
    ],
    ids=str,
)
def test_every_setting_takes_steps(tmp_path, changes):
    parts = Parts(tmp_path, **changes)
    for step in range(6):
        found = parts.step(step)
        assert all(bool(value.isfinite().all()) for value in found.values())
    entries = 6 * (changes.get("accumulation", 1) if parts.adversary.settings.by_micro_step else 1)
    assert parts.facts["adversary.queue_batches"] == min(4, entries)
    assert parts.facts["adversary.lambda"] == pytest.approx(2 ** (-5 / 10))
    assert 0 <= parts.facts["adversary.domain_accuracy"] <= 1


def test_the_released_code_piles_up_gradients_of_earlier_micro_steps(tmp_path):
    """The first update of a step has the sum of the gradients of both micro-steps, cut at norm 1."""
    parts, gradients = Parts(tmp_path, **OFFICIAL | {"updates": 1}, accumulation=2), []
    adversary = parts.adversary
    old, gradient = adversary.classifier.weight.clone(), adversary._gradient
    adversary._gradient = lambda vectors: gradients.append(gradient(vectors)) or gradients[-1]  # type: ignore
    parts.step(0)
    assert len(gradients) == 2
    moment = adversary.optimizer.state[adversary.classifier.weight]["exp_avg"]
    whole = gradients[0][1] + gradients[1][1]
    assert whole.norm() > 1.0
    torch.testing.assert_close(moment, 0.1 * whole / whole.norm())
    assert not torch.equal(old, adversary.classifier.weight) and adversary.pile is None


def test_the_converged_classifier_separates_the_queue(tmp_path):
    values = {"oracle_steps": 3, "l2": 1e-4, "queue_length": 6}
    learned = {name: SMALL[name] for name in ("half_life_steps",)}
    parts = Parts(tmp_path)
    parts.adversary = Adversary("stage", AdversarySettings(**learned | values), 8, 32, [5, 0], lambda step: 1.0)
    parts.objective.objectives["adversary"] = (1.0, parts.adversary)
    weights = []
    for step in range(4):
        parts.step(step)
        weights.append(parts.adversary.classifier.weight.clone())
    assert torch.equal(weights[0], weights[2]) and not torch.equal(weights[2], weights[3])
    rows = parts.adversary.queue.oldest_first()
    right = (parts.adversary.classifier(rows).diff(dim=-1)[..., 0] < 0) == parts.adversary.labels
    assert right.float().mean() > 0.8


@pytest.mark.parametrize("engine", ["segment", "jvp"])
def test_group_weights_see_the_source_alone(tmp_path, engine):
    """iDRO beside an adversary: the weights of groups are those without one."""
    parts = Parts(tmp_path, batch=12, negatives=2, weight=0.0)
    examples = with_groups(parts.forward.examples)
    omegas = []
    for adversary in (False, True):
        groups = weighted(parts.model, examples, engine=engine, temperature=100.0)
        rows = np.arange(QUERIES)
        prepared = Prepared(parts.model, examples, rows, lambda step: 1.0)
        objective: Any = parts.adapting.objective(groups, prepared) if adversary else groups
        source = Stream(examples, rows, 12, 2, [5, 0])
        forward = Forward(parts.model, examples, "cpu")
        stream: Any = source
        if adversary:
            forward, stream = parts.adapting.forward(forward), parts.adapting.batches(source)
        forward.by_group = objective.by_group
        for step in range(2):
            share = forward.prepare(stream.batch(step), Group())
            add_gradients(forward, objective, share, Group(), [1, step])
            objective.on_step(step + 1)
        omegas.append(groups.state.omega)
    assert omegas[0].std() > 1e-5
    torch.testing.assert_close(omegas[0], omegas[1], rtol=1e-4, atol=1e-6)


# ---- stages --------------------------------------------------------------------------------------------------------
@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)
    make_target(tmp_path / "results/target")
    return tmp_path


def spec(place: str = "ep0", adversary: dict[str, Any] | None = None, targets: Any = None, **changes: Any) -> StageSpec:
    named = {"target": {"split": "test"}} if targets is None else targets
    made = finetune_spec(place, inputs={"targets": ["results/target/manifest.json"]}, **changes)
    made.params["targets"] = named
    made.params["settings"] |= {"adversary": SMALL | (adversary or {}), "scope": "target"}
    return made


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


def test_two_processes_are_one(project):
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


def test_a_stage_may_go_on_with_the_classifier_before_it(project):
    run_spec(spec("ep0"))
    after = spec("ep1", steps=1, total_steps=1, learning_rate=1e-12)
    after.inputs["model"] = "results/ep0/manifest.json"
    after.params["continue_classifier"] = True
    after.params["settings"]["adversary"] = SMALL | {"learning_rate": 1e-12}
    run_spec(after)
    old, new = (load_file(project / f"results/{place}" / CLASSIFIER)["weight"] for place in ("ep0", "ep1"))
    torch.testing.assert_close(old, new)
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
