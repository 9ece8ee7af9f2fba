"""Collect candidates of blocks of queries in threads, and rank them in total order."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from threadpoolctl import threadpool_limits

from zerodr.errors import ArtifactError, NonFiniteEmbedding
from zerodr.retrieval import kernels
from zerodr.retrieval.vectors import Vectors

BLOCK = 512  # upper limit of queries that one thread processes at once
CHUNK = 2048  # upper limit of queries with candidate lists in memory at once
ENTRIES = 1 << 23  # candidates in memory at once
NORM_ROWS = 4096  # documents whose lengths one task computes
TINY = 1.2e-38  # smallest normal float32
LARGEST = 1e37  # bound of |q| |d|: float32 products stay finite
Run = Callable[[Callable, list], list]
NameRow = Callable[[int], str]
Skip = np.ndarray | None


@dataclass(frozen=True)
class Ranking:
    """Ragged results: `counts[i]` entries of `rows` and `scores` for query `i`, best first, query after query."""

    counts: np.ndarray
    rows: np.ndarray
    scores: np.ndarray


def join(rankings: list[Ranking]) -> Ranking:
    """Join rankings of consecutive queries."""
    return Ranking(*(np.concatenate([getattr(r, name) for r in rankings]) for name in ("counts", "rows", "scores")))


def in_total_order(rows: np.ndarray, scores: np.ndarray, ranks: np.ndarray, depth: int) -> Ranking:
    """Rank the first `depth` of one query's `rows` [n] with final `scores` [n] in total order (`ranks` as above)."""
    # Keys are distinct (ranks are), so argsort needs no stable kind for a reproducible order.
    order = np.argsort(kernels.order_keys(scores, rows.astype(np.int32, copy=False), ranks))[::-1][:depth]
    return Ranking(np.array([len(order)]), rows[order], scores[order])


def id_ranks(ids: pa.Array) -> np.ndarray:
    """Return the position of each id in ascending order of its UTF-8 bytes, int32 [n].

    >>> id_ranks(pa.array(["b", "a", "B"])).tolist()
    [2, 1, 0]
    """
    ranks = np.empty(len(ids), np.int32)
    ranks[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids), dtype=np.int32)
    return ranks


def refuse_non_finite(squares: np.ndarray, name_row: NameRow) -> None:
    """Raise for the first row whose squared length is NaN or infinite."""
    bad = np.flatnonzero(~np.isfinite(squares))
    if len(bad):
        step = "check the model (half precision may overflow) and embed again"
        raise NonFiniteEmbedding(name_row(int(bad[0])), "its embedding holds NaN or infinity", step)


class Norms:
    """Compute the largest document length up to a row, slab by slab; refuse vectors that are not finite."""

    def __init__(self, corpus: Vectors, name_row: NameRow) -> None:
        self._corpus, self._name_row = corpus, name_row
        self._largest: dict[int, float] = {0: 0.0}

    def largest_until(self, stop: int, run: Run) -> float:
        """Return the largest length of rows `0..stop`, with a margin for rounding; call with growing `stop` first."""
        if stop not in self._largest:
            start = max(self._largest)
            rows, squares = self._corpus.array[start:stop], np.empty(stop - start)
            pieces = [slice(first, first + NORM_ROWS) for first in range(0, stop - start, NORM_ROWS)]
            run(lambda piece: kernels.square_norms(rows[piece], squares[piece]), pieces)
            refuse_non_finite(squares, lambda row: self._name_row(start + row))
            self._largest[stop] = max(self._largest[start], math.sqrt(squares.max()) * (1 + 1e-6))
        return self._largest[stop]


class Products(Protocol):
    """Estimates of scores of fixed queries [q, d]: at most `errors + relative * |estimate|` from the final score."""

    relative: float

    def errors(self, norms: np.ndarray, largest: float) -> np.ndarray:
        """Bound the absolute error, float64 [q], for documents of length up to `largest`; `norms` of the queries."""

    def multiply(self, block: np.ndarray, out: np.ndarray) -> None:
        """Write estimates [q, n] of documents `block` [n, d] to `out`."""


def error_factor(dimension: int) -> float:
    """Bound |float32 product - final score| / (|q| |d|).

    Higham's gamma_n for any order of summation (Accuracy and Stability of Numerical Algorithms, section 3.1), with
    room for the final rounding.
    """
    unit = (dimension + 4) * 2.0**-24
    return 1.01 * unit / (1 - unit)


class SingleProducts:
    """Products in float32."""

    relative = 0.0

    def __init__(self, queries: np.ndarray) -> None:
        self._queries = queries

    def errors(self, norms: np.ndarray, largest: float) -> np.ndarray:
        """See `Products`."""
        dimension = self._queries.shape[1]
        return error_factor(dimension) * norms * largest + 10 * TINY * (dimension + 1)

    def multiply(self, block: np.ndarray, out: np.ndarray) -> None:
        """See `Products`."""
        np.matmul(self._queries, block.T, out=out)


class QueryBlock:
    """Queries [q, d] of one thread, with candidate lists of bounded length.

    Attributes:
        lists: the candidates.
        products: source of the estimates.
        added: number of candidates added so far.
        scored: int64 [q], number of candidates with a final score.
    """

    def __init__(self, queries: np.ndarray, skip: np.ndarray, first: int, depth: int, capacity: int) -> None:
        count, self.depth = len(queries), depth
        self.queries, self.wide, self.skip = queries, queries.astype(np.float64), skip
        squares = np.empty(count)
        kernels.square_norms(queries, squares)
        refuse_non_finite(squares, lambda row: f"query {first + row}")
        self.norms = np.sqrt(squares) * (1 + 1e-6)
        scores, rows = np.empty((count, capacity), np.float32), np.empty((count, capacity), np.int32)
        self.lists = kernels.Lists(np.zeros(count, np.int64), scores, rows, np.full(count, -np.inf), np.zeros(count))
        self.scored = np.zeros(count, np.int64)
        self.products: Products = SingleProducts(queries)
        self.added = 0

    def restart(self, products: Products) -> None:
        """Remove all candidates and continue with other products."""
        self.products, self.added = products, 0
        self.lists.held[:], self.lists.lower[:] = 0, -np.inf

    def bound_errors(self, largest: float) -> None:
        """Set the error bounds for documents of length up to `largest`.

        Raises:
            ArtifactError: scores may be too large for float32.
        """
        if self.norms.max() * largest > LARGEST:
            problem = f"scores up to {self.norms.max() * largest:.3g} leave float32"
            raise ArtifactError("embeddings", problem, "scale the model's output")
        self.lists.errors[:] = self.products.errors(self.norms, largest)

    def collect(self, estimates: np.ndarray, first: int, documents: np.ndarray, ranks: np.ndarray) -> None:
        """Add possible results from `estimates` [q, n] of documents `first..first+n`."""
        pairs = kernels.Pairs(self.wide, documents, ranks)
        relative, depth = self.products.relative, self.depth
        self.added += kernels.collect(estimates, first, self.skip, self.lists, relative, depth, pairs)

    def append(
        self, values: np.ndarray, numbers: np.ndarray, offsets: np.ndarray, documents: np.ndarray, ranks: np.ndarray
    ) -> None:
        """Add listed documents: `values` and rows `numbers`, those of query i at `offsets[i]..offsets[i+1]`."""
        pairs = kernels.Pairs(self.wide, documents, ranks)
        kernels.append(values, numbers, offsets, self.lists, self.products.relative, self.depth, pairs)

    def settle(self) -> None:
        """Drop candidates that are surely not in the result; sort the others by row for the pass of final scores."""
        kernels.settle(self.lists, self.products.relative, self.depth)
        # Final scores then read the corpus front to back, which suits a memory-mapped file.
        for rows, count in zip(self.lists.rows, self.lists.held, strict=True):
            rows[:count].sort()

    def finish(self, ranks: np.ndarray) -> Ranking:
        """Order the candidates, cut them at the depth, and return them without gaps."""
        lists = zip(self.lists.rows, self.lists.scores, self.lists.held, strict=True)
        return join([in_total_order(rows[:count], scores[:count], ranks, self.depth) for rows, scores, count in lists])


def check_dimensions(queries: Vectors, corpus: Vectors, where: object) -> None:
    """Check that both matrices have one dimension."""
    if queries.dimension != corpus.dimension:
        problem = f"expected vectors of dimension {queries.dimension} as the queries have, found {corpus.dimension}"
        raise ArtifactError(where, problem, "embed both with the same model")


def rank(
    queries: Vectors,
    corpus: Vectors,
    ranks: np.ndarray,
    depth: int,
    skip: Skip,
    threads: int,
    slab: int,
    collect: Callable[[list[QueryBlock], Run], object],
    prepare: Callable[[], None] | None = None,
    capacity: int | None = None,
) -> Iterator[Ranking]:
    """Rank the candidates that `collect` puts into blocks of queries, by their final scores.

    Args:
        queries, corpus, ranks, depth, skip, threads: as those of `exact.search_exact`.
        slab: documents that are read before their pages are released.
        collect: fills the lists of the blocks that it is given; the second argument maps a task over items in threads,
            each of which multiplies matrices alone.
        prepare: called once in each thread.
        capacity: candidates that a query holds; None: a few times the depth.

    Yields:
        Rankings of consecutive queries.
    """
    check_dimensions(queries, corpus, "corpus embeddings")
    skip, depth = np.full(queries.rows, -1, np.int64) if skip is None else skip, min(depth, corpus.rows)
    capacity = capacity or 5 * depth + 256
    chunk = max(1, min(CHUNK, ENTRIES // capacity))
    with workers(threads, prepare) as run:
        for start in range(0, queries.rows, chunk):
            rows, ignored = np.ascontiguousarray(queries.array[start : start + chunk]), skip[start : start + chunk]
            size = min(BLOCK, -(-len(rows) // threads))
            pieces = [(slice(first, first + size), start + first) for first in range(0, len(rows), size)]
            blocks = [QueryBlock(rows[piece], ignored[piece], first, depth, capacity) for piece, first in pieces]
            collect(blocks, run)
            yield finish(blocks, corpus, ranks, run, slab)


def finish(blocks: list[QueryBlock], corpus: Vectors, ranks: np.ndarray, run: Run, slab: int) -> Ranking:
    """Compute final scores slab by slab, order the candidates, and cut them at the depth."""
    run(QueryBlock.settle, blocks)
    for start in range(0, corpus.rows, slab):
        stop = min(start + slab, corpus.rows)
        run(lambda b: kernels.rescore(b.lists, b.scored, stop, b.wide, corpus.array), blocks)  # noqa: B023 - run waits
        corpus.release(start, stop)
    return join(run(lambda block: block.finish(ranks), blocks))


@contextmanager
def workers(threads: int, prepare: Callable[[], None] | None = None) -> Iterator[Run]:
    """Provide a function that maps a task over items on `threads` threads; each thread multiplies matrices alone.

    `prepare` is called once in each of these threads.
    """
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads, initializer=prepare) as pool:
        yield lambda task, items: list(pool.map(task, items))
