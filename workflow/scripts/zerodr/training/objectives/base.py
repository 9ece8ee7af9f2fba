"""Objectives: what is minimised, as named loss terms of the vectors of a batch. Those of losses are in `ranking`.

An objective sees the whole batch of an optimiser (micro-)step, whatever the number of processes, and knows neither the
model's inside nor how vectors were made. So gradient caching, accumulation and data-parallel training are the engine's.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zerodr.training.distributed.processes import Group

State = dict[str, Any]  # flat: tensors, or JSON values


@dataclass(frozen=True)
class Encoded:
    """The vectors of a batch, of all processes.

    Attributes:
        step: step of the stage, from 0.
        queries: (B, D) float32.
        documents: (B, 1 + K, D) float32, each query's positive first.
        known: (n, 2) query and place among the B * (1 + K) documents, row by row, of each query's known positives.
        teacher: (B, 1 + K) scores, or None.
        groups: (B,) cluster of each query, or None.
    """

    step: int
    queries: Tensor
    documents: Tensor
    known: Tensor | None = None
    teacher: Tensor | None = None
    groups: Tensor | None = None

    def document_scores(self) -> Tensor:
        """Compute similarities of each query with its documents, (B, 1 + K)."""
        return torch.einsum("bd,bkd->bk", self.queries, self.documents)


@dataclass(frozen=True)
class Turn:
    """A micro-batch between the network's forward and backward pass.

    Attributes:
        batch: what the objective is shown.
        held: this process's vectors and their way back into the weights (gradcache.Representation).
        group: the processes.
        scale: factor that the loss gets before its backward pass.
    """

    batch: Any
    held: Any
    group: Group
    scale: Tensor | float


class Objective:
    """Base of objectives. Hooks do nothing unless a method needs them; terms are summed and minimised.

    Attributes:
        by_group: a document of queries of several groups is encoded once for each group.
        alone: no other objective's gradient passes the network with this one's.
    """

    by_group = False
    alone = True

    @property
    def only_vectors(self) -> bool:
        """Whether weights get no gradient after that of vectors: a class with `after` or `direct` may send more."""
        return type(self).after is Objective.after and type(self).direct is Objective.direct

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """Compute named scalar loss terms, with their weights applied."""
        raise NotImplementedError

    def direct(self, model: Any, step: int, rank: int, world: int) -> dict[str, Tensor]:
        """Compute terms that need the model on other data (a language model, say), as this process's share.

        The shares of all processes are added, so a share is divided by `world` already.
        """
        return {}

    def on_start(self, model: Any, device: str) -> None:
        """Prepare before the first step, after a resumed state was loaded."""

    def watching(self) -> AbstractContextManager[None]:
        """Stay open while the texts of step `step` are encoded; not while they are encoded again for caching."""
        return nullcontext()

    def before(self, turn: Turn) -> None:
        """Act after the forward pass, before the loss: may send further gradients through the network."""

    def after(self, turn: Turn) -> None:
        """Act after the backward pass of the vectors, before gradients are added up over processes."""

    def on_step(self, finished: int) -> Mapping[str, float | Tensor]:
        """Act after an optimiser step, with the number of finished ones; returned numbers join the curves.

        Scalars on the device are read when a point of the curves is due.
        """
        return {}

    def save(self, folder: Path) -> None:
        """Write files next to the trained model."""

    def state_dict(self) -> State:
        """Return the state that a resumed run needs: a flat dict of tensors and JSON values."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Restore the state of `state_dict`."""


class QueryObjective(Objective):
    """An objective that is the mean of losses of queries."""

    name: str

    def per_query(self, batch: Encoded) -> Tensor:
        """Compute the loss of each query, (B,)."""
        raise NotImplementedError


class Stack(Objective):
    """Several objectives at once, each with a weight; names of terms and states are prefixed with the objective's."""

    def __init__(self, objectives: Mapping[str, tuple[float, Objective]]) -> None:
        self.objectives = dict(objectives)
        self.by_group = any(objective.by_group for _, objective in self.objectives.values())
        for _, objective in self.objectives.values():
            objective.alone = len(self.objectives) == 1

    @property
    def only_vectors(self) -> bool:
        """Whether this holds for all objectives."""
        return all(objective.only_vectors for _, objective in self.objectives.values())

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """Compute all objectives' terms, weighted."""
        return {
            f"{name}.{term}": weight * value
            for name, (weight, objective) in self.objectives.items()
            for term, value in objective(batch).items()
        }

    def direct(self, model: Any, step: int, rank: int, world: int) -> dict[str, Tensor]:
        """Compute all objectives' direct terms, weighted."""
        return {
            f"{name}.{term}": weight * value
            for name, (weight, objective) in self.objectives.items()
            for term, value in objective.direct(model, step, rank, world).items()
        }

    def on_start(self, model: Any, device: str) -> None:
        """Call every objective's hook."""
        for _, objective in self.objectives.values():
            objective.on_start(model, device)

    def watching(self) -> AbstractContextManager[None]:
        """Open every objective's context."""
        every = ExitStack()
        for _, objective in self.objectives.values():
            every.enter_context(objective.watching())
        return every  # type: ignore[return-value]

    def before(self, turn: Turn) -> None:
        """Call every objective's hook."""
        for _, objective in self.objectives.values():
            objective.before(turn)

    def after(self, turn: Turn) -> None:
        """Call every objective's hook."""
        for _, objective in self.objectives.values():
            objective.after(turn)

    def on_step(self, finished: int) -> Mapping[str, float | Tensor]:
        """Call every objective's hook."""
        return {
            f"{name}.{key}": value
            for name, (_, objective) in self.objectives.items()
            for key, value in objective.on_step(finished).items()
        }

    def save(self, folder: Path) -> None:
        """Write every objective's files."""
        for _, objective in self.objectives.values():
            objective.save(folder)

    def state_dict(self) -> State:
        """Return every objective's state."""
        return {
            f"{name}.{key}": value
            for name, (_, objective) in self.objectives.items()
            for key, value in objective.state_dict().items()
        }

    def load_state_dict(self, state: State) -> None:
        """Restore every objective's state."""
        for name, (_, objective) in self.objectives.items():
            start = f"{name}."
            objective.load_state_dict({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})
