"""Search for one query at a time, exactly, for people and programs that wait for its answer.

Many queries share products of matrices (`exact.py`). One query gains nothing from these, and would pay for their
threads and candidate lists. Its time is that of reading all vectors. So codes of a byte a component are compared first
where vectors are in memory: a quarter of the bytes. Like float32 products they only choose candidates, by a bound of
their error. Final scores are as there, so rankings have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from zerodr.retrieval import kernels
from zerodr.retrieval.candidates import Norms, QueryBlock, check_dimensions, id_ranks, in_total_order
from zerodr.retrieval.feedback import vectors_of
from zerodr.retrieval.vectors import Vectors

PIECE = 16384  # documents of a task
CROWDED = 0.2  # share of candidates above which codes are too coarse
LONGEST = 1e30  # of a query whose products with codes stay finite


class SingleSearch:
    """Exact search for one query at a time. Threads may share it.

    Args:
        shards: the documents' vectors, in the order of the corpus.
        ids: of the documents.
        threads: worker threads, shared by all searches of the process.
        coded: compare codes first, which take a quarter of the vectors' memory.

    Raises:
        NonFiniteEmbedding: a vector holds NaN or infinity.

    Example:
        >>> documents = [Vectors(np.array([[1, 0], [0, 1], [1, 1]], np.float32))]
        >>> rows, scores = SingleSearch(documents, pa.array(["a", "b", "c"])).best(np.array([1, 0], np.float32), 2)
        >>> rows.tolist(), scores.tolist()  # of equal scores, the greater id comes first
        ([2, 0], [1.0, 1.0])
    """

    def __init__(self, shards: Sequence[Vectors], ids: pa.Array, threads: int = 1, coded: bool = False) -> None:
        self.shards, self.threads, self._ranks = list(shards), threads, id_ranks(ids)
        self._firsts = np.cumsum([0, *(shard.rows for shard in self.shards)]).tolist()
        self._pieces = [
            (number, start, min(start + PIECE, shard.rows))
            for number, shard in enumerate(self.shards)
            for start in range(0, shard.rows, PIECE)
        ]
        self._longest = 0.0
        for shard, first in zip(self.shards, self._firsts, strict=False):
            norms = Norms(shard, lambda row, first=first: str(ids[first + row]))  # type: ignore[misc]
            for stop in [*range(PIECE, shard.rows, PIECE), shard.rows]:
                self._longest = max(self._longest, norms.largest_until(stop, lambda task, all: [task(x) for x in all]))
                shard.release(0, stop)
        self._codes = [Codes(shard.array) for shard in self.shards] if coded else []

    def best(self, query: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Find the first documents in total order; return rows int64 and scores float32.

        Args:
            query: float32 [d].
            depth: fewer when the corpus is smaller.

        Raises:
            NonFiniteEmbedding: the query holds NaN or infinity.
            ArtifactError: scores leave float32.
        """
        check_dimensions(Vectors(query[None]), self.shards[0], "corpus embeddings")
        block = QueryBlock(np.ascontiguousarray(query[None], np.float32), np.full(1, -1), 0, depth, 0)
        block.bound_errors(self._longest)
        depth, errors = min(depth, len(self._ranks)), float(block.lists.errors[0])
        query, norm = block.queries[0], float(block.norms[0])
        rows = self._coded(query, depth, errors, norm) if self._codes and norm < LONGEST else None
        if rows is None:
            rows = _candidates(self._estimate(query, [shard.array for shard in self.shards]), depth, errors)
        scores = np.empty(len(rows), np.float32)
        kernels.score_rows(block.wide[0], vectors_of(self.shards, rows), scores)
        ranking = in_total_order(rows, scores, self._ranks, depth)
        return ranking.rows, ranking.scores

    def _coded(self, query: np.ndarray, depth: int, errors: float, norm: float) -> np.ndarray | None:
        """Choose candidates by codes; None where these leave too many.

        Args:
            errors: bound of a float32 product's rounding. Codes are at most twice as long as their vector.
            norm: of the query.
        """
        estimates = self._estimate(query, [codes.numbers for codes in self._codes])
        for codes, (first, stop) in zip(self._codes, pairwise(self._firsts), strict=True):
            estimates[first:stop] *= codes.scales
        distance = max(codes.distance for codes in self._codes)
        rows = _candidates(estimates, depth, 3 * errors + 1.001 * norm * distance)
        return rows if len(rows) <= CROWDED * len(estimates) else None

    def _estimate(self, query: np.ndarray, arrays: Sequence[np.ndarray]) -> np.ndarray:
        estimates = np.empty(len(self._ranks), np.float32)

        def work(piece: tuple[int, int, int]) -> None:
            number, start, stop = piece
            first = self._firsts[number]
            kernels.estimate_rows(query, arrays[number][start:stop], estimates[first + start : first + stop])
            self.shards[number].release(start, stop)

        list(map(work, self._pieces) if len(self._pieces) == 1 else _pool(self.threads).map(work, self._pieces))
        return estimates


class Codes:
    """Vectors rounded to a byte a component.

    Attributes:
        numbers: int8 [n, d].
        scales: float32 [n], factors of the rows.
        distance: upper limit of the distance between a vector and its rounded one.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        self.numbers, self.scales = np.empty(vectors.shape, np.int8), np.empty(len(vectors), np.float32)
        self.distance = kernels.encode_rows(vectors, self.numbers, self.scales)


def _candidates(estimates: np.ndarray, depth: int, error: float) -> np.ndarray:
    """List rows that may be among the first `depth`, where an estimate is at most `error` from its score."""
    cut = float(np.partition(estimates, len(estimates) - depth)[len(estimates) - depth])
    return np.flatnonzero(estimates >= cut - 2 * error)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "search")
