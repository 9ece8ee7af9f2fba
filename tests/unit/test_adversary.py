"""Steps of adversarial adaptation: classifier and encoder take turns, each setting, gradients, groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.adversary_helpers import OFFICIAL, SMALL, make_target, oldest_first
from tests.unit.training_helpers import (
    QUERIES,
    load_tiny,
    tiny_examples,
    tiny_model,
)
from tests.unit.weighting_helpers import weighted, with_groups

from zerodr.artifacts.stage import Stage, StageSpec
from zerodr.config.params import FinetuneParams
from zerodr.config.training import ObjectiveSettings
from zerodr.papers.modir.objective import Adversary
from zerodr.papers.modir.settings import AdversarySettings
from zerodr.papers.modir.training import Adapting
from zerodr.training.additions import Prepared
from zerodr.training.data.batches import Stream
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, add_gradients
from zerodr.training.objectives.ranking import make_objective


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
    vectors = oldest_first(parts.adversary.queue)
    for step in (0, 1):
        texts = parts.forward.padded(parts.forward.texts(parts.stream.batch(step)))
        held = parts.forward.represent(texts, [1, step, 0, 0])
        documents = held.leaf[8:][texts.documents].detach()
        queued = vectors[8 * step : 8 * (step + 1)]
        torch.testing.assert_close(queued[:, 1], documents[:, step], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(queued[:, 0], held.leaf[:8].detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(queued[:, 2], held.leaf[-8:].detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(queued[:, 3], held.leaf[-16:-8].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, OFFICIAL], ids=["paper", "official"])
def test_accuracy_is_of_the_batch_that_each_looks_at(tmp_path, monkeypatch, changes):
    """Section 4.4: a new batch. Released code: entry 0 of the queue, the oldest, which no update reads."""
    parts, pushed, looked, learned = Parts(tmp_path, **changes), [], [], []
    adversary, queue = parts.adversary, parts.adversary.queue
    push, look, gradient = queue.push, adversary._look, adversary._gradient
    monkeypatch.setattr(queue, "push", lambda vectors, *at: (pushed.append(vectors.clone()), push(vectors, *at)))
    monkeypatch.setattr(adversary, "_look", lambda vectors: (looked.append(vectors.clone()), look(vectors)))
    monkeypatch.setattr(adversary, "_gradient", lambda vectors: (learned.append(vectors), gradient(vectors))[1])
    for step in range(6):
        learned.clear()
        weight = adversary.classifier.weight.clone()
        parts.step(step)
        entry = max(0, step - queue.length + 1) if adversary.settings.official else step
        assert torch.equal(looked[step], pushed[entry])
        is_source = (looked[step] @ weight.T).diff(dim=-1)[..., 0] < 0
        right = (is_source == adversary.labels).double().mean().item()
        assert float(parts.facts["adversary.domain_accuracy"]) == pytest.approx(right, abs=1e-6), "before it learns"
        if adversary.settings.official and step:
            assert not any((row == pushed[entry][0]).all() for vectors in learned for row in vectors)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "minimax"},
        {"loss": "gan"},
        {"queries": "none"},
        OFFICIAL | {"accumulation": 2},
        {"accumulation": 4},
        {"optimizer": "lamb"},
        {"negatives": 0, "name": "info_nce"},
    ],
    ids=str,
)
def test_every_setting_takes_steps(tmp_path, changes):
    parts = Parts(tmp_path, **changes)
    for step in range(6):
        found = parts.step(step)
        assert all(bool(value.isfinite().all()) for value in found.values())
    entries = 6 * (changes.get("accumulation", 1) if parts.adversary.settings.official else 1)
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
    rows = oldest_first(parts.adversary.queue)
    right = (parts.adversary.classifier(rows).diff(dim=-1)[..., 0] < 0) == parts.adversary.labels
    assert right.float().mean() > 0.8


@pytest.mark.parametrize("engine", ["segment", "jvp"])
def test_cluster_weights_see_the_source_alone(tmp_path, engine):
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


def test_processes_share_out_the_target_where_the_source_is_sorted_by_group(tmp_path):
    """Engine segment has a batch sorted by group before processes share it out; the target's texts stay in it."""
    parts = Parts(tmp_path, batch=12, negatives=2)
    examples = with_groups(parts.forward.examples)
    forward, group = parts.adapting.forward(Forward(parts.model, examples, "cpu")), Group()
    batch = parts.adapting.batches(Stream(examples, np.arange(QUERIES), 12, 2, [5, 0])).batch(0)
    forward.by_group, group.world = True, 2
    given = forward.tokens(forward.target.texts_of_documents(batch.target_documents), "document")
    for group.rank in range(2):
        share = forward.prepare(batch, group)
        assert (np.diff(share.batch.groups) >= 0).all()
        documents = share.texts.tokens[-12:-6]  # the last are queries
        assert [ids.tolist() for ids in documents] == [ids.tolist() for ids in given[6 * group.rank :][:6]]
