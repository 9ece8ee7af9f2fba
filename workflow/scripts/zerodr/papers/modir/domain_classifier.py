"""The linear classifier of domains, and the momentum queue that it learns from (MoDIR section 3.2, eq. 3 and 4)."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
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


class MomentumQueue:
    """A ring of batches in one preallocated tensor.

    Args:
        length: n batches that it holds.
        size: B embeddings of each group in a batch.
        groups: G, such as source queries, source documents, target queries, target documents.
        dimension: D.

    Attributes:
        rows: (n B, G, D) float32; those of a batch are neighbours.
        filled: batches that it holds.
        next: position of the next batch, from 0 to n - 1.
    """

    def __init__(self, length: int, size: int, groups: int, dimension: int) -> None:
        self.length, self.size = length, size
        self.rows = torch.zeros(length * size, groups, dimension)
        self.filled = self.next = 0

    def to(self, device: str) -> None:
        """Move the embeddings."""
        self.rows = self.rows.to(device)

    def push(self, vectors: Tensor, number: int = 0, pushes: int = 1) -> None:
        """Replace the oldest batch by a new one, in `pushes` equal slices; it counts with its last slice.

        Args:
            vectors: (B / pushes, G, D); they are detached.
            number: of the slice, from 0.
        """
        first = self.next * self.size + number * len(vectors)
        self.rows[first : first + len(vectors)] = vectors.detach()
        if number == pushes - 1:
            self.next = (self.next + 1) % self.length
            self.filled = min(self.filled + 1, self.length)

    def samples(self, updates: int, minibatch: int, seed: list[int]) -> Iterator[Tensor]:
        """(m, G, D) of each update, drawn without replacement; when all were taken, from the beginning again."""
        held, size = self.filled * self.size, min(minibatch, self.filled * self.size)
        generator = np.random.default_rng(seed)
        wanted = updates * size
        if wanted <= held:
            chosen = generator.choice(held, wanted, replace=False)
        else:
            chosen = np.concatenate([generator.permutation(held) for _ in range(-(-wanted // held))])[:wanted]
        for positions in torch.from_numpy(chosen).to(self.rows.device).split(size):
            yield self.rows.index_select(0, positions)

    def in_order(self, updates: int, count: int) -> Iterator[Tensor]:
        """(count B, G, D) of each update as in the released code: whole batches from the second oldest on.

        Batch j = 1, 2, ... of a step is number min(j, filled - 1) from the oldest. So the oldest of a full queue is
        never learned from, the newest twice, and the newest again and again while it fills.
        """
        ages = np.minimum(np.arange(updates * count) % self.length + 1, self.filled - 1).reshape(updates, count)
        first = self.next if self.filled == self.length else 0
        for batches in (first + ages) % self.length:
            rows = (batches[:, None] * self.size + np.arange(self.size)).ravel()
            yield self.rows.index_select(0, torch.from_numpy(rows).to(self.rows.device))

    def oldest(self) -> Tensor:
        """Return the batch that was pushed first of those held, (B, G, D)."""
        first = self.next * self.size if self.filled == self.length else 0
        return self.rows[first : first + self.size]

    def overwritten(self, batches: int) -> dict[str, Any]:
        """Copy the rows that the next pushes overwrite, for `put_back`."""
        slots = (self.next + np.arange(min(batches, self.length))) % self.length
        positions = torch.from_numpy((slots[:, None] * self.size + np.arange(self.size)).ravel()).to(self.rows.device)
        return {"positions": positions, "rows": self.rows[positions], "filled": self.filled, "next": self.next}

    def put_back(self, overwritten: dict[str, Any]) -> None:
        """Undo the pushes since `overwritten`."""
        self.filled, self.next = overwritten["filled"], overwritten["next"]
        self.rows[overwritten["positions"]] = overwritten["rows"]

    def state_dict(self) -> dict[str, Any]:
        """Return embeddings and positions."""
        return {"queue": self.rows, "filled": self.filled, "next": self.next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of `state_dict`."""
        self.rows.copy_(state["queue"])
        self.filled, self.next = int(state["filled"]), int(state["next"])


def logistic_regression(vectors: Tensor, source: Tensor, l2: float) -> Tensor:
    """Weights of a margin that minimise mean cross entropy + l2 |v|^2 / 2, by L-BFGS in float64.

    The penalty makes the minimum finite and unique where the classes can be separated.

    Args:
        vectors: (N, D); give a column of ones for a bias.
        source: (N,) bool; the margin is positive for these.

    Returns:
        (D,) in the type of `vectors`.
    """
    # float64: in float32 the line search stops before the gradient is 1e-9
    points, signs = vectors.detach().double(), source.double() * 2 - 1
    weights = torch.zeros(points.shape[1], dtype=torch.float64, device=points.device, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=ITERATIONS, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = softplus(-signs * (points @ weights)).mean() + l2 / 2 * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call,arg-type]
    return weights.detach().to(vectors)
