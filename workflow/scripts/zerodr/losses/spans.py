"""Compute COCO's contrastive loss over the spans of a batch, and two measures of the resulting space."""

import math

import torch
from torch import Tensor
from torch.nn import functional


def span_contrastive(vectors: Tensor, inverse_temperature: float = 1.0) -> Tensor:
    """Compute the cross entropy of each span's partner among all other spans (COCO-DR eq. 4).

    -log exp(s_ap) / sum_{b != a} exp(s_ab) for anchor a with partner p, s the inner product, in nats. The positive is
    in the denominator, as in the released code; the paper's eq. 4, read literally, leaves it out.

    Args:
        vectors: (2N, D), spans of one document next to each other.
        inverse_temperature: factor on similarities.

    Returns:
        float32 scalar, the mean over 2N anchors.
    """
    count = len(vectors)
    scores = (vectors @ vectors.T).float() * inverse_temperature  # (2N, 2N)
    diagonal = torch.eye(count, dtype=torch.bool, device=vectors.device)
    partners = torch.arange(count, device=vectors.device) ^ 1
    return functional.cross_entropy(scores.masked_fill(diagonal, float("-inf")), partners)


def alignment(vectors: Tensor) -> Tensor:
    """Compute the mean squared distance of a pair's two unit vectors, in [0, 4] (Wang and Isola 2020).

    Args:
        vectors: (2N, D), pairs next to each other.
    """
    unit = functional.normalize(vectors.float(), dim=-1)
    return (unit[0::2] - unit[1::2]).square().sum(-1).mean()


def uniformity(vectors: Tensor) -> Tensor:
    """Compute the log mean of exp(-2 d^2) over all pairs of different unit vectors, in [-8, 0] (Wang and Isola 2020).

    Args:
        vectors: (M, D), M at least 2; one of each document, so that partners are not among the pairs.
    """
    unit = functional.normalize(vectors.float(), dim=-1)
    distances = functional.pdist(unit).square()
    return torch.logsumexp(-2.0 * distances, 0) - math.log(len(distances))
