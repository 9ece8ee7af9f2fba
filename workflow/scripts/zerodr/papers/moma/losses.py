"""ADist: a retriever learns how another model's attention is spread over documents (FiD-KD, Atlas)."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Reduction = Literal["sum", "mean"]


def attention_distillation(
    scores: Tensor,
    attention: Tensor,
    gold_temperature: float = 1.0,
    score_temperature: float = 1.0,
    reduction: Reduction = "sum",
) -> Tensor:
    """KL(softmax(attention / T_g) || softmax(scores / T_s)) over each query's documents, in nats.

    Args:
        scores: (B, K) similarities of the student.
        attention: (B, K) scores of the teacher, such as FidAtt.
        gold_temperature: T_g.
        score_temperature: T_s.
        reduction: `sum` over documents, mean over queries; `mean` over both, as the code of FiD-KD.

    Returns:
        scalar in float32 or wider.

    >>> scores = torch.tensor([[1.0, 2.0, 3.0]])
    >>> alike, unlike = (attention_distillation(scores, attention) for attention in (scores, -scores))
    >>> abs(round(float(alike), 4)), round(float(unlike), 4)
    (0.0, 1.1504)
    """
    target = F.softmax(_wide(attention) / gold_temperature, dim=-1)
    log_probabilities = F.log_softmax(_wide(scores) / score_temperature, dim=-1)
    terms = F.kl_div(log_probabilities, target, reduction="none")
    return terms.sum(-1).mean() if reduction == "sum" else terms.mean()


def _wide(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
