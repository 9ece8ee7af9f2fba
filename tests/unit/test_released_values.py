"""Losses, LAMB and spans against what the released code of four papers answered."""

from __future__ import annotations

import pytest
import torch
from tests.unit.released import answers
from tests.unit.training_helpers import known_of

from zerodr.losses.contrastive import info_nce, known_positive_mask, pairwise_nll
from zerodr.mining.cut import merge
from zerodr.mining.spans import SHORTEST_START
from zerodr.papers.modir.losses import adversarial_loss, clamped, classifier_gradient
from zerodr.training.optimizers import Lamb

SHAPES, LONGEST, EARLY = [(8, 12), (16,), (10, 10), (5,)], 30, 0.1


@pytest.fixture(scope="module")
def released():
    return answers("losses")


def off(ours, theirs) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def test_nll_of_triples(released):
    """ANCE. Seen: loss 0, gradient 1e-7."""
    queries = released["ance.queries"].clone().requires_grad_()
    loss = pairwise_nll(queries, released["ance.positives_vectors"], released["ance.negatives_vectors"])
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(released["ance.nll"]), rel=1e-6)
    assert off(queries.grad, released["ance.nll_gradient_queries"]) < 1e-6


@pytest.mark.parametrize("kind", ["confusion", "minimax", "gan"])
def test_adversarial_losses(released, kind):
    """MoDIR at three scales, of which the largest clamps 37.5 % of the logits. Seen: loss 1e-7, gradient 3e-7."""
    for scale in range(3):
        vectors = released["modir.vectors"][scale].clone().requires_grad_()
        logits = clamped(vectors @ released["modir.weight"].T, 5.0)
        loss = adversarial_loss(kind, list(logits[:2]), list(logits[2:]))
        loss.backward()
        assert float(loss.detach()) == pytest.approx(float(released[f"modir.{kind}.loss"][scale]), rel=1e-6)
        if kind != "minimax":
            assert off(vectors.grad, released[f"modir.{kind}.gradient"][scale]) < 2e-6


def test_the_classifier_learns_alike(released):
    """MoDIR: the mean of the four groups; the file's gradient is of their sum."""
    source = torch.tensor([True, True, False, False]).repeat_interleave(8)
    for scale in range(3):
        vectors = released["modir.vectors"][scale].reshape(32, 16)
        loss, gradient = classifier_gradient(released["modir.weight"], vectors, source, 5.0)
        assert float(loss.detach()) == pytest.approx(float(released["modir.classifier.loss"][scale].mean()), rel=1e-6)
        assert off(4 * gradient, released["modir.classifier.gradient"][scale]) < 2e-6


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_ten_steps_of_lamb(released, decay):
    """Seen: 5e-7; a rate .1 % higher gives 3e-4."""
    weights = [torch.nn.Parameter(part.view(shape).clone()) for part, shape in split(released["lamb.weights0"])]
    optimizer = Lamb(weights, lr=0.005, weight_decay=decay)
    for gradients in released["lamb.gradients"]:
        for weight, (part, shape) in zip(weights, split(gradients), strict=True):
            weight.grad = part.view(shape).clone()
        optimizer.step()
    ours = torch.cat([weight.detach().ravel() for weight in weights])
    torch.testing.assert_close(ours, released[f"lamb.decay{decay:g}"], rtol=0, atol=5e-6)


def split(flat):
    sizes = [torch.Size(shape).numel() for shape in SHAPES]
    return zip(flat.split(sizes), SHAPES, strict=True)


@pytest.mark.parametrize(("name", "factor"), [("dot", 1.0), ("cosine20", 20.0)])
def test_contrast_over_the_batch(released, name, factor):
    """DDR: other known positives of a query don't count. Seen: 0."""
    queries, documents = released["ddr.queries"].clone().requires_grad_(), released["ddr.documents"]
    columns = torch.cat([documents[:, 0], documents[:, 1:].reshape(48, 24)])
    numbers = released["ddr.document_ids"]
    ids = [str(int(i)) for i in torch.cat([numbers[:, 0], numbers[:, 1:].ravel()])]
    known = [{str(int(d)) for q, d in released["ddr.qrels"] if q == row} for row in range(16)]
    masked = known_positive_mask(known_of(ids, known), len(ids), torch.arange(16))
    assert torch.equal(masked, released["ddr.dot.masked"])
    left, right = queries, columns
    if name == "cosine20":
        left, right = (torch.nn.functional.normalize(side, dim=1) for side in (queries, columns))
    loss = info_nce(left @ right.T, torch.arange(16), masked, factor)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(released[f"ddr.{name}.loss"]), rel=1e-6)
    assert off(queries.grad, released[f"ddr.{name}.gradient_queries"]) < 1e-6


def test_spans_of_two_hundred_documents(released):
    """COCO's cutter, given its draws: 200 of 200 alike; a limit of 29 tokens leaves 185."""
    assert alike(released, LONGEST) == 200
    assert alike(released, LONGEST - 1) < 200


def alike(released, limit: int) -> int:
    """Number of documents that have the released spans, or are left out on both sides."""
    offsets, count = released["spans.offsets"].tolist(), 0
    for first, last in zip(offsets, offsets[1:], strict=False):
        rows = [row for row in range(first, last) if released["spans.tokens"][row] > 0]
        sizes = [int(released["spans.tokens"][row]) for row in rows]
        draws = iter([float(released["spans.draws"][row]) for row in rows[1:]])
        spans = merge(sizes, limit, EARLY, draws.__next__)
        theirs = [int(released["spans.spans"][row]) for row in rows]
        if len(spans) < 2 or sum(sizes[number] for number in spans[0]) < SHORTEST_START:
            count += all(span < 0 for span in theirs)
        else:
            count += theirs == [number for number, part in enumerate(spans) for _ in part]
    return count
