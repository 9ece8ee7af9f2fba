"""Losses against numbers worked out apart from the code."""

from __future__ import annotations

import math

import pytest
import torch
from tests.unit.training_helpers import known_of

from zerodr.encoders.network.heads import unit_length
from zerodr.losses.contrastive import info_nce, known_positive_mask, pairwise_nll
from zerodr.losses.distillation import kl_distillation
from zerodr.training.objectives.base import Encoded
from zerodr.training.objectives.ranking import ScoreLoss

QUERIES = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
CANDIDATES = torch.tensor([[2.0, 0], [0, 1], [1, 1], [0, 2], [1, 0], [0.5, 0.5]])
IDS = ["5", "6", "7", "8", "5", "9"]
OWN = torch.tensor([0, 1])


def test_pairwise_likelihood_is_the_two_way_softmax():
    generator = torch.Generator().manual_seed(0)
    q, p, n = (torch.randn(5, 4, generator=generator) for _ in range(3))
    both = torch.stack([(q * p).sum(-1), (q * n).sum(-1)], -1)
    expected = -torch.log_softmax(both, -1)[:, 0].mean()
    assert pairwise_nll(q, p, n).item() == pytest.approx(expected.item(), abs=1e-6)
    assert pairwise_nll(q, p, p).item() == pytest.approx(math.log(2))


def test_pairwise_likelihood():
    q, p, n = torch.tensor([[[1.0, 2.0]], [[0.5, 1.0]], [[1.0, 0.2]]])
    assert pairwise_nll(q, p, n).item() == pytest.approx(0.28733533, abs=1e-7)


def test_masked_contrastive_loss_ddr_o6():
    mask = known_positive_mask(known_of(IDS, [{"5"}, {"6", "8"}]), len(IDS), OWN)
    assert mask.nonzero().tolist() == [[0, 4], [1, 3]]
    scores = QUERIES @ CANDIDATES.T
    assert info_nce(scores, OWN, mask).item() == pytest.approx(0.914068, abs=1e-6)
    rows = info_nce(scores, OWN, mask, reduction="none")
    assert rows.tolist() == pytest.approx([0.621479, 1.206656], abs=1e-6)
    assert info_nce(scores, OWN).item() == pytest.approx(1.301804, abs=1e-6)
    assert info_nce(scores[:, :2], OWN).item() == pytest.approx(0.220095, abs=1e-6)
    cosine = torch.nn.functional.normalize(QUERIES, dim=-1) @ torch.nn.functional.normalize(CANDIDATES, dim=-1).T
    assert info_nce(cosine, OWN, mask, inverse_temperature=20).item() == pytest.approx(0.005698, abs=1e-6)


def test_contrastive_loss_moma_o5():
    queries = torch.tensor([[1.0, 0], [0, 2]])
    candidates = torch.tensor([[1.0, 0], [0, 1], [0.5, 0.5], [0, 1], [1, 1], [1, 0]])
    scores = queries @ candidates.T
    assert info_nce(scores, torch.tensor([0, 3])).item() == pytest.approx(1.379993, abs=1e-6)
    own = torch.stack([scores[0, :3], scores[1, 3:]])
    assert info_nce(own, torch.tensor([0, 0])).item() == pytest.approx(0.719447, abs=1e-6)


def test_margin_mse_ddr_o5():
    teacher = torch.tensor([[10.0, 2, 4, -1]])
    query, documents = torch.tensor([[1.0, 2]]), torch.tensor([[[3.0, 1], [1, 0], [0, 1], [-1, 1]]])

    def loss(query: torch.Tensor, documents: torch.Tensor) -> float:
        batch = Encoded(0, query, documents, None, teacher)
        return ScoreLoss("margin_mse")(batch)["margin_mse"].item()

    assert loss(query, documents) == pytest.approx(24.666667, abs=1e-5)
    assert loss(unit_length(query), unit_length(documents)) == pytest.approx(70.248543, abs=1e-5)  # cosines


def test_kl_distillation_moma_o4():
    gold, student = torch.tensor([[1.644195, 0.622950], [2.0, 1.0]]).double().split(1)
    assert kl_distillation(student, gold).item() == pytest.approx(4.40813e-05, abs=1e-8)
    assert kl_distillation(student, gold, teacher_temperature=0.1).item() == pytest.approx(0.312887, abs=1e-5)
    assert kl_distillation(student, student).item() == pytest.approx(0.0, abs=1e-7)


def test_masked_candidates_get_no_gradient():
    scores = (QUERIES @ CANDIDATES.T).requires_grad_()
    info_nce(scores, OWN, known_positive_mask(known_of(IDS, [{"5"}, {"6", "8"}]), len(IDS), OWN)).backward()
    assert scores.grad[0, 4] == 0 and scores.grad[1, 3] == 0 and (scores.grad != 0).sum() == 10
