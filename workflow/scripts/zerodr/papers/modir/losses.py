"""MoDIR's losses: a linear classifier tells source from target, the encoder makes that impossible (MoDIR section 3).

Notation: logits (..., 2), component 0 for the source; margin m = z0 - z1; sigmoid(m) is the probability of the source.
All forms are of softplus, so no probability is ever rounded to 0.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

Adversarial = Literal["confusion", "minimax", "gan"]
GROUPS = 4  # source queries, source documents, target queries, target documents


def clamped(logits: Tensor, limit: float | None) -> Tensor:
    """Logits within [-limit, limit]; outside, no gradient passes. None: as they are.

    >>> clamped(torch.tensor([-9.0, 2.0]), 5.0).tolist()
    [-5.0, 2.0]
    """
    return logits if limit is None else logits.clamp(-limit, limit)


def margins(logits: Tensor) -> Tensor:
    """m = z0 - z1, positive where the classifier says source. (..., 2) -> (...).

    >>> margins(torch.tensor([[3.0, 1.0], [0.0, 1.0]])).tolist()
    [2.0, -1.0]
    """
    return logits[..., 0] - logits[..., 1]


def domain_losses(logits: Tensor, source: bool) -> Tensor:
    """Cross entropy of the classifier, L_D (MoDIR eq. 7). (..., 2) -> (...).

    >>> logits = torch.tensor([3.0, 1.0])
    >>> [round(float(domain_losses(logits, source)), 4) for source in (True, False)]
    [0.1269, 2.1269]
    """
    m = margins(logits)
    return softplus(-m) if source else softplus(m)


def confusion_losses(logits: Tensor) -> Tensor:
    """-(log f + log(1 - f)) / 2, least where the classifier is undecided (MoDIR eq. 8). (..., 2) -> (...).

    >>> [round(float(confusion_losses(torch.tensor([margin, 0.0]))), 4) for margin in (0.0, 2.0)]
    [0.6931, 1.1269]
    """
    m = margins(logits)
    return (softplus(m) + softplus(-m)) / 2


def adversarial_loss(kind: Adversarial, source: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """L_M: the sum over groups of batch means, as if there were four groups.

    Args:
        kind: `confusion`; `minimax`, the negative of the classifier's loss; `gan`, target texts labelled as source.
        source: logits (B, 2) of queries and documents, or of documents alone.
        target: likewise.

    Returns:
        scalar. Without queries the sum is scaled up, so that a weight means the same.

    >>> undecided = torch.zeros(3, 2)
    >>> round(float(adversarial_loss("confusion", [undecided, undecided], [undecided, undecided])), 4)
    2.7726
    """
    if kind == "confusion":
        terms = [confusion_losses(logits) for logits in (*source, *target)]
    elif kind == "minimax":
        terms = [-domain_losses(logits, True) for logits in source] + [-domain_losses(x, False) for x in target]
    else:
        terms = [domain_losses(logits, True) for logits in target]
    return torch.stack([term.mean() for term in terms]).sum() * GROUPS / (len(source) + len(target))


def classifier_gradient(
    weight: Tensor, vectors: Tensor, source: Tensor, limit: float | None = None
) -> tuple[Tensor, Tensor]:
    """Mean cross entropy of a linear classifier and its gradient, in closed form: (softmax - onehot)^T E / N.

    Args:
        weight: (2, D).
        vectors: (N, D).
        source: (N,) bool, the labels.
        limit: of logits.

    Returns:
        scalar, (2, D); neither with a graph.

    >>> weight, vectors = torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss, gradient = classifier_gradient(weight, vectors, torch.tensor([True, False]))
    >>> round(float(loss), 4), gradient.tolist()
    (0.6931, [[-0.25, 0.25], [0.25, -0.25]])
    """
    with torch.no_grad():
        raw = vectors @ weight.T
        m = margins(clamped(raw, limit))
        loss = torch.where(source, softplus(-m), softplus(m)).mean()
        wrong = torch.sigmoid(m) - source.to(m)  # softmax - onehot of component 0; of component 1 the negative
        residual = torch.stack([wrong, -wrong], 1)
        if limit is not None:
            residual = residual * (raw.abs() <= limit)
        return loss, residual.T @ vectors / len(vectors)


def adversary_weight(finished: int, start: float, half_life: float) -> float:
    """lambda after `finished` steps: halved every `half_life` steps, continuously (MoDIR appendix B).

    >>> adversary_weight(10_000, start=1.0, half_life=10_000)
    0.5
    """
    return start * 2.0 ** (-finished / half_life)
