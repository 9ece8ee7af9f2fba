"""MoDIR's losses, classifier and momentum queue against numbers worked out apart from the code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.adversary_helpers import oldest_first

from zerodr.papers.modir.domain_classifier import DomainClassifier, MomentumQueue, logistic_regression
from zerodr.papers.modir.losses import (
    adversarial_loss,
    adversary_weight,
    clamped,
    classifier_gradient,
    confusion_losses,
    domain_losses,
    margins,
)

SOURCE = [torch.tensor([[2.0, -1.0]]), torch.tensor([[0.5, 0.5]])]
TARGET = [torch.tensor([[-1.0, 1.0]]), torch.tensor([[0.2, -0.3]])]
numbers = st.floats(-30, 30, width=32)


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64, requires_grad=True)


def test_classifier_and_losses():
    every = torch.cat([*SOURCE, *TARGET])
    assert margins(every).tolist() == pytest.approx([3, 0, -2, 0.5])
    assert torch.sigmoid(margins(every)).tolist() == pytest.approx([0.95257413, 0.5, 0.11920292, 0.62245933])
    told = [domain_losses(x, True) for x in SOURCE] + [domain_losses(x, False) for x in TARGET]
    assert torch.cat(told).tolist() == pytest.approx([0.04858735, 0.69314718, 0.12692801, 0.97407698])
    assert confusion_losses(every).tolist() == pytest.approx([1.54858735, 0.69314718, 1.12692801, 0.72407698])
    found = {kind: float(adversarial_loss(kind, SOURCE, TARGET)) for kind in ("confusion", "minimax", "gan")}
    assert found == pytest.approx({"confusion": 4.09273953, "minimax": -1.84273953, "gan": 2.60100500})


def test_gradients():
    for logits, slopes in (((2, -1), 0.45257413), ((0.5, 0.5), 0.0), ((-1, 1), -0.38079708)):
        z = leaf(*logits)
        confusion_losses(z).sum().backward()
        assert z.grad is not None and z.grad[0].tolist() == pytest.approx([slopes, -slopes])


def test_gradient_to_the_encoder():
    weight = torch.tensor([[0.1, -0.2, 0.3], [0.0, 0.1, -0.1]], dtype=torch.float64)
    e = leaf(1, 2, -1)
    logits = e @ weight.T
    assert logits[0].tolist() == pytest.approx([-0.6, 0.3])
    loss = confusion_losses(logits).sum()
    loss.backward()
    assert loss.item() == pytest.approx(0.79115387)
    assert e.grad is not None and e.grad[0].tolist() == pytest.approx([-0.02109495, 0.06328485, -0.08437980], abs=1e-8)
    moved = (e - 0.1 * e.grad).detach()
    before, after = (torch.sigmoid(margins(x.detach() @ weight.T)).item() for x in (e, moved))
    assert after > before == pytest.approx(0.28905050)


def test_clamp():
    for limit, value, slopes in ((None, 5.50001670, (0.49998330, -0.49998330)), (5.0, 4.00033541, (0, -0.49966465))):
        z = leaf(8, -3)
        loss = confusion_losses(clamped(z, limit)).sum()
        loss.backward()
        assert loss.item() == pytest.approx(value)
        assert z.grad is not None and z.grad[0].tolist() == pytest.approx(slopes, abs=1e-8)


@given(st.lists(st.tuples(numbers, numbers), min_size=4, max_size=4))
def test_the_least_loss_is_four_logs_of_two(logits):
    parts = [torch.tensor([row], dtype=torch.float64) for row in logits]
    assert float(adversarial_loss("confusion", parts[:2], parts[2:])) >= 4 * math.log(2) - 1e-9
    zero = [torch.zeros(1, 2, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    least = adversarial_loss("confusion", zero[:2], zero[2:])
    least.backward()
    assert least.item() == pytest.approx(2.77258872) and all(not bool(z.grad.any()) for z in zero)


def test_lambda():
    expected = {0: 1, 1: 0.99993069, 5000: 0.70710678, 10000: 0.5, 20000: 0.25, 30000: 0.125, 50000: 0.03125}
    assert {k: adversary_weight(k, 1.0, 10000) for k in expected} == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["confusion", "minimax"])
def test_documents_alone_count_as_four_groups(kind):
    same = adversarial_loss(kind, [SOURCE[1]] * 2, [TARGET[1]] * 2)
    assert float(adversarial_loss(kind, [SOURCE[1]], [TARGET[1]])) == pytest.approx(float(same))


@settings(deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([None, 0.3, 5.0]))
def test_the_closed_form_is_autograds_gradient(seed, limit):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(2, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    vectors = torch.randn(14, 6, generator=generator, dtype=torch.float64)
    source = torch.rand(14, generator=generator) > 0.5
    logits = clamped(vectors @ weight.T, limit)
    loss = torch.nn.functional.cross_entropy(logits, (~source).long())
    loss.backward()
    told, gradient = classifier_gradient(weight, vectors, source, limit)
    assert not gradient.requires_grad and float(told) == pytest.approx(loss.item())
    torch.testing.assert_close(gradient, weight.grad)


def test_a_classifier_begins_as_a_linear_layer_and_takes_no_gradient():
    made, again, other = DomainClassifier(64, 1), DomainClassifier(64, 1), DomainClassifier(64, 2)
    assert torch.equal(made.weight, again.weight) and not torch.equal(made.weight, other.weight)
    assert made.weight.abs().max() <= 1 / 8 and made.weight.abs().mean() > 1 / 32
    assert not made(torch.ones(3, 64)).requires_grad


def test_logistic_regression_finds_the_minimum():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(400, 5, generator=generator)
    source = vectors[:, 0] + 0.5 * torch.randn(400, generator=generator) > 0
    found = logistic_regression(vectors, source, 0.01).double()
    points, signs = vectors.double(), source.double() * 2 - 1
    slope = -(torch.sigmoid(-signs * (points @ found)) * signs) @ points / 400 + 0.01 * found
    assert slope.abs().max() < 1e-5 and ((points @ found > 0) == source).double().mean() > 0.8


# ---- the queue -----------------------------------------------------------------------------------------------------
def batch(number: float, size: int = 2, groups: int = 4) -> torch.Tensor:
    return torch.full((size, groups, 3), float(number), requires_grad=True)


def held(queue: MomentumQueue) -> list[float]:
    return oldest_first(queue)[:: queue.size, 0, 0].tolist()


def test_the_queue_holds_the_last_batches():
    queue = MomentumQueue(3, 2, 4, 3)
    place = queue.rows.data_ptr()
    for number in range(1, 6):
        queue.push(batch(number))
    assert held(queue) == [3, 4, 5] and not queue.rows.requires_grad
    assert queue.rows.data_ptr() == place, "preallocated"


@given(st.integers(1, 5), st.integers(0, 12))
def test_the_queue_is_a_list_that_drops_its_oldest(length, pushes):
    queue = MomentumQueue(length, 1, 2, 3)
    for number in range(pushes):
        queue.push(batch(number, 1, 2))
    assert held(queue) == list(range(pushes))[-length:]


def test_a_batch_that_comes_in_parts_counts_with_the_last():
    queue = MomentumQueue(2, 4, 4, 3)
    queue.push(batch(1), 0, 2)
    assert queue.filled == 0
    queue.push(batch(2), 1, 2)
    assert queue.filled == 1 and oldest_first(queue)[:, 0, 0].tolist() == [1, 1, 2, 2]


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_samples_are_of_filled_places_and_repeat_none_before_all_were_taken(filled, updates, minibatch, seed):
    queue = MomentumQueue(6, 2, 2, 1)
    for number in range(filled):
        queue.push(torch.tensor([2.0 * number, 2.0 * number + 1]).view(2, 1, 1).expand(2, 2, 1))
    drawn = [part[:, 0, 0] for part in queue.samples(updates, minibatch, [seed])]
    again = [part[:, 0, 0] for part in queue.samples(updates, minibatch, [seed])]
    assert [part.tolist() for part in drawn] == [part.tolist() for part in again]
    size = min(minibatch, 2 * filled)
    assert [len(part) for part in drawn] == [size] * updates
    counts = np.bincount(torch.cat(drawn).long().numpy(), minlength=2 * filled)
    assert len(counts) == 2 * filled and counts.max() - counts.min() <= 1


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_oldest_batch_is_the_first_of_those_held(count):
    queue = MomentumQueue(3, 2, 4, 3)
    for number in range(count):
        queue.push(batch(float(number)))
    assert queue.oldest().unique().tolist() == [float(max(0, count - 3))]


def test_the_released_order_leaves_the_oldest_out_and_repeats_the_newest():
    """Length 4, two batches in an update, two updates: j = 1..4 -> min(j, filled - 1)."""
    queue = MomentumQueue(4, 2, 4, 3)
    for number, expected in (
        (1, [1, 1, 1, 1]),
        (2, [2, 2, 2, 2]),
        (3, [2, 3, 3, 3]),
        (4, [2, 3, 4, 4]),
        (5, [3, 4, 5, 5]),
        (6, [4, 5, 6, 6]),
    ):
        queue.push(batch(number))
        parts = list(queue.in_order(2, 2))
        assert [len(part) for part in parts] == [4, 4]
        assert torch.cat(parts)[::2, 0, 0].tolist() == expected


@pytest.mark.parametrize("pushes", [1, 3, 5])
def test_pushes_can_be_undone(pushes):
    queue = MomentumQueue(4, 2, 4, 3)
    for number in range(5):
        queue.push(batch(number))
    before, kept = queue.rows.clone(), queue.overwritten(pushes)
    for number in range(pushes):
        queue.push(batch(10 + number))
    queue.put_back(kept)
    assert torch.equal(queue.rows, before) and held(queue) == [1, 2, 3, 4]
