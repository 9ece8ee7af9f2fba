"""Measure how far source and target lie apart as embeddings (MoDIR sections 4.4, 4.5). Pure functions of vectors.

Domain-Acc is the accuracy of a classifier of domains on vectors that it has not seen: 0.5 where nothing separates them
apart, on as many vectors of one domain as of the other. KNN-Source% is the share of source documents among the nearest
documents of a target query; mixed perfectly it is the source's share of all documents, the base rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from zerodr.papers.modir.domain_classifier import logistic_regression

KINDS = ("queries", "documents")
TRAINED = 0.7  # share of the vectors that the classifier learns from
RATE, ROUNDS, BATCH = 5e-4, 500, 48  # of the released code
L2 = 1e-3


@dataclass(frozen=True)
class Split:
    """Vectors of one kind, as many of the source as of the target.

    Attributes:
        train: (2n, D), the first half source.
        test: (2m, D), the first half source.
    """

    train: Tensor
    test: Tensor


def split(source: Tensor, target: Tensor, seed: Sequence[int] = (0,)) -> Split:
    """Choose as many vectors of the larger domain at random, 70 % of both to learn from. Both are shuffled alike.

    Args:
        source: (N, D); target: (M, D); at least 2 of each.
    """
    count = min(len(source), len(target))
    cut = min(max(1, int(TRAINED * count)), count - 1)
    chosen = [x[_shuffle(len(x), seed)][:count] for x in (source, target)]
    return Split(torch.cat([x[:cut] for x in chosen]), torch.cat([x[cut:] for x in chosen]))


def domain_accuracy(
    source: Mapping[str, Tensor], target: Mapping[str, Tensor], seed: Sequence[int] = (0,)
) -> dict[str, float]:
    """Compute global Domain-Acc by two fresh linear classifiers, each of queries and documents together.

    `released`: 500 rounds of Adam at 5e-4, one batch of 48 queries and one of 48 documents each, from weights of zero,
    so that the names of the domains make no difference. `converged`: logistic regression with bias and a small penalty.

    Args:
        source, target: vectors (N, D) of `queries` and `documents`, or of one kind.

    Returns:
        `domain_accuracy_<classifier>_<kind>`, in [0, 1].
    """
    splits = {kind: split(source[kind], target[kind], seed) for kind in KINDS if kind in source and kind in target}
    weights = {"released": _few_rounds(splits, seed), "converged": _converged(splits)}
    return {
        f"domain_accuracy_{name}_{kind}": accuracy(_margins(sample.test, classifier))
        for name, classifier in weights.items()
        for kind, sample in splits.items()
    }


def accuracy(margins: Tensor) -> float:
    """Compute the share of margins (2m,) that are right, the first half being source; 0 counts half."""
    right = torch.where(_labels(len(margins), margins), margins > 0, margins < 0).double() + 0.5 * (margins == 0)
    return float(right.mean())


def knn_source(queries: Tensor, source: Tensor, target: Tensor, k: int = 100) -> Tensor:
    """Compute the share of source documents among the k nearest documents of each query by inner product, (Q,).

    Args:
        queries: (Q, D) of the target; source: (N, D) documents; target: (M, D) documents. Of equal scores the source's
            documents come last.
    """
    scores = torch.cat([queries @ target.T, queries @ source.T], 1)
    k = min(k, scores.shape[1])
    best = torch.argsort(scores, dim=1, descending=True, stable=True)[:, :k]
    return (best >= len(target)).double().mean(1)


def base_rate(source: int, target: int) -> float:
    """Compute KNN-Source% of a perfect mixture of so many documents."""
    return source / (source + target)


def nearest(queries: Tensor, others: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Select the k vectors of highest inner product with each query: scores and positions, (Q, k) each."""
    best = (queries @ others.T).topk(min(k, len(others)), dim=1)
    return best.values, best.indices


def _shuffle(count: int, seed: Sequence[int]) -> Tensor:
    import numpy as np

    return torch.from_numpy(np.random.default_rng(list(seed)).permutation(count))


def _labels(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device) < count // 2


def _margins(vectors: Tensor, weights: Tensor) -> Tensor:
    return vectors.double() @ weights[:-1].double() + weights[-1].double()


def _few_rounds(splits: Mapping[str, Split], seed: Sequence[int]) -> Tensor:
    """Weights of a margin and a bias of 0; the margin of two rows moves at twice their rate."""
    dimension = next(iter(splits.values())).train.shape[1]
    weights = torch.zeros(dimension, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=2 * RATE)
    for number in range(ROUNDS):
        for kind, sample in splits.items():
            half = len(sample.train) // 2
            drawn = _shuffle(half, [*seed, number, KINDS.index(kind)])[: BATCH // 2]
            rows = sample.train[torch.cat([drawn, drawn + half])].double()
            signs = _labels(len(rows), rows).double() * 2 - 1
            loss = torch.nn.functional.softplus(-signs * (rows @ weights)).mean()
            (weights.grad,) = torch.autograd.grad(loss, weights)
            optimizer.step()
    return torch.cat([weights.detach(), weights.new_zeros(1)])


def _converged(splits: Mapping[str, Split]) -> Tensor:
    """Fit weights and bias on vectors around 0 of length 1 on average."""
    rows = torch.cat([sample.train for sample in splits.values()]).double()
    source = torch.cat([_labels(len(sample.train), sample.train) for sample in splits.values()])
    centre = rows.mean(0)
    scale = (rows - centre).square().sum(1).mean().sqrt().clamp(min=1e-12)
    fitted = logistic_regression(torch.cat([(rows - centre) / scale, torch.ones_like(rows[:, :1])], 1), source, L2)
    weights = fitted[:-1] / scale
    return torch.cat([weights, (fitted[-1] - weights @ centre)[None]])
