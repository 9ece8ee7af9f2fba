"""Numbers of BERM's losses, masking, gradients, and the loop that the vectorised form must equal."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from zerodr.papers.berm.losses import matching_vector, pool_units, r1, r2, unit_balance, unit_extraction, unit_scores

Q = torch.tensor([[1.0, 0.5, 2.0, -1.0]])
P = torch.tensor([[1.0, 1.0, 0.5, 0.0]])
E = torch.tensor([[[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]])
BOTH = torch.ones(1, 2, dtype=torch.bool)
FIRST, SECOND = torch.tensor([0]), torch.tensor([1])


def near(value: torch.Tensor, expected: object, at: float = 1e-6) -> bool:
    return value.tolist() == pytest.approx(expected, abs=at)


def test_balance():
    assert near(unit_scores(P, E)[0], [1.5, 1.0])
    assert near(unit_scores(P, E).softmax(-1)[0], [0.622459, 0.377541])
    assert near(r1(P, E, BOTH), 0.030930)
    assert near(r1(P, E, BOTH, over_units="mean"), 0.015465)
    assert not near(r1(P, E, BOTH), 0.030300), "the other direction of the divergence"


def test_gradient_of_balance():
    passages = P.clone().requires_grad_()
    r1(passages, E, BOTH).backward()
    assert near(passages.grad[0], [0.122459, -0.122459, 0.122459, -0.122459])


def test_extraction():
    assert near(matching_vector(Q, P)[0], [0.841345, 0.345731, 0.841345, 0.0])
    assert near(unit_scores(matching_vector(Q, P), E)[0], [1.682689, 0.345731])
    assert near(r2(Q, P, E, BOTH, FIRST), 0.233207)
    assert near(r2(Q, P, E, BOTH, SECOND), 1.570166)
    assert near(r2(Q, P, E, BOTH, FIRST, softmaxes=2), 0.443194)
    assert near(r2(Q, P, E, BOTH, SECOND, softmaxes=2), 1.027173)


def test_totals_of_presets():
    paper = 1.0 * r1(P, E, BOTH) + 0.1 * r2(Q, P, E, BOTH, FIRST)
    released = 1.0 * r1(P, E, BOTH, "mean") + 0.1 * r2(Q, P, E, BOTH, FIRST, 2)
    assert near(paper, 0.054251) and near(released, 0.059784)


@pytest.mark.parametrize("softmaxes", [1, 2])
def test_masked_units_change_nothing(softmaxes: int):
    more, valid = torch.cat([E, torch.full((1, 1, 4), 9.0)], 1), torch.tensor([[True, True, False]])
    assert near(unit_balance(P, more, valid), unit_balance(P, E, BOTH).tolist())
    masked = unit_extraction(Q, P, more, valid, FIRST, softmaxes)
    assert near(masked, unit_extraction(Q, P, E, BOTH, FIRST, softmaxes).tolist())


def by_loop(p: torch.Tensor, e: torch.Tensor, valid: torch.Tensor) -> list[float]:
    """R1 of each sample by torch's own divergence."""
    made = []
    for row in range(len(p)):
        own = e[row][valid[row]]
        if len(own) < 2:
            made.append(0.0)
            continue
        log_b = functional.log_softmax(own @ p[row], -1)[None]
        uniform = torch.full_like(log_b, 1 / len(own))
        made.append(float(functional.kl_div(log_b, uniform, reduction="batchmean")))
    return made


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(0, 1000))
def test_vectorised_equals_loop(counts: list[int], seed: int):
    made = torch.Generator().manual_seed(seed)
    p, q = torch.randn(len(counts), 5, generator=made), torch.randn(len(counts), 5, generator=made)
    e = torch.randn(len(counts), 6, 5, generator=made)
    valid = torch.arange(6) < torch.tensor(counts)[:, None]
    expected = by_loop(p, e, valid)
    assert near(unit_balance(p, e, valid), expected, 1e-5)
    many = [value for value, count in zip(expected, counts, strict=True) if count > 1]
    assert near(r1(p, e, valid), sum(many) / max(len(many), 1), 1e-5)
    labels = torch.tensor([count - 1 if count > 1 else -100 for count in counts])
    losses = [
        float(
            functional.cross_entropy((e[row, :count] @ functional.gelu(q[row] * p[row]))[None], labels[row : row + 1])
        )
        for row, count in enumerate(counts)
        if count > 1
    ]
    assert near(r2(q, p, e, valid, labels), sum(losses) / max(len(losses), 1), 1e-5)


def test_pooling():
    states = torch.tensor([[[9.0, 9], [1, 2], [3, 4], [7, 7], [5, 6], [7, 7], [0, 0]]])
    period, valid = pool_units(states, torch.tensor([[-1, 0, 0, -1, 1, -1, -1]]), 3)
    assert near(period[0, :2], [pytest.approx([2, 3]), pytest.approx([5, 6])])
    assert valid.tolist() == [[True, True, False]] and near(period[0, 2], [0.0, 0.0])
    inclusive, _ = pool_units(states, torch.tensor([[-1, 0, 0, 0, 1, 1, -1]]), 2)
    assert inclusive[0].flatten().tolist() == pytest.approx([3.6667, 4.3333, 6, 6.5], abs=1e-4)


def test_samples_without_label_are_left_out_of_the_mean():
    p, q, e, valid = P.repeat(3, 1), Q.repeat(3, 1), E.repeat(3, 1, 1), BOTH.repeat(3, 1)
    assert near(r2(q, p, e, valid, torch.tensor([0, -100, 1])), (0.233207 + 1.570166) / 2)


def test_one_unit_and_no_unit_have_no_loss_and_a_zero_gradient():
    p, q, e = (t.repeat(2, *[1] * (t.dim() - 1)).requires_grad_() for t in (P, Q, E))
    valid = torch.tensor([[True, False], [False, False]])
    total = r1(p, e, valid) + r2(q, p, e, valid, torch.tensor([-100, 1]))
    total.backward()
    assert float(total) == 0.0
    assert all(bool((t.grad == 0).all()) for t in (p, q, e))


@pytest.mark.parametrize("count", [2, 5])
def test_double_softmax_is_bounded(count: int):
    e = torch.eye(count).unsqueeze(0) * 200
    valid, ones = torch.ones(1, count, dtype=torch.bool), torch.ones(1, count)
    best = unit_extraction(ones, torch.eye(count)[:1] * 3, e, valid, FIRST, 2)
    worst = unit_extraction(ones, torch.eye(count)[1:2] * 3, e, valid, FIRST, 2)
    top = torch.log(torch.tensor(torch.e + count - 1))
    assert near(best, [float(top) - 1], 1e-4) and near(worst, [float(top)], 1e-4)


def test_gradients_reach_query_passage_and_units():
    p, q, e = P.clone().requires_grad_(), Q.clone().requires_grad_(), E.clone().requires_grad_()
    (r1(p, e, BOTH) + r2(q, p, e, BOTH, SECOND)).backward()
    assert all(float(t.grad.abs().sum()) > 0 for t in (p, q, e))


def test_cosine_ignores_length_and_takes_the_temperature():
    scores = unit_scores(P * 7, E * 3, "cosine", 0.05)
    expected = functional.cosine_similarity(P[:, None], E, dim=-1) / 0.05
    assert near(scores, [pytest.approx(expected[0].tolist(), abs=1e-5)])


def test_half_precision_is_computed_in_float32():
    loss = r1(P.bfloat16(), E.bfloat16(), BOTH)
    assert loss.dtype == torch.float32 and near(loss, 0.030930)


@pytest.mark.parametrize(("scaled", "least", "most"), [(False, 0.0, 0.01), (True, 0.3, 1.5)])
def test_gelu_gates_vectors_of_length_1_only_where_they_are_scaled(scaled, least, most):
    """Distance of the matching vector from q * p / 2, the linear part of GELU, relative to that; D of BERT-base."""
    draw = torch.Generator().manual_seed(13)
    query, passage = (torch.nn.functional.normalize(torch.randn(64, 768, generator=draw), dim=-1) for _ in range(2))
    found = matching_vector(query, passage, scaled)
    linear = query * passage / 2 * (768 if scaled else 1)
    assert least <= float((found - linear).norm() / linear.norm()) <= most
