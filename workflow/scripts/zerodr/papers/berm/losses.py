"""BERM: unit embeddings, semantic unit balance (R1) and extractability of the essential unit (R2)  # BERM section 4.2

A unit is a sentence of a passage. Everything is float32 and differentiable in query, passage and units. Samples that
say nothing (one unit; no label) are left out of means, and an empty mean is 0 with a zero gradient.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100
LEAST_UNITS = 2
Similarity = Literal["dot", "cosine"]


def pool_units(states: Tensor, unit_ids: Tensor, units: int) -> tuple[Tensor, Tensor]:
    """Mean of the token states of each unit  # BERM eq. 3

    Args:
        states: (B, T, D) last hidden states.
        unit_ids: (B, T) unit of each token, -1 where it belongs to none (padding, special tokens, titles).
        units: U, more than every unit id.

    Returns:
        (B, U, D) float32 with zeros for units without a token, and (B, U) bool: units with a token.

    >>> states = torch.tensor([[[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]]])
    >>> vectors, valid = pool_units(states, torch.tensor([[0, 0, -1]]), units=2)
    >>> vectors.tolist(), valid.tolist()
    ([[[2.0, 0.0], [0.0, 0.0]]], [[True, False]])
    """
    chosen = functional.one_hot(unit_ids + 1, units + 1)[..., 1:].float()  # (B, T, U)
    counts = chosen.sum(1)  # (B, U)
    sums = torch.einsum("btu,btd->bud", chosen, states.float())
    return sums / counts.clamp(min=1.0).unsqueeze(-1), counts > 0


def unit_scores(vectors: Tensor, units: Tensor, similarity: Similarity = "dot", temperature: float = 1.0) -> Tensor:
    """Similarity of a vector with each unit of its passage, over the temperature. (B, D), (B, U, D) -> (B, U).

    >>> unit_scores(torch.tensor([[1.0, 2.0]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])).tolist()
    [[1.0, 2.0]]
    """
    vectors, units = vectors.float(), units.float()
    if similarity == "cosine":
        vectors, units = functional.normalize(vectors, dim=-1), functional.normalize(units, dim=-1)
    return torch.einsum("bd,bud->bu", vectors, units) / temperature


def matching_vector(queries: Tensor, passages: Tensor, scaled: bool = False) -> Tensor:
    """GELU of the element-wise product, with the exact error function  # BERM section 4.2; (B, D), (B, D) -> (B, D)

    `scaled`: of vectors of length sqrt(D), whose components are about 1, where GELU gates.

    >>> vector = matching_vector(torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0, 2.0]]))[0]
    >>> [round(value, 3) for value in vector.tolist()]
    [1.954, -0.046]
    """
    queries, passages = queries.float(), passages.float()
    if scaled:
        queries, passages = (functional.normalize(x, dim=-1) * x.shape[-1] ** 0.5 for x in (queries, passages))
    return functional.gelu(queries * passages)


def unit_balance(
    passages: Tensor,
    units: Tensor,
    valid: Tensor,
    over_units: Literal["sum", "mean"] = "sum",
    similarity: Similarity = "dot",
    temperature: float = 1.0,
) -> Tensor:
    """KL(uniform || b) with b the softmax of a passage's similarity with its units, in nats  # BERM eq. 4

    -ln n - (1/n) sum_i ln b_i; at least 0, and 0 for n = 1.

    Args:
        passages: (B, D).
        units: (B, U, D).
        valid: (B, U) bool.
        over_units: `mean` divides by n once more, as the released code does.

    Returns:
        (B,), 0 where fewer than two units are valid.

    >>> passage, valid = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, True]])
    >>> even, uneven = torch.tensor([[[1.0, 0.0], [1.0, 1.0]]]), torch.tensor([[[3.0, 0.0], [0.0, 1.0]]])
    >>> [round(float(unit_balance(passage, units, valid)), 4) for units in (even, uneven)]
    [0.0, 0.8554]
    """
    counts = valid.sum(-1)
    shares = _log_softmax(unit_scores(passages, units, similarity, temperature), valid)
    size = counts.clamp(min=1).float()
    divergence = -size.log() - shares.masked_fill(~valid, 0.0).sum(-1) / size
    divergence = divergence / size if over_units == "mean" else divergence
    return torch.where(counts >= LEAST_UNITS, divergence, 0.0)


def unit_extraction(
    queries: Tensor,
    passages: Tensor,
    units: Tensor,
    valid: Tensor,
    labels: Tensor,
    softmaxes: Literal[1, 2] = 1,
    similarity: Similarity = "dot",
    temperature: float = 1.0,
    scaled: bool = False,
) -> Tensor:
    """Cross entropy of the essential unit among a passage's units, read by the matching vector  # BERM eq. 5

    Args:
        queries, passages: (B, D).
        units: (B, U, D).
        valid: (B, U) bool.
        labels: (B,) the essential unit, -100 where there is none.
        softmaxes: 2 takes the cross entropy of probabilities, as the released code does: bounded and with a gradient
            that vanishes for confident predictions.
        scaled: as in `matching_vector`.

    Returns:
        (B,) in nats, 0 where the label is -100 or names a unit that is not valid.

    >>> query, passage = torch.tensor([[1.0, 1.0]]), torch.tensor([[3.0, 0.0]])
    >>> units, valid = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[True, True]])
    >>> losses = [unit_extraction(query, passage, units, valid, torch.tensor([unit])) for unit in (0, 1, -100)]
    >>> [round(float(loss), 4) for loss in losses]
    [0.0488, 3.0447, 0.0]
    """
    shares = _log_softmax(
        unit_scores(matching_vector(queries, passages, scaled), units, similarity, temperature), valid
    )
    if softmaxes == 2:
        shares = _log_softmax(shares.exp(), valid)
    counted, indices = labelled(valid, labels), labels.clamp(min=0)
    chosen = shares.gather(-1, indices.unsqueeze(-1)).squeeze(-1)
    return torch.where(counted, -chosen, 0.0)


def labelled(valid: Tensor, labels: Tensor) -> Tensor:
    """Samples that R2 counts: the label names a valid unit. (B, U), (B,) -> (B,) bool.

    >>> labelled(torch.tensor([[True, True], [True, False], [True, True]]), torch.tensor([1, 1, -100])).tolist()
    [True, False, False]
    """
    return (labels != IGNORED) & valid.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)


def balanced(valid: Tensor) -> Tensor:
    """Samples that R1 counts: at least two valid units. (B, U) -> (B,) bool.

    >>> balanced(torch.tensor([[True, True], [True, False]])).tolist()
    [True, False]
    """
    return valid.sum(-1) >= LEAST_UNITS


def mean_over(losses: Tensor, counted: Tensor) -> Tensor:
    """Mean over the counted samples; 0, with a zero gradient, where there is none. (B,), (B,) bool -> scalar.

    >>> float(mean_over(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([True, False, True])))
    2.0
    """
    return losses.masked_fill(~counted, 0.0).sum() / counted.sum().clamp(min=1)


def mean_without_last(losses: Tensor, valid: Tensor) -> Tensor:
    """Mean as in the released code: the last passage with a unit adds nothing, but counts.

    Args:
        losses: (B,), 0 for those that say nothing.
        valid: (B, U) bool.

    Returns:
        scalar: sum over all passages with a unit but the last, over 1 + their number.

    >>> float(mean_without_last(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([[True], [True], [True]])))
    2.0
    """
    having = valid.any(-1)
    after = having.flip(0).cumsum(0).flip(0)  # passages with a unit from here on
    counted = having & (after > 1)
    return losses.masked_fill(~counted, 0.0).sum() / (1 + counted.sum())


def r1(
    passages: Tensor,
    units: Tensor,
    valid: Tensor,
    over_units: Literal["sum", "mean"] = "sum",
    similarity: Similarity = "dot",
    temperature: float = 1.0,
    skips_last: bool = False,
) -> Tensor:
    """Semantic unit balance: mean of `unit_balance` over passages of at least two units; scalar.

    With `skips_last` it is `mean_without_last`.

    >>> passages, valid = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, True]])
    >>> round(float(r1(passages, torch.tensor([[[3.0, 0.0], [0.0, 1.0]]]), valid)), 4)
    0.8554
    """
    losses = unit_balance(passages, units, valid, over_units, similarity, temperature)
    return mean_without_last(losses, valid) if skips_last else mean_over(losses, balanced(valid))


def r2(
    queries: Tensor,
    passages: Tensor,
    units: Tensor,
    valid: Tensor,
    labels: Tensor,
    softmaxes: Literal[1, 2] = 1,
    similarity: Similarity = "dot",
    temperature: float = 1.0,
    skips_last: bool = False,
    scaled: bool = False,
) -> Tensor:
    """Extractability of the essential unit: mean of `unit_extraction` over samples with a label; scalar.

    With `skips_last` it is `mean_without_last`.

    >>> queries, passages = torch.tensor([[1.0, 1.0]]), torch.tensor([[3.0, 0.0]])
    >>> units, valid = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[True, True]])
    >>> round(float(r2(queries, passages, units, valid, torch.tensor([1]))), 4)
    3.0447
    """
    losses = unit_extraction(queries, passages, units, valid, labels, softmaxes, similarity, temperature, scaled)
    return mean_without_last(losses, valid) if skips_last else mean_over(losses, labelled(valid, labels))


def _log_softmax(scores: Tensor, valid: Tensor) -> Tensor:
    """Over valid units; finite everywhere, so that masked places have a zero gradient and no NaN."""
    return functional.log_softmax(scores.masked_fill(~valid, torch.finfo(scores.dtype).min), dim=-1)
