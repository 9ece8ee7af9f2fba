"""Batches of queries and of documents with masked words that pass the network in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from zerodr.papers.udalm.settings import KEY
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.engine import Batches
from zerodr.training.loop.gradcache import Forward, Representation, Share, Texts
from zerodr.training.pretraining.passages import PassageBatch, PassageStream
from zerodr.training.pretraining.span_forward import MASKED, SpanForward
from zerodr.training.pretraining.views import Views

WORDS = 8  # word of a seed: what the random numbers are for
LATE = MASKED[0]


@dataclass(frozen=True)
class JointBatch:
    """A batch of the stage, and documents."""

    main: Any
    documents: PassageBatch

    def shard(self, number: int, shards: int) -> JointBatch:
        """Return the `number`-th of `shards` equal slices of both, in order."""
        return JointBatch(self.main.shard(number, shards), self.documents.shard(number, shards))


class JointStream:
    """The batches of a stage, each with the documents of its step."""

    def __init__(self, main: Batches, documents: PassageStream) -> None:
        self.main, self.documents = main, documents

    def batch(self, step: int) -> JointBatch:
        """Return the batch of step `step`, a pure function of it."""
        return JointBatch(self.main.batch(step), self.documents.batch(step))


@dataclass(frozen=True)
class JointTexts(Texts):
    """Texts of a stage's batch, and masked documents; `groups` are those of both, the stage's first.

    Attributes:
        main: the stage's.
        views: masked documents.
    """

    main: Texts
    views: Views

    @classmethod
    def of(cls, main: Texts, views: Views) -> JointTexts:
        """Join both."""
        groups = [*main.groups, *views.groups]
        return cls(main.tokens, main.documents, groups, main, views, features=main.features, rows=main.rows)


@dataclass
class JointForward(Forward):
    """Passes of a stage, and after them those of masked documents, which have no vectors but a loss of their own.

    Attributes:
        main: passes of the stage, whatever they are.
        words: passes of masked documents.
        weight: factor on their loss, a mean over the predicted tokens of the micro-batch of all processes.
    """

    main: Forward = field(kw_only=True)
    words: SpanForward = field(kw_only=True)
    weight: float = field(kw_only=True)

    def __post_init__(self) -> None:
        self.main.shared = self.shared

    def prepare(self, batch: JointBatch, group: Group) -> Share:
        """Prepare this process's share of both."""
        self.main.by_group = self.by_group
        share, documents = self.main.prepare(batch.main, group), self.words.prepare(batch.documents, group)
        return replace(share, texts=JointTexts.of(share.texts, documents.texts))

    def close(self) -> None:
        """Store tokens of both."""
        self.main.close()
        self.words.close()

    def row_numbers(self, texts: JointTexts, number: int) -> list[int]:
        """List the rows of a group's vectors; masked documents have none."""
        return self.main.row_numbers(texts.main, number) if number < len(texts.main.groups) else []

    def totals(self, texts: JointTexts, group: Group) -> dict[str, float | Tensor]:
        """Return divisors of the stage's losses of groups, and of masked words."""
        return {**self.main.totals(texts.main, group), KEY: self.words.totals(texts.views, group)[LATE]}

    def run(
        self, texts: JointTexts, number: int, seed: Sequence[int], totals: Mapping[str, float | Tensor]
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Run a group of the stage, or compute the share of masked documents in their loss, weighted."""
        first = len(texts.main.groups)
        if number < first:
            return self.main.run(texts.main, number, seed, totals)
        losses = self.words.run(texts.views, number - first, [*seed, WORDS], {LATE: totals[KEY]})[1]
        return None, {KEY: self.weight * losses[LATE]}

    def view(self, share: Share, leaf: Tensor, group: Group) -> Any:
        """Return what the stage's objective sees."""
        return self.main.view(replace(share, texts=share.texts.main), leaf, group)

    def represent(
        self, texts: JointTexts, seed: Sequence[int], totals: Mapping[str, float | Tensor] | None = None
    ) -> Representation:
        """Encode the stage's texts; with caching, masked documents pass the network once, in the backward pass."""
        totals, held = totals or {}, self.main.represent(texts.main, seed, totals)
        numbers = range(len(texts.main.groups), len(texts.groups))
        passes = [*held.passes, *(self.run(texts, number, seed, totals) for number in numbers)] if held.passes else []
        return Representation(self, texts, seed, totals, held.leaf, passes)
