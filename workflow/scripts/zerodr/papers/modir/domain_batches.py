"""Batches of source and target texts that are encoded in one step."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from torch import Tensor

from zerodr.papers.modir.target_texts import DrawnTexts, TargetStream
from zerodr.training.data.batches import Batch
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.engine import Batches
from zerodr.training.loop.gradcache import Forward, Share, Texts
from zerodr.training.objectives.base import Encoded


@dataclass(frozen=True)
class DomainBatch(Batch):
    """A batch of the source with as many texts of the target.

    Attributes:
        target_documents: (B,) document numbers.
        target_queries: (B,) query numbers, or None.
    """

    target_documents: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    target_queries: np.ndarray | None = None

    def shard(self, number: int, shards: int) -> DomainBatch:
        """Return the `number`-th of `shards` equal slices, in order."""
        size = len(self) // shards
        cut = slice(number * size, (number + 1) * size)
        queries = None if self.target_queries is None else self.target_queries[cut]
        return _extended(DomainBatch, super().shard(number, shards), self.target_documents[cut], queries)


@dataclass(frozen=True)
class EncodedDomains(Encoded):
    """The vectors of a DomainBatch.

    Attributes:
        target_documents: (B, D) float32.
        target_queries: (B, D) float32, or None.
    """

    target_documents: Tensor | None = None
    target_queries: Tensor | None = None


class DomainStream:
    """Batches of the source, each with the target's texts of its step."""

    def __init__(self, source: Batches, target: TargetStream) -> None:
        self.source, self.target = source, target

    def batch(self, step: int) -> DomainBatch:
        """Return the batch of step `step`, a pure function of it."""
        return _extended(DomainBatch, self.source.batch(step), self.target.documents(step), self.target.queries(step))


def _extended(kind: Any, base: Any, documents: Any, queries: Any) -> Any:
    """`base` as a `kind`, with what the target adds."""
    values = {one.name: getattr(base, one.name) for one in fields(base)}
    return kind(**values | {"target_documents": documents, "target_queries": queries})


@dataclass
class DomainForward(Forward):
    """Encodes the target's texts in the same passes as the source's; their rows follow those."""

    target: DrawnTexts | None = None

    def texts(self, batch: Any) -> Texts:
        """Tokenise the distinct texts of (a process's shard of) a batch, and the target's, documents first."""
        assert self.target is not None, "the forward needs the target's texts"
        source = super().texts(batch)
        documents = self.tokens(self.target.texts_of_documents(batch.target_documents), "document")
        asked = [] if batch.target_queries is None else self.target.texts_of_queries(batch.target_queries)
        queries = self.tokens(asked, "query")
        tokens, first = [*source.tokens, *documents, *queries], len(source.tokens)
        count, end = len(batch), first + len(documents)
        query_positions = [*range(count), *range(end, len(tokens))]
        return Texts(tokens, source.documents, self.passes(tokens, query_positions, range(count, end)))

    def view(self, share: Share, leaf: Tensor, group: Group) -> Any:
        """Gather the vectors of all processes, of both domains."""
        batch = share.batch.shard(group.rank, group.world)
        asked = batch.target_queries is not None
        first = len(leaf) - len(batch) * (1 + asked)
        documents, queries = leaf[first : first + len(batch)], leaf[first + len(batch) :]
        return _extended(
            EncodedDomains,
            super().view(share, leaf, group),
            group.gather(documents),
            group.gather(queries) if asked else None,
        )
