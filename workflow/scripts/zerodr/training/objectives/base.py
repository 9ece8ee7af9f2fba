"""Objectives: what is minimised, as named loss terms of the vectors of a batch. New methods add one here or beside it.

An objective sees the whole batch of an optimiser (micro-)step, whatever the number of processes, and knows neither the
model's inside nor how vectors were made. So gradient caching, accumulation and data-parallel training are the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import torch
from torch import Tensor

from zerodr.config.training import ObjectiveSettings
from zerodr.errors import ConfigError
from zerodr.losses.contrastive import Reduction, info_nce, known_positive_mask, pairwise_nll
from zerodr.losses.distillation import kl_distillation, margin_mse
from zerodr.papers.moma.losses import attention_distillation
from zerodr.training.distributed.processes import Group

State = dict[str, Any]  # flat: tensors, or JSON values


@dataclass(frozen=True)
class Units:
    """The units of each query's positive.

    Attributes:
        vectors: (B, U, D) float32.
        valid: (B, U) bool.
        labels: (B,) int64 the essential unit, -100 where there is none.
    """

    vectors: Tensor
    valid: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Encoded:
    """The vectors of a batch, of all processes.

    Attributes:
        step: step of the stage, from 0.
        queries: (B, D) float32.
        documents: (B, 1 + K, D) float32, each query's positive first.
        query_ids: B ids.
        document_ids: B * (1 + K) ids, row by row.
        positives: ids of all known positives of each query.
        teacher: (B, 1 + K) scores, or None.
        groups: (B,) cluster of each query, or None.
        units: of each query's positive, or None.
    """

    step: int
    queries: Tensor
    documents: Tensor
    query_ids: list[str]
    document_ids: list[str]
    positives: list[set[str]]
    teacher: Tensor | None = None
    groups: Tensor | None = None
    units: Units | None = None

    def own_scores(self) -> Tensor:
        """Similarity of each query with its own documents, (B, 1 + K)."""
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

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """Named scalar loss terms, with their weights applied."""
        raise NotImplementedError

    def direct(self, model: Any, step: int, rank: int, world: int) -> dict[str, Tensor]:
        """Terms that need the model itself on data of their own (a language model, say), as this process's share.

        The shares of all processes are added, so a share is divided by `world` already.
        """
        return {}

    def on_start(self, model: Any, device: str) -> None:
        """Before the first step, after a resumed state was loaded."""

    def watching(self, step: int) -> AbstractContextManager[None]:
        """Open while the texts of step `step` are encoded; not while they are encoded again for caching."""
        return nullcontext()

    def before(self, turn: Turn) -> None:
        """After the forward pass, before the loss is taken: may send gradients of its own through the network."""

    def after(self, turn: Turn) -> None:
        """After the backward pass of the vectors, before gradients are added up over processes."""

    def on_step(self, finished: int) -> dict[str, float]:
        """After an optimiser step, with the number of finished ones; returned numbers join the curves."""
        return {}

    def save(self, folder: Path) -> None:
        """Write what belongs beside the trained model."""

    def state_dict(self) -> State:
        """What a resumed run needs: a flat dict of tensors and JSON values."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Take back what `state_dict` gave."""


class QueryObjective(Objective):
    """An objective that is the mean of losses of queries."""

    name: str

    def per_query(self, batch: Encoded) -> Tensor:
        """Loss of each query, (B,)."""
        raise NotImplementedError


class PairwiseNLL(QueryObjective):
    """Two-way softmax of the positive and each hard negative, no in-batch negatives (ANCE; specs/modir-ance 2.2)."""

    name = "pairwise_nll"

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"pairwise_nll": scalar}`, mean over queries and their negatives."""
        return {self.name: self._losses(batch, "mean")}

    def per_query(self, batch: Encoded) -> Tensor:
        """Mean over each query's negatives, (B,)."""
        return self._losses(batch, "none").mean(1)

    def _losses(self, batch: Encoded, reduction: Reduction) -> Tensor:
        negatives = batch.documents[:, 1:]  # (B, K, D)
        queries, positives = (x.expand_as(negatives) for x in (batch.queries[:, None], batch.documents[:, :1]))
        return pairwise_nll(queries, positives, negatives, reduction)


@dataclass
class InfoNCE(QueryObjective):
    """Softmax of the own positive among all positives and hard negatives of the batch (DDR 3.1)."""

    in_batch: bool = True
    mask_known_positives: bool = True
    inverse_temperature: float = 1.0
    name = "info_nce"

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"info_nce": scalar}`, mean over queries."""
        return {self.name: self._losses(batch, "mean")}

    def per_query(self, batch: Encoded) -> Tensor:
        """Loss of each query, (B,)."""
        return self._losses(batch, "none")

    def _losses(self, batch: Encoded, reduction: Reduction) -> Tensor:
        return self._in_batch(batch, reduction) if self.in_batch else self._own(batch, reduction)

    def _in_batch(self, batch: Encoded, reduction: Reduction) -> Tensor:
        """Candidates are the B positives, then the B * K hard negatives."""
        count, width = batch.documents.shape[:2]
        columns = torch.arange(count * width).view(count, width)
        columns = torch.cat([columns[:, 0], columns[:, 1:].reshape(-1)])
        candidates = batch.documents.flatten(0, 1)[columns.to(batch.documents.device)]
        own, masked = torch.arange(count), None
        if self.mask_known_positives:
            ids = [batch.document_ids[column] for column in columns.tolist()]
            masked = known_positive_mask(batch.positives, ids, own)
        return info_nce(batch.queries @ candidates.T, own, masked, self.inverse_temperature, reduction)

    def _own(self, batch: Encoded, reduction: Reduction) -> Tensor:
        count, width = batch.documents.shape[:2]
        masked = None
        if self.mask_known_positives:
            masked = torch.zeros(count, width, dtype=torch.bool)
            for row, positives in enumerate(batch.positives):
                ids = batch.document_ids[row * width + 1 : (row + 1) * width]
                masked[row, 1:] = torch.tensor([key in positives for key in ids], dtype=torch.bool)
        own = torch.zeros(count, dtype=torch.long)
        return info_nce(batch.own_scores(), own, masked, self.inverse_temperature, reduction)


class MarginMSE(Objective):
    """Squared differences between the student's and the teacher's margins (DDR 3.2)."""

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"margin_mse": scalar}`."""
        return {"margin_mse": margin_mse(batch.own_scores(), _teacher(batch))}


@dataclass
class KLDistillation(Objective):
    """KL divergence of the teacher's distribution over a query's documents from the student's (BERM 6)."""

    temperature: float = 1.0

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"kl": scalar}`."""
        return {"kl": kl_distillation(batch.own_scores(), _teacher(batch), self.temperature)}


@dataclass
class AttentionDistillation(Objective):
    """ADist: the main model's attention over the K documents that were retrieved (specs/moma 8).

    A query's documents are a judged positive, then the K; the teacher's scores of the K are attention.
    """

    settings: ObjectiveSettings

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"adist": scalar}`, with `labels` also `{"info_nce": scalar}`."""
        own, how = batch.own_scores(), self.settings
        made = attention_distillation(
            own[:, 1:], _teacher(batch)[:, 1:], how.teacher_temperature, how.student_temperature, how.reduction
        )
        if not how.labels:
            return {"adist": made}
        return {"adist": made} | InfoNCE(False, True, how.inverse_temperature)(batch)


def _teacher(batch: Encoded) -> Tensor:
    if batch.teacher is None:
        raise ConfigError(
            "objective", "distillation needs a teacher's scores, found none", "give the stage a teacher (scored input)"
        )
    return batch.teacher


class Stack(Objective):
    """Several objectives at once, each with a weight; names of terms and states are prefixed with the objective's."""

    def __init__(self, parts: Mapping[str, tuple[float, Objective]]) -> None:
        self.parts = dict(parts)
        self.by_group = any(part.by_group for _, part in self.parts.values())
        for _, part in self.parts.values():
            part.alone = len(self.parts) == 1

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """All parts' terms, weighted."""
        return {
            f"{name}.{term}": weight * value
            for name, (weight, part) in self.parts.items()
            for term, value in part(batch).items()
        }

    def direct(self, model: Any, step: int, rank: int, world: int) -> dict[str, Tensor]:
        """All parts' direct terms, weighted."""
        return {
            f"{name}.{term}": weight * value
            for name, (weight, part) in self.parts.items()
            for term, value in part.direct(model, step, rank, world).items()
        }

    def on_start(self, model: Any, device: str) -> None:
        """Every part's hook."""
        for _, part in self.parts.values():
            part.on_start(model, device)

    def watching(self, step: int) -> AbstractContextManager[None]:
        """Every part's context."""
        every = ExitStack()
        for _, part in self.parts.values():
            every.enter_context(part.watching(step))
        return every  # type: ignore[return-value]

    def before(self, turn: Turn) -> None:
        """Every part's hook."""
        for _, part in self.parts.values():
            part.before(turn)

    def after(self, turn: Turn) -> None:
        """Every part's hook."""
        for _, part in self.parts.values():
            part.after(turn)

    def on_step(self, finished: int) -> dict[str, float]:
        """Every part's hook."""
        return {
            f"{name}.{key}": value
            for name, (_, part) in self.parts.items()
            for key, value in part.on_step(finished).items()
        }

    def save(self, folder: Path) -> None:
        """Every part's files."""
        for _, part in self.parts.values():
            part.save(folder)

    def state_dict(self) -> State:
        """Every part's state."""
        return {
            f"{name}.{key}": value for name, (_, part) in self.parts.items() for key, value in part.state_dict().items()
        }

    def load_state_dict(self, state: State) -> None:
        """Give every part its own."""
        for name, (_, part) in self.parts.items():
            start = f"{name}."
            part.load_state_dict({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})


def make_objective(settings: ObjectiveSettings) -> Objective:
    """The objective that the settings name.

    Raises:
        ConfigError: it needs hard negatives and the settings draw none.
    """
    needs_negatives = settings.name != "info_nce" or not settings.in_batch
    if needs_negatives and settings.negatives_per_query < 1:
        raise ConfigError(
            "objective.negatives_per_query",
            f"{settings.name} compares a positive with hard negatives, found 0",
            "set it to at least 1",
        )
    if settings.name == "pairwise_nll":
        return PairwiseNLL()
    if settings.name == "info_nce":
        return InfoNCE(settings.in_batch, settings.mask_known_positives, settings.inverse_temperature)
    if settings.name == "adist":
        return AttentionDistillation(settings)
    if settings.name == "margin_mse":
        return MarginMSE()
    if settings.name == "kl":
        return KLDistillation(settings.teacher_temperature)
    assert_never(settings.name)
