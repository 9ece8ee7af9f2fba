"""Draw queries and documents of each step: pure functions of (seed, epoch) and (seed, step).

Nothing here has a state, so a run that continues at step k sees what the undisturbed run saw, and W processes share out
exactly the batch that one process would have had. A forward pass takes texts of similar length together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from zerodr.errors import ConfigError
from zerodr.training.data.examples import Examples

WASTE = {"cpu": 512, "cuda": 4096}  # padded tokens that cost less than one more forward pass


def length_groups(lengths: Sequence[int], waste: int, texts: int | None = None) -> list[list[int]]:
    """Indexes of texts in groups, each sorted by length, all texts once.

    A group is closed when the next longer text would make the group's padding exceed `waste` tokens, or when it holds
    `texts` texts.

    Args:
        lengths: tokens of each text.
        waste: padded tokens that a group may hold; what a further forward pass costs, in tokens.
        texts: most texts of a group, or None.
    """
    groups: list[list[int]] = []
    padding = 0
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups:
            group = groups[-1]
            more = padding + len(group) * (lengths[index] - lengths[group[-1]])
            if more <= waste and (texts is None or len(group) < texts):
                group.append(index)
                padding = more
                continue
        groups.append([index])
        padding = 0
    return groups


ORDER, DRAW = 0, 1  # first word of a seed: what the random numbers are for


@dataclass(frozen=True)
class Batch:
    """Queries of one step, or a shard of them, with the documents drawn for them.

    Attributes:
        step: step of the stage, from 0.
        rows: (B,) rows of the examples.
        documents: (B, 1 + K) document numbers, the positive first.
        teacher: (B, 1 + K) float32 scores of these documents, or None.
        groups: (B,) int64 cluster of each query, or None.
    """

    step: int
    rows: np.ndarray
    documents: np.ndarray
    teacher: np.ndarray | None
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def shard(self, number: int, shards: int) -> Batch:
        """Return the `number`-th of `shards` equal slices, in order."""
        size = len(self) // shards
        return self._take(slice(number * size, (number + 1) * size))

    def sorted_by_group(self) -> Batch:
        """Return the same queries with those of one cluster next to each other, so that few shards hold parts of it."""
        assert self.groups is not None, "batches of query clusters have them"
        return self._take(np.argsort(self.groups, kind="stable"))

    def _take(self, which: slice | np.ndarray) -> Batch:
        teacher, groups = (None if of is None else of[which] for of in (self.teacher, self.groups))
        return replace(self, rows=self.rows[which], documents=self.documents[which], teacher=teacher, groups=groups)


def epoch_order(seed: Sequence[int], epoch: int, count: int) -> np.ndarray:
    """Return a permutation of `count` rows, the same for equal (seed, epoch)."""
    return np.random.default_rng([ORDER, *seed, epoch]).permutation(count)


class Stream:
    """The batches of a stage.

    Args:
        examples: queries, positives, negatives.
        rows: rows that are trained on (dev queries are not among them).
        batch: queries of a step, over all processes.
        negatives: drawn for a query in a step, without repetition where it has enough, else with.
        seed: words that every random choice comes from (the seed and the chain's step at which the stage begins).
        consecutive: rows that follow each other with one query, each with its next negative.

    Raises:
        ConfigError: fewer queries than a batch.
    """

    def __init__(
        self,
        examples: Examples,
        rows: np.ndarray,
        batch: int,
        negatives: int,
        seed: Sequence[int],
        consecutive: int = 1,
    ) -> None:
        if batch > len(rows):
            raise ConfigError(
                "training.batch_queries",
                f"a batch of {batch} queries is larger than the {len(rows)} queries there are to train on",
                f"set batch_queries to at most {len(rows)}",
            )
        self.examples, self.rows, self.batch_queries = examples, rows, batch
        self.negatives, self.seed, self.consecutive = negatives, tuple(seed), consecutive
        self.steps_per_epoch = len(rows) * consecutive // batch
        self._epoch: tuple[int, np.ndarray] = (-1, rows)

    def batch(self, step: int) -> Batch:
        """Return the batch of step `step`; queries that don't fill a last batch wait for the next epoch's order."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self.rows[epoch_order(self.seed, epoch, len(self.rows))])
        numbers = np.arange(position * self.batch_queries, (position + 1) * self.batch_queries)
        rows = self._epoch[1][numbers // self.consecutive]
        if self.consecutive > 1:
            turns = epoch * self.consecutive + numbers % self.consecutive
            drawn = [self._next(int(row), int(turn)) for row, turn in zip(rows, turns, strict=True)]
        else:
            generator = np.random.default_rng([DRAW, *self.seed, step])
            drawn = [self._draw(generator, int(row)) for row in rows]
        scores, teacher = self.examples.scores, None
        if scores is not None:
            teacher = np.stack([scores[int(row)][positions] for row, (_, positions) in zip(rows, drawn, strict=True)])
        groups = None if self.examples.groups is None else self.examples.groups[rows].astype(np.int64)
        return Batch(step, rows, np.stack([documents for documents, _ in drawn]), teacher, groups)

    def _next(self, row: int, turn: int) -> tuple[np.ndarray, np.ndarray]:
        """Give a query's first positive and one negative: all in an order of its own, then from the beginning again."""
        negatives = self.examples.negatives[row]
        order = np.random.default_rng([DRAW, *self.seed, row]).permutation(len(negatives))
        at = order[turn % len(order)]
        return np.array([self.examples.positives[row][0], negatives[at]], np.int64), np.array([0, 1 + at], np.int64)

    def _draw(self, generator: np.random.Generator, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw documents of a query, the positive first, and their positions among its first positive's scores."""
        positives, negatives = self.examples.positives[row], self.examples.negatives[row]
        chosen = 0 if self.examples.scores is not None else int(generator.integers(len(positives)))
        few = len(negatives) < self.negatives
        positions = (
            generator.choice(len(negatives), self.negatives, replace=few) if self.negatives else np.zeros(0, int)
        )
        return np.r_[positives[chosen], negatives[positions]].astype(np.int64), np.r_[0, 1 + positions].astype(np.int64)


def usable_rows(examples: Examples, negatives: int) -> tuple[np.ndarray, dict[str, int]]:
    """Rows that can be trained on, and how many are not, by reason."""
    bare = examples.positives.sizes == 0
    short = (examples.negatives.sizes == 0) & ~bare if negatives else np.zeros(len(examples), bool)
    counts = {"queries_without_positive": int(bare.sum()), "queries_without_negative": int(short.sum())}
    return np.flatnonzero(~bare & ~short), counts
