"""Numbers of the contrastive loss of COCO, alignment and uniformity, and what its settings refuse."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zerodr.config.base import validate
from zerodr.config.pretraining import PretrainSettings
from zerodr.errors import ConfigError
from zerodr.losses.spans import alignment, span_contrastive, uniformity

SPANS = torch.tensor([[1.0, 0.0], [0.8, 0.2], [0.0, 1.0], [-0.2, 0.9]])


def per_anchor(vectors: torch.Tensor) -> list[float]:
    """-log softmax at the partner among all others, one anchor at a time, in float64."""
    scores = (vectors @ vectors.T).double()
    losses = []
    for anchor in range(len(vectors)):
        others = [b for b in range(len(vectors)) if b != anchor]
        losses.append(float(torch.logsumexp(scores[anchor, others], 0) - scores[anchor, anchor ^ 1]))
    return losses


def test_per_anchor_and_mean():
    assert per_anchor(SPANS) == pytest.approx([0.59730148, 0.69674951, 0.64351302, 0.55827431], abs=1e-7)
    assert float(span_contrastive(SPANS)) == pytest.approx(0.62395958, abs=1e-7)


def test_the_papers_equation_read_literally_is_another_number():
    """Eq. 4 pools the negatives of both spans and leaves the positive out: for documentation only."""
    across = torch.logsumexp((SPANS[:2] @ SPANS[2:].T).flatten(), 0)
    literal = [float(across - SPANS[2 * document] @ SPANS[2 * document + 1]) for document in (0, 1)]
    assert literal == pytest.approx([0.60126545, 0.50126545], abs=1e-7)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), documents=st.integers(1, 6), factor=st.floats(0.1, 20))
def test_the_loss_is_the_mean_over_anchors_and_order_does_not_matter(seed, documents, factor):
    vectors = torch.randn(2 * documents, 5, generator=torch.Generator().manual_seed(seed))
    loss = float(span_contrastive(vectors, factor))
    scaled = per_anchor(vectors * factor**0.5)
    assert loss == pytest.approx(sum(scaled) / len(scaled), rel=1e-4, abs=1e-5)
    order = torch.randperm(documents, generator=torch.Generator().manual_seed(seed))
    shuffled = vectors.view(documents, 2, 5)[order].flip(1).reshape(-1, 5)
    assert float(span_contrastive(shuffled, factor)) == pytest.approx(loss, rel=1e-4, abs=1e-5)


def test_two_ranks_with_their_gradients_added_give_the_gradient_of_one():
    """Each rank holds its own rows with gradient and the others' without; the parts add up."""
    whole = SPANS.clone().requires_grad_()
    span_contrastive(whole).backward()
    made = []
    for rank in (0, 1):
        own = SPANS[2 * rank : 2 * rank + 2].clone().requires_grad_()
        parts = [SPANS[:2], SPANS[2:]]
        parts[rank] = own
        span_contrastive(torch.cat(parts)).backward()
        made.append(own.grad)
    torch.testing.assert_close(torch.cat(made), whole.grad)


def test_one_document_has_no_loss_and_large_scores_do_not_overflow():
    assert float(span_contrastive(SPANS[:2])) == 0.0
    assert torch.isfinite(span_contrastive(1e4 * torch.randn(8, 4, generator=torch.Generator().manual_seed(0))))


def test_alignment_and_uniformity():
    unit = SPANS / SPANS.norm(dim=-1, keepdim=True)
    plain = ((unit[0] - unit[1]).square().sum() + (unit[2] - unit[3]).square().sum()) / 2
    assert float(alignment(SPANS)) == pytest.approx(float(plain), rel=1e-6)
    assert float(alignment(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]))) == pytest.approx(4.0)
    pairs = [float((unit[i] - unit[j]).square().sum()) for i in range(4) for j in range(i)]
    expected = torch.tensor([-2 * d for d in pairs]).exp().mean().log()
    assert float(uniformity(SPANS)) == pytest.approx(float(expected), rel=1e-5)
    assert float(uniformity(torch.ones(5, 3))) == pytest.approx(0.0, abs=1e-5)
    assert float(uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))) == pytest.approx(-8.0, rel=1e-5)


def test_settings_fill_in_what_an_objective_compares_by():
    assert PretrainSettings(name="coco").comparison == ("dot", 1.0)
    assert PretrainSettings(name="simcse").comparison == ("cosine", 20.0)
    assert PretrainSettings(name="simcse", similarity="dot", inverse_temperature=2).comparison == ("dot", 2.0)
    assert [PretrainSettings(name=name).masks for name in ("coco", "mlm", "ict", "tsdae")] == [True, True, False, False]


@pytest.mark.parametrize(
    "values, message",
    [
        ({"name": "mlm", "skip_layer": 1}, "skip_layer is not for mlm"),
        ({"name": "ict", "mask_rate": 0.3}, "mask_rate is not for ict"),
        ({"name": "simcse", "backbone_dropout": False}, "backbone_dropout is not for simcse"),
        ({"name": "condenser", "head_layers": 0}, "condenser needs head_layers"),
        ({"name": "coco", "head_layers": 0, "head": "from_model"}, "head: from_model needs head_layers of at least 1"),
        ({"name": "coco", "mask_rate": 0}, "mask_rate"),
        ({"name": "bert"}, "name"),
        ({"name": "coco", "temperature": 1}, "did you mean inverse_temperature"),
    ],
    ids=str,
)
def test_settings_refuse(values, message):
    with pytest.raises(ConfigError, match=message):
        validate(PretrainSettings, values, "objective")
    validate(PretrainSettings, {"name": "mlm", "skip_layer": None}, "objective")  # a default stands for nothing
