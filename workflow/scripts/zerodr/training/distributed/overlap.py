"""Add up gradients over processes while the backward pass still computes those of lower layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from zerodr.training.distributed.processes import Group
from zerodr.training.optimizers import portions

BUCKET = 6 << 20  # elements that travel together: 24 MiB in float32


class GradientSums:
    """Sums of weights' gradients over processes: objectives are of the union batch, so no mean is taken.

    `open` is called before the last backward pass of a step, `close` after it, `finish` before gradients are used. In
    between, a bucket travels as soon as the pass has reached its weights. Processes send the same buckets in the same
    order, each in full: those of the weights that the first such pass reached in every process, last layers first. All
    other gradients follow in `finish`, and so does everything in steps that never call `open`. Which elements travel
    together depends on neither the step nor on time, so a resumed run has the same bits.

    Args:
        model: its order of weights decides the buckets.
        weights: trained ones.
        group: the processes; with one, nothing happens.
    """

    def __init__(self, model: nn.Module, weights: Sequence[nn.Parameter], group: Group) -> None:
        self.weights, self.group = list(weights), group
        trained = set(map(id, weights))
        self._order = [weight for weight in reversed(list(model.parameters())) if id(weight) in trained]
        self._buckets: list[list[nn.Parameter]] | None = None
        self._reached: set[int] | None = None  # None: no last pass is under way
        self._travelling: list[tuple[list[nn.Parameter], Tensor, Any]] = []
        if group.world > 1:
            for weight in self._order:
                weight.register_post_accumulate_grad_hook(self._reach)

    def open(self) -> None:
        """Expect the last gradients of the step."""
        self._reached, self._travelling = set(), []

    def close(self) -> None:
        """Send the buckets that are left."""
        if self.group.world > 1:
            if self._buckets is None:
                self._buckets = list(portions(self._agreed(), BUCKET))
            while len(self._travelling) < len(self._buckets):
                self._send(self._buckets[len(self._travelling)])
        self._reached = None

    def finish(self) -> list[Tensor]:
        """Wait for the sums, and replace gradients by them.

        Returns:
            gradients of the weights that have one.
        """
        done: set[int] = set()
        for bucket, flat, work in self._travelling:
            work.wait()
            for weight, total in zip(bucket, flat.split([weight.numel() for weight in bucket]), strict=True):
                weight.grad = total.view_as(weight) if weight.grad is None else weight.grad.copy_(total.view_as(weight))
                done.add(id(weight))
        self._travelling = []
        self.group.add_gradients([w.grad for w in self.weights if w.grad is not None and id(w) not in done])
        return [weight.grad for weight in self.weights if weight.grad is not None]

    def _reach(self, weight: Tensor) -> None:
        """Hook of a weight whose gradient is complete: send the next buckets that are."""
        if self._reached is None:
            return
        self._reached.add(id(weight))
        while self._buckets and len(self._travelling) < len(self._buckets):
            bucket = self._buckets[len(self._travelling)]
            if not all(id(one) in self._reached for one in bucket):
                return
            self._send(bucket)

    def _send(self, bucket: list[nn.Parameter]) -> None:
        flat = torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).reshape(-1) for w in bucket])
        self._travelling.append((bucket, flat, dist.all_reduce(flat, async_op=True)))

    def _agreed(self) -> list[nn.Parameter]:
        """Weights that the pass reached in every process, last layers first."""
        reached = self._reached or set()
        everywhere = torch.tensor([int(id(w) in reached) for w in self._order], device=self._order[0].device)
        dist.all_reduce(everywhere, op=dist.ReduceOp.MIN)
        return [weight for weight, ours in zip(self._order, everywhere.tolist(), strict=True) if ours]
