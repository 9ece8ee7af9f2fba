"""ADist: a retriever learns how another model's attention is spread over documents (specs/moma 8; FiD-KD, Atlas)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

Reduction = Literal["sum", "mean"]


def attention_distillation(scores: Tensor, attention: Tensor, gold_temperature: float = 1.0,
                           score_temperature: float = 1.0, reduction: Reduction = "sum") -> Tensor:  # fmt: skip
    """KL(softmax(attention / T_g) || softmax(scores / T_s)) over each query's documents, in nats.

    Args:
        scores: (B, K) similarities of the student.
        attention: (B, K) scores of the teacher, such as FidAtt.
        gold_temperature: T_g.
        score_temperature: T_s.
        reduction: `sum` over documents, mean over queries; `mean` over both, as torch's KLDivLoss by default.

    Returns:
        float32 scalar.
    """
    target = F.softmax(attention.float() / gold_temperature, dim=-1)
    made = F.log_softmax(scores.float() / score_temperature, dim=-1)
    return F.kl_div(made, target, reduction="batchmean" if reduction == "sum" else "mean")
