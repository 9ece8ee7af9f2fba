"""Weights of clusters of examples: iDRO (COCO-DR section 4.2), its released code, and what it is compared with.

Notation: K clusters; `losses` (K,) are their means, `present` (K,) bool says which of them the batch holds; absent ones
have loss 0 and no gradient. All vectors are float64 where the caller gives float64, and no input is changed.
"""

import math

import torch
from torch import Tensor

SMALLEST = 1e-8  # losses below count as this much before they are raised to a power
TINY = 1e-300
LOG_RANGE, HALVINGS = 12.0, 48  # natural logarithms around the spread of sums, and steps of the search for T


def loss_powers(losses: Tensor, present: Tensor, beta: float) -> Tensor:
    """alpha_k = losses_k^beta of present clusters, 0 of absent ones (COCO-DR eq. 6).

    Args:
        losses: (K,) cluster means, at least 0.
        present: (K,) bool.
        beta: exponent.

    Returns:
        (K,), without gradient.

    >>> loss_powers(torch.tensor([4.0, 9.0, 0.0]), torch.tensor([True, True, False]), beta=0.5).tolist()
    [2.0, 3.0, 0.0]
    """
    return losses.detach().clamp(min=SMALLEST).pow(beta) * present


def cosines(gram: Tensor) -> Tensor:
    """Cosines of gradients from their inner products, (K, K) -> (K, K); a zero gradient has cosine 0 with all.

    >>> cosines(torch.tensor([[4.0, 2.0], [2.0, 4.0]])).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    norms = gram.diagonal().clamp(min=0).sqrt()
    scale = torch.where(norms > 0, 1 / norms, torch.zeros_like(norms))
    return gram * scale[:, None] * scale[None, :]


def similarities(gram: Tensor, alpha: Tensor) -> Tensor:
    """r_ij = alpha_i alpha_j g_i.g_j (COCO-DR eq. 12), or of cosines where `gram` holds them.

    Args:
        gram: (K, K) inner products of the clusters' gradients.
        alpha: (K,) powers of losses, not normalised.

    Returns:
        (K, K).

    >>> similarities(torch.tensor([[1.0, 0.5], [0.5, 1.0]]), torch.tensor([2.0, 4.0])).tolist()
    [[4.0, 4.0], [4.0, 16.0]]
    """
    return alpha[:, None] * gram * alpha[None, :]


def row_sums(similarity: Tensor, exclude_self: bool = False) -> Tensor:
    """s_i = sum_j r_ij, (K, K) -> (K,); without r_ii, which is mostly noise in small clusters, if asked.

    >>> matrix = torch.tensor([[4.0, 4.0], [4.0, 16.0]])
    >>> row_sums(matrix).tolist(), row_sums(matrix, exclude_self=True).tolist()
    ([8.0, 20.0], [4.0, 4.0])
    """
    sums = similarity.sum(1)
    return sums - similarity.diagonal() if exclude_self else sums


def update_weights(
    omega: Tensor, sums: Tensor, present: Tensor, kappa: float = 1.0, temperature: float = 1.0
) -> Tensor:
    """omega_i ~ omega_i^kappa exp(s_i / T): COCO-DR eq. 11 where kappa is 1.

    Absent clusters keep their weight, present ones share what they had together. It minimises
    -omega.s + T1 KL(omega | previous) + T2 KL(omega | uniform) with T = T1 + T2 and kappa = T1 / T.

    Args:
        omega: (K,) weights before, sum 1.
        sums: (K,) s; of absent clusters it does not count.
        present: (K,) bool.
        kappa: 1 remembers everything, 0 only this step.
        temperature: T.

    Returns:
        (K,), sum 1.

    >>> omega, present = torch.tensor([0.25, 0.25, 0.5]), torch.tensor([True, True, False])
    >>> update_weights(omega, torch.tensor([3.0, 1.0, 0.0]).log(), present).round(decimals=3).tolist()
    [0.375, 0.125, 0.5]
    """
    scores = kappa * omega.clamp(min=TINY).log() + torch.where(present, sums, torch.zeros_like(sums)) / temperature
    shared = torch.softmax(scores.masked_fill(~present, float("-inf")), 0) * omega[present].sum()
    updated = torch.where(present, shared, omega)
    return updated / updated.sum()


def effective_share(weights: Tensor) -> float:
    """Return exp(entropy) of weights, (K,), as a share of K: 1 where all are equal.

    >>> effective_share(torch.tensor([0.5, 0.5, 0.0, 0.0]))
    0.5
    """
    shares = weights[weights > 0] / weights.sum()
    return float((-(shares * shares.log()).sum()).exp()) / len(weights)


def acting_temperature(sums: Tensor, share: float) -> float:
    """Find T at which softmax(sums / T), (K,), are weights of `share` of the clusters; infinite for equal sums.

    >>> round(acting_temperature(torch.tensor([1.0, 0.0, 0.0, 0.0]).double(), 0.7), 3)
    0.58
    """
    spread = float(sums.max() - sums.min())
    if spread <= 0 or share * len(sums) <= 1:
        return float("inf") if spread <= 0 else spread * TINY
    low, high = math.log(spread) - LOG_RANGE, math.log(spread) + LOG_RANGE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        acts = effective_share(torch.softmax(sums / math.exp(middle), 0)) < share
        low, high = (middle, high) if acts else (low, middle)
    return math.exp(high)


def steered_update(
    omega: Tensor, added: Tensor, sums: Tensor, present: Tensor, kappa: float, share: float, progress: float, ends: int
) -> tuple[Tensor, Tensor, float]:
    """Update as `update_weights`, with the temperature that leads to `share` at the end.

    Similarities are added up, `added`_k <- kappa `added`_k + s_k, in differences from the present clusters' mean; so
    omega is softmax(added / T) with a T that all steps so far share. With kappa 1 sums grow with the steps, and T is
    the one at which their growth to the episode's end leaves `share` effective; with less they have no such growth.

    Args:
        omega, sums, present: (K,) as in `update_weights`.
        added: (K,) similarities added up before this step.
        share: effective share of clusters at the end.
        progress: steps after this one, as a share of `ends`.
        ends: steps of the episode.

    Returns:
        omega (K,), added (K,), T.

    >>> omega, present = torch.full((4,), 0.25).double(), torch.ones(4, dtype=torch.bool)
    >>> sums = torch.tensor([1.0, 0.0, 0.0, 0.0]).double()
    >>> halfway = steered_update(omega, torch.zeros(4), sums, present, kappa=1.0, share=0.7, progress=0.5, ends=2)
    >>> halfway[1].tolist(), round(halfway[2], 2)  # at the end twice as much is added
    ([0.75, -0.25, -0.25, -0.25], 1.16)
    >>> omega, _, temperature = steered_update(*halfway[:2], sums, present, 1.0, share=0.7, progress=1.0, ends=2)
    >>> round(effective_share(omega), 2)
    0.7
    """
    held = omega[present] if omega[present].any() else torch.ones_like(omega[present])  # they may all underflow
    mean = (held * sums[present]).sum() / held.sum()
    added = torch.where(present, kappa * added + sums - mean, added)
    done = max(1.0, progress * ends)
    growth = ends / done if kappa == 1 else (1 - kappa**ends) / (1 - kappa**done)
    temperature = acting_temperature(added * growth, share)
    return torch.softmax(added / temperature, 0), added, temperature


def official_update(weights: Tensor, sums: Tensor, present: Tensor, rho: float, ema: float, floor: float) -> Tensor:
    """Update as the released code: h^ema exp(rho mean_j r_ij) on present ones, sum 1, then at least `floor`.

    Args:
        weights: (K,) h before; ones at the start.
        sums: (K,) row sums of the cosine similarities.
        present: (K,) bool; absent clusters fall to `floor`.
        rho: 1 / temperature of the row means over all K clusters.
        ema: exponent on the weights before.
        floor: least weight; the sum exceeds 1 when it acts.

    Returns:
        (K,).

    >>> weights, present = torch.ones(3).double(), torch.tensor([True, True, False])
    >>> official_update(weights, torch.zeros(3), present, rho=0.05, ema=0.1, floor=0.01).tolist()
    [0.5, 0.5, 0.01]
    """
    scores = torch.where(present, sums * (rho / len(sums)), torch.zeros_like(sums))
    updated = weights.pow(ema) * (scores - scores.max()).exp() * present
    return (updated / updated.sum()).clamp(min=floor)


def group_dro_update(weights: Tensor, losses: Tensor, present: Tensor, eta: float) -> Tensor:
    """q_k ~ q_k exp(eta loss_k) (Sagawa et al. 2020, algorithm 1), (K,) -> (K,); absent ones as in `update_weights`.

    >>> omega, present = torch.tensor([0.5, 0.5]), torch.tensor([True, True])
    >>> group_dro_update(omega, torch.tensor([3.0, 1.0]).log(), present, eta=1.0).round(decimals=3).tolist()
    [0.75, 0.25]
    """
    return update_weights(weights, losses, present, 1.0, 1.0 / eta)


def balanced_weights(present: Tensor) -> Tensor:
    """Give each present cluster the same weight, sum 1, (K,) bool -> (K,) float64: the control without gradients.

    >>> balanced_weights(torch.tensor([True, True, False])).tolist()
    [0.5, 0.5, 0.0]
    """
    return present.double() / present.sum()


def loss_weights(omega: Tensor, alpha: Tensor, present: Tensor, normalise: bool = True) -> Tensor:
    """alpha_k omega_k, factors of the clusters' losses (COCO-DR eq. 5); scaled to sum 1 over present clusters if asked.

    Where all products are 0, omega is left out, then alpha: an omega that underflows, or losses of 0, would be 0 / 0.

    Args:
        omega: (K,) weights; alpha: (K,); present: (K,) bool.

    Returns:
        (K,), 0 for absent clusters.

    >>> omega, alpha = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([1.0, 2.0, 5.0])
    >>> loss_weights(omega, alpha, torch.tensor([True, True, False])).tolist()
    [0.5, 0.5, 0.0]
    """
    weights = alpha * omega * present
    if not normalise:
        return weights
    weights = next(one for one in (weights, alpha * present, present.to(alpha)) if one.any())
    return weights / weights.sum()
