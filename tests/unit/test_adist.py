"""ADist: numbers worked out apart from the code, and what the objective makes of labels."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from tests.unit.training_helpers import known_of

from zerodr.papers.moma.losses import attention_distillation
from zerodr.papers.moma.settings import AugmenterObjective
from zerodr.training.objectives.base import Encoded
from zerodr.training.objectives.ranking import make_objective

ATTENTION = torch.tensor([[1.644195, 0.622950]], dtype=torch.float64)
SCORES = torch.tensor([[2.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("gold", "reduction", "expected"), [(1.0, "sum", 4.40813e-05), (1.0, "mean", 2.20407e-05), (0.1, "sum", 0.312887)]
)
def test_the_divergence_of_two_documents(gold, reduction, expected):
    made = attention_distillation(SCORES, ATTENTION, gold, 1.0, reduction)
    assert made.item() == pytest.approx(expected, rel=1e-4)


def test_temperatures_divide():
    one = attention_distillation(SCORES, ATTENTION, 0.5, 0.25)
    assert one == pytest.approx(attention_distillation(SCORES * 4, ATTENTION * 2).item())
    assert attention_distillation(ATTENTION * 3, ATTENTION, 1.0, 3.0).item() == pytest.approx(0.0, abs=1e-6)


def batch(positives: set[str]) -> Encoded:
    queries = torch.tensor([[1.0, 0.0]])
    documents = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]])
    known = known_of(["label", "a", "b"], [positives])
    return Encoded(0, queries, documents, known, torch.tensor([[0.0, 2.0, 1.0]]))


def test_the_objective_reads_the_retrieved_documents_alone():
    made = make_objective(AugmenterObjective(name="adist", negatives_per_query=2))(batch({"label"}))
    expected = attention_distillation(torch.tensor([[0.5, 0.0]]), torch.tensor([[2.0, 1.0]]))
    assert set(made) == {"adist"} and made["adist"].item() == pytest.approx(expected.item())


def test_labels_compete_with_retrieved_documents_that_are_not_labels():
    settings = AugmenterObjective(name="adist", negatives_per_query=2, labels=True)
    plain = make_objective(settings)(batch({"label"}))["info_nce"]
    known = make_objective(settings)(batch({"label", "a"}))["info_nce"]
    scores = torch.tensor([1.0, 0.5, 0.0])
    assert plain.item() == pytest.approx((torch.logsumexp(scores, 0) - 1.0).item())
    assert known.item() == pytest.approx((torch.logsumexp(scores[[0, 2]], 0) - 1.0).item())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "kl", "student_temperature": 2}, "student_temperature is not for kl"),
        ({"name": "pairwise_nll", "labels": True}, "labels is not for pairwise_nll"),
        ({"name": "adist", "inverse_temperature": 2}, "inverse_temperature is not for adist"),
    ],
)
def test_options_that_the_loss_does_not_read_are_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        AugmenterObjective(**given)
    assert AugmenterObjective(name="adist", labels=True, inverse_temperature=2).labels
