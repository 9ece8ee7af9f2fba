"""Compute contrastive losses: ANCE's pairwise likelihood, and InfoNCE over in-batch and hard negatives (DPR, DDR)."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Reduction = Literal["mean", "none"]


def pairwise_nll(queries: Tensor, positives: Tensor, negatives: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Compute the two-way softmax loss of a positive and a negative (ANCE; specs/modir-ance 2.2), mean over the batch.

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


def known_positive_mask(query_positives: list[set[str]], candidates: list[str], positive: Tensor) -> Tensor:
    """Mark candidates that must not count as negatives: True where one is another known positive of the query.

    Args:
        query_positives: for each of N queries the ids of all its known positives.
        candidates: ids of the M candidate documents, in column order.
        positive: (N,) column of each query's positive, which is never masked.

    Returns:
        (N, M) bool. Other copies of this positive in the batch are masked too.
    """
    mask = torch.zeros(len(query_positives), len(candidates), dtype=torch.bool)
    columns: dict[str, list[int]] = {}
    for column, candidate in enumerate(candidates):
        columns.setdefault(candidate, []).append(column)
    for row, positives in enumerate(query_positives):
        for document in positives:
            mask[row, columns.get(document, [])] = True
    mask[torch.arange(len(query_positives)), positive.cpu()] = False
    return mask


def info_nce(
    scores: Tensor,
    positive: Tensor,
    masked: Tensor | None = None,
    inverse_temperature: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Compute the cross entropy of each query's positive among all candidates (DDR 3.1), mean over queries.

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
