"""Candidate lists of a group of queries, their threads, and what becomes of them: a ranking in total order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from threadpoolctl import threadpool_limits

from zerodr.errors import ArtifactError, NonFiniteEmbedding
from zerodr.retrieval import kernels
from zerodr.retrieval.products import Products, SingleProducts
from zerodr.retrieval.vectors import Vectors

GROUP = 512  # queries that one thread works on at a time
CHUNK = 2048  # queries with candidate lists in memory at once, at most
ENTRIES = 1 << 23  # candidates in memory at once
NORM_ROWS = 4096  # documents whose lengths one task computes
LARGEST = 1e37  # bound of |q| |d|: float32 products stay finite
Run = Callable[[Callable, list], None]
NameRow = Callable[[int], str]


@dataclass(frozen=True)
class Ranking:
    """Ragged results: `counts[i]` entries of `rows` and `scores` for query `i`, best first, query after query."""

    counts: np.ndarray
    rows: np.ndarray
    scores: np.ndarray


def join(rankings: list[Ranking]) -> Ranking:
    """Rankings of consecutive queries as one."""
    return Ranking(*(np.concatenate([getattr(r, name) for r in rankings]) for name in ("counts", "rows", "scores")))


def id_ranks(ids: pa.Array) -> np.ndarray:
    """int32 [n]: position of each id in ascending order of its UTF-8 bytes."""
    ranks = np.empty(len(ids), np.int32)
    ranks[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids), dtype=np.int32)
    return ranks


def refuse_non_finite(squares: np.ndarray, name_row: NameRow) -> None:
    """Raise for the first row whose squared length is NaN or infinite."""
    bad = np.flatnonzero(~np.isfinite(squares))
    if len(bad):
        raise NonFiniteEmbedding(
            name_row(int(bad[0])),
            "its embedding holds NaN or infinity",
            "check the model (half precision may overflow) and embed again",
        )


class Norms:
    """Largest document length up to a row, found slab by slab; refuses vectors that are not finite."""

    def __init__(self, corpus: Vectors, name_row: NameRow) -> None:
        self._corpus, self._name_row = corpus, name_row
        self._largest: dict[int, float] = {0: 0.0}

    def largest_until(self, stop: int, run: Run) -> float:
        """Largest length of rows `0..stop`, with a margin for rounding; call with growing `stop` first."""
        if stop not in self._largest:
            start = max(self._largest)
            squares = np.empty(stop - start)
            pieces = [(s, min(s + NORM_ROWS, stop)) for s in range(start, stop, NORM_ROWS)]
            run(
                lambda piece: kernels.square_norms(
                    self._corpus.array[slice(*piece)], squares[piece[0] - start : piece[1] - start]
                ),
                pieces,
            )
            refuse_non_finite(squares, lambda row: self._name_row(start + row))
            self._largest[stop] = max(self._largest[start], math.sqrt(squares.max()) * (1 + 1e-6))
        return self._largest[stop]


class Group:
    """Queries [q, d] that one thread works on, with candidate lists of bounded length.

    Attributes:
        held: int64 [q], lengths of the lists.
        scores, rows: float32 and int32 [q, capacity], estimates or final scores, and corpus rows.
        lower: float64 [q], lower bounds of the depth-th best final score.
        errors: float64 [q], absolute part of the bounds of |estimate - final score|.
        products: how estimates are made.
        taken: candidates added so far.
    """

    def __init__(self, queries: np.ndarray, skip: np.ndarray, first: int, depth: int, capacity: int) -> None:
        count, self.depth = len(queries), depth
        self.queries, self.wide, self.skip = queries, queries.astype(np.float64), skip
        squares = np.empty(count)
        kernels.square_norms(queries, squares)
        refuse_non_finite(squares, lambda row: f"query {first + row}")
        self.norms = np.sqrt(squares) * (1 + 1e-6)
        self.held, self.done = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.scores, self.rows = np.empty((count, capacity), np.float32), np.empty((count, capacity), np.int32)
        self.lower, self.errors = np.full(count, -np.inf), np.zeros(count)
        self.products: Products = SingleProducts(queries)
        self.taken = 0

    def restart(self, products: Products) -> None:
        """Forget all candidates and go on with other products."""
        self.products, self.taken = products, 0
        self.held[:], self.lower[:] = 0, -np.inf

    def bound_errors(self, largest: float) -> None:
        """Set the error bounds for documents of length up to `largest`.

        Raises:
            ArtifactError: scores may be too large for float32.
        """
        if self.norms.max() * largest > LARGEST:
            raise ArtifactError(
                "embeddings", f"scores up to {self.norms.max() * largest:.3g} leave float32", "scale the model's output"
            )
        self.errors[:] = self.products.errors(self.norms, largest)

    def collect(self, estimates: np.ndarray, first: int, documents: np.ndarray, ranks: np.ndarray) -> None:
        """Add what may belong to the result from `estimates` [q, n] of documents `first..first+n`."""
        self.taken += kernels.collect(
            estimates,
            first,
            self.skip,
            self.held,
            self.scores,
            self.rows,
            self.lower,
            self.errors,
            self.products.relative,
            self.depth,
            self.wide,
            documents,
            ranks,
        )

    def append(
        self, values: np.ndarray, numbers: np.ndarray, offsets: np.ndarray, documents: np.ndarray, ranks: np.ndarray
    ) -> None:
        """Add listed documents: `values` and rows `numbers`, those of query i at `offsets[i]..offsets[i+1]`."""
        kernels.append(
            values,
            numbers,
            offsets,
            self.held,
            self.scores,
            self.rows,
            self.lower,
            self.errors,
            self.products.relative,
            self.depth,
            self.wide,
            documents,
            ranks,
        )

    def settle(self) -> None:
        """Drop what can't be in the result; sort the lists by row."""
        kernels.settle(self.held, self.scores, self.rows, self.lower, self.errors, self.products.relative, self.depth)

    def rescore(self, documents: np.ndarray, stop: int) -> None:
        """Final scores of the candidates below row `stop`."""
        kernels.rescore(self.held, self.scores, self.rows, self.done, stop, self.wide, documents)

    def finish(self, ranks: np.ndarray) -> None:
        """Total order, cut at the depth."""
        kernels.finish(self.held, self.scores, self.rows, self.depth, ranks)

    def ranking(self) -> Ranking:
        """The finished lists without gaps."""
        inside = np.arange(self.rows.shape[1]) < self.held[:, None]
        return Ranking(self.held, self.rows[inside], self.scores[inside])


def chunks(
    queries: Vectors, skip: np.ndarray | None, depth: int, threads: int, capacity: int | None = None
) -> Iterator[list[Group]]:
    """Groups of consecutive queries, a bounded number of queries at a time."""
    skip = np.full(queries.rows, -1, np.int64) if skip is None else skip
    capacity = capacity or 5 * depth + 256
    chunk = max(1, min(CHUNK, ENTRIES // capacity))
    for start in range(0, queries.rows, chunk):
        part = np.ascontiguousarray(queries.array[start : start + chunk])
        size = min(GROUP, -(-len(part) // threads))
        yield [
            Group(part[s : s + size], skip[start + s : start + s + size], start + s, depth, capacity)
            for s in range(0, len(part), size)
        ]


def finish(groups: list[Group], corpus: Vectors, ranks: np.ndarray, run: Run, slab: int) -> Ranking:
    """Final scores slab by slab, total order, cut at the depth."""
    run(lambda group: group.settle(), groups)
    for start in range(0, corpus.rows, slab):
        stop = min(start + slab, corpus.rows)
        run(lambda group: group.rescore(corpus.array, stop), groups)  # noqa: B023 - run waits
        corpus.release(start, stop)
    run(lambda group: group.finish(ranks), groups)
    return join([group.ranking() for group in groups])


@contextmanager
def workers(threads: int, prepare: Callable[[], None] | None = None) -> Iterator[Run]:
    """A function that maps a task over items on `threads` threads; each thread multiplies matrices alone.

    `prepare` is called once in each of these threads.
    """
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads, initializer=prepare) as pool:

        def run(task: Callable, items: list) -> None:
            list(pool.map(task, items))

        yield run
