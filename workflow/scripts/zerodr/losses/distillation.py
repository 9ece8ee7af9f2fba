"""Compute losses of distillation from a cross-encoder: Margin-MSE (DDR section 4.3) and KL divergence."""

import torch
from torch import Tensor
from torch.nn import functional as F


def margin_mse(student: Tensor, teacher: Tensor, inverse_temperature: float = 1.0) -> Tensor:
    """Compute the mean squared difference of signed margins, over queries and negatives.

    Args:
        student: (B, 1 + K) scores, the positive first.
        teacher: (B, 1 + K) scores of the same documents, on a logit scale.
        inverse_temperature: multiplies the student's scores only, as in DDR's code; cosines need one to reach logits.

    Returns:
        scalar in squared score units.
    """
    margins = student[:, :1] - student[:, 1:]  # (B, K)
    targets = teacher[:, :1] - teacher[:, 1:]
    return F.mse_loss(inverse_temperature * _wide(margins), _wide(targets))


def kl_distillation(
    student: Tensor, teacher: Tensor, teacher_temperature: float = 1.0, inverse_temperature: float = 1.0
) -> Tensor:
    """Compute KL(teacher || student) of softmax distributions over each query's documents, mean over queries.

    Args:
        student: (B, K) scores.
        teacher: (B, K) scores.
        teacher_temperature: divides the teacher's scores only.
        inverse_temperature: factor on the student's scores; cosines need one.

    Returns:
        scalar in nats.
    """
    target = F.softmax(_wide(teacher) / teacher_temperature, dim=-1)
    return F.kl_div(F.log_softmax(_wide(student) * inverse_temperature, dim=-1), target, reduction="batchmean")


def _wide(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
