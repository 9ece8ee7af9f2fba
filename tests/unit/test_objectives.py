"""Objectives give the losses of small examples, and stack."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.training_helpers import known_of
from torch.nn import functional

from zerodr.config.training import ObjectiveSettings
from zerodr.errors import ConfigError
from zerodr.training.objectives.base import Encoded, Objective, Stack
from zerodr.training.objectives.ranking import InfoNCE, PairwiseNLL, make_objective


def encoded(
    queries: torch.Tensor,
    documents: torch.Tensor,
    ids: list[str] | None = None,
    positives: list[set[str]] | None = None,
    teacher: torch.Tensor | None = None,
) -> Encoded:
    count, width = documents.shape[:2]
    ids = ids or [f"{row}-{column}" for row in range(count) for column in range(width)]
    positives = positives or [{ids[row * width]} for row in range(count)]
    return Encoded(0, queries, documents, known_of(ids, positives), teacher)


def random_batch(count: int, negatives: int, seed: int = 0, **more) -> Encoded:
    generator = torch.Generator().manual_seed(seed)
    return encoded(
        torch.randn(count, 8, generator=generator), torch.randn(count, 1 + negatives, 8, generator=generator), **more
    )


def ddr_o6() -> Encoded:
    """Two queries; the negatives in the order of queries."""
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    documents = torch.tensor([[[2.0, 0], [1, 1], [0, 2]], [[0, 1], [1, 0], [0.5, 0.5]]])
    return encoded(queries, documents, ["5", "7", "8", "6", "5", "9"], [{"5"}, {"6", "8"}])


def test_info_nce_with_masking_is_ddr_o6():
    assert InfoNCE()(ddr_o6())["info_nce"].item() == pytest.approx(0.914068, abs=1e-6)
    assert InfoNCE(mask_known_positives=False)(ddr_o6())["info_nce"].item() == pytest.approx(1.301804, abs=1e-6)


def test_pairwise_is_modir_o8():
    batch = encoded(torch.tensor([[1.0, 2.0]]), torch.tensor([[[0.5, 1.0], [1.0, 0.2]]]))
    assert PairwiseNLL()(batch)["pairwise_nll"].item() == pytest.approx(0.28733533, abs=1e-7)


def test_pairwise_averages_over_negatives():
    batch = random_batch(3, 2)
    margins = ((batch.documents[:, 1:] - batch.documents[:, :1]) * batch.queries[:, None]).sum(-1)
    assert PairwiseNLL()(batch)["pairwise_nll"].item() == pytest.approx(functional.softplus(margins).mean().item())


def test_own_negatives_only():
    batch = random_batch(4, 3)
    expected = -torch.log_softmax(batch.document_scores(), 1)[:, 0].mean().item()
    assert InfoNCE(in_batch=False)(batch)["info_nce"].item() == pytest.approx(expected, abs=1e-6)
    known = encoded(batch.queries, batch.documents, positives=[{"0-0", "0-2"}, {"1-0"}, {"2-0"}, {"3-0"}])
    scores = batch.document_scores()
    scores[0, 2] = -math.inf
    expected = -torch.log_softmax(scores, 1)[:, 0].mean().item()
    assert InfoNCE(in_batch=False)(known)["info_nce"].item() == pytest.approx(expected, abs=1e-6)


def test_known_positives_are_asked_for():
    batch = Encoded(0, torch.ones(2, 3), torch.ones(2, 2, 3))
    with pytest.raises(ConfigError, match="masks known positives, found a batch without them"):
        InfoNCE()(batch)
    assert InfoNCE(mask_known_positives=False)(batch)["info_nce"].isfinite()


def masked_by_hand(scores, ids, positives, own):
    """Each query's cross entropy over the columns that are no other known positive of it."""
    for row, known in enumerate(positives):
        others = [column for column, key in enumerate(ids) if key in known and column != own[row]]
        scores[row, others] = -math.inf
    return functional.cross_entropy(scores, torch.tensor(own))


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 5), negatives=st.integers(0, 3), distinct=st.integers(1, 9), seed=st.integers(0, 999))
def test_masks_are_those_of_ids(count, negatives, distinct, seed):
    """Documents come several times, and have several queries."""
    draw, width = np.random.default_rng(seed), 1 + negatives
    ids = [str(key) for key in draw.integers(0, distinct, count * width)]
    positives = [{ids[row * width], *map(str, draw.integers(0, distinct, 2))} for row in range(count)]
    plain = random_batch(count, negatives, seed)
    batch = encoded(plain.queries, plain.documents, ids, positives)
    order = [row * width for row in range(count)]
    order += [row * width + column for row in range(count) for column in range(1, width)]
    scores = batch.queries @ batch.documents.flatten(0, 1)[order].T
    expected = masked_by_hand(scores, [ids[place] for place in order], positives, list(range(count)))
    assert InfoNCE()(batch)["info_nce"].item() == pytest.approx(expected.item(), abs=1e-5)
    rows = [
        masked_by_hand(batch.document_scores()[[row]], ids[row * width : (row + 1) * width], [positives[row]], [0])
        for row in range(count)
    ]
    assert InfoNCE(in_batch=False)(batch)["info_nce"].item() == pytest.approx(float(sum(rows)) / count, abs=1e-5)


def test_a_bare_batch_is_plain_in_batch_softmax():
    batch = random_batch(5, 0)
    expected = functional.cross_entropy(20 * batch.queries @ batch.documents[:, 0].T, torch.arange(5)).item()
    assert InfoNCE(inverse_temperature=20)(batch)["info_nce"].item() == pytest.approx(expected, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(count=st.integers(2, 6), negatives=st.integers(0, 3), seed=st.integers(0, 99))
def test_the_order_of_queries_does_not_matter(count, negatives, seed):
    batch = random_batch(count, negatives, seed)
    order = np.random.default_rng(seed).permutation(count)
    width = 1 + negatives
    ids = [f"{row}-{column}" for row in order for column in range(width)]
    moved = encoded(batch.queries[order], batch.documents[order], ids, [{f"{row}-0"} for row in order])
    assert InfoNCE()(moved)["info_nce"].item() == pytest.approx(InfoNCE()(batch)["info_nce"].item(), rel=1e-5)


def test_margin_mse_is_ddr_o5():
    documents = torch.tensor([[[3.0, 1], [1, 0], [0, 1], [-1, 1]]])
    batch = encoded(torch.tensor([[1.0, 2]]), documents, teacher=torch.tensor([[10.0, 2, 4, -1]]))
    objective = make_objective(ObjectiveSettings(name="margin_mse", negatives_per_query=3))
    assert objective(batch)["margin_mse"].item() == pytest.approx(24.666667, abs=1e-5)


def test_kl_is_zero_for_the_teacher_itself_and_needs_one():
    batch = random_batch(3, 2)
    objective = make_objective(ObjectiveSettings(name="kl"))
    taught = encoded(batch.queries, batch.documents, teacher=batch.document_scores())
    assert objective(taught)["kl"].item() == pytest.approx(0, abs=1e-6)
    with pytest.raises(ConfigError, match="needs a teacher"):
        objective(batch)


@pytest.mark.parametrize("chosen", [{"name": "pairwise_nll"}, {"name": "info_nce", "in_batch": False}, {"name": "kl"}])
def test_hard_negatives_are_asked_for(chosen):
    with pytest.raises(ConfigError, match="hard negatives"):
        make_objective(ObjectiveSettings(negatives_per_query=0, **chosen))


class Counter(Objective):
    def __init__(self) -> None:
        self.steps, self.queue = 0, torch.zeros(2)

    def __call__(self, batch):
        return {"one": torch.ones(())}

    def on_step(self, finished):
        self.steps += 1
        return {"steps": float(self.steps)}

    def state_dict(self):
        return {"steps": self.steps, "queue": self.queue}

    def load_state_dict(self, state):
        self.steps, self.queue = state["steps"], state["queue"]


def test_a_stack_weighs_terms_and_fans_out_hooks_and_states():
    stack = Stack({"rank": (1.0, InfoNCE()), "extra": (0.5, Counter())})
    batch = random_batch(3, 1)
    terms = stack(batch)
    assert set(terms) == {"rank.info_nce", "extra.one"} and terms["extra.one"].item() == 0.5
    assert stack.on_step(1) == {"extra.steps": 1.0}
    other = Stack({"rank": (1.0, InfoNCE()), "extra": (0.5, Counter())})
    other.load_state_dict(stack.state_dict())
    assert other.objectives["extra"][1].steps == 1
