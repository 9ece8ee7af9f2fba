"""Compute contrastive losses: ANCE's pairwise likelihood, and InfoNCE over in-batch and hard negatives (DPR, DDR)."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Reduction = Literal["mean", "none"]


def pairwise_nll(queries: Tensor, positives: Tensor, negatives: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Compute the two-way softmax loss of a positive and a negative (ANCE's released code), mean over the batch.

    `log(1 + exp(q.n - q.p))` in nats.

    Args:
        queries, positives, negatives: (..., D).
        reduction: `none` gives each triple's loss.

    Returns:
        scalar, or (...).
    """
    margin = (queries * (negatives - positives)).sum(-1)  # (...)
    losses = F.softplus(margin)
    return losses.mean() if reduction == "mean" else losses


def known_positive_mask(known: Tensor, candidates: int, positive: Tensor) -> Tensor:
    """Mark candidates that must not count as negatives: True where one is another known positive of the query.

    Args:
        known: (n, 2) int64, query and column of each known positive of a query that is among the candidates.
        candidates: M columns.
        positive: (N,) column of each query's positive, which is never masked.

    Returns:
        (N, M) bool on the device of `known`. Other copies of this positive in the batch are masked too.
    """
    mask = torch.zeros(len(positive) * candidates, dtype=torch.bool, device=known.device)
    unmasked = torch.arange(len(positive)) * candidates + positive
    mask.index_fill_(0, known[:, 0] * candidates + known[:, 1], True)
    return mask.index_fill_(0, unmasked.to(known.device, non_blocking=True), False).view(len(positive), candidates)


def info_nce(
    scores: Tensor,
    positive: Tensor,
    masked: Tensor | None = None,
    inverse_temperature: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Compute the cross entropy of each query's positive among all candidates (DDR section 4.3), mean over queries.

    Args:
        scores: (N, M) similarities of queries and candidates.
        positive: (N,) column of the positive.
        masked: (N, M) bool, True where a candidate does not count; never at the positive.
        inverse_temperature: factor on the scores.
        reduction: `none` gives each query's loss.

    Returns:
        scalar in nats, or (N,).
    """
    logits = scores * inverse_temperature
    if masked is not None:
        logits = logits.masked_fill(masked.to(logits.device, non_blocking=True), float("-inf"))
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits, positive.to(logits.device, non_blocking=True), reduction=reduction)
