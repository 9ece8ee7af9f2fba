"""The linear classifier of domains: source or target, from an embedding (MoDIR eq. 3)."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

ITERATIONS = 200


class DomainClassifier(nn.Module):
    """Two rows of weights without bias, row 0 for the source; one for queries and documents.

    No gradient ever reaches the weights by autograd: they are trained by a closed form and frozen for the encoder.

    Args:
        dimension: D of embeddings.
        seed: of the first weights, uniform within 1 / sqrt(D), as torch's linear layers begin.
    """

    def __init__(self, dimension: int, seed: int = 0) -> None:
        super().__init__()
        generator, bound = torch.Generator().manual_seed(seed), 1 / math.sqrt(dimension)
        first = (torch.rand(2, dimension, generator=generator) * 2 - 1) * bound
        self.weight = nn.Parameter(first, requires_grad=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Logits, (..., D) -> (..., 2)."""
        return vectors @ self.weight.T


def logistic_regression(vectors: Tensor, source: Tensor, l2: float, iterations: int = ITERATIONS) -> Tensor:
    """Weights of a margin that minimise mean cross entropy + l2 |v|^2 / 2, by L-BFGS in float64.

    The penalty makes the minimum finite and unique where the classes can be separated.

    Args:
        vectors: (N, D); give a column of ones for a bias.
        source: (N,) bool; the margin is positive for these.

    Returns:
        (D,) in the type of `vectors`.
    """
    points, signs = vectors.detach().double(), source.double() * 2 - 1
    weights = torch.zeros(points.shape[1], dtype=torch.float64, device=points.device, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=iterations, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = softplus(-signs * (points @ weights)).mean() + l2 / 2 * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call,arg-type]
    return weights.detach().to(vectors)
