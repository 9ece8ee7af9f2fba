"""Search for one query at a time, exactly, for people and programs that wait for its answer.

Many queries share products of matrices (`exact.py`). One query gains nothing from these, and would pay for their
threads and candidate lists. Error bounds and final scores are as there, so rankings have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pyarrow as pa

from zerodr.retrieval import kernels
from zerodr.retrieval.candidates import Norms, QueryBlock, check_dimensions, id_ranks
from zerodr.retrieval.feedback import vectors_of
from zerodr.retrieval.vectors import Vectors

PIECE = 16384  # documents of a task


class SingleSearch:
    """Exact search for one query at a time. Threads may share it.

    Args:
        shards: the documents' vectors, in the order of the corpus.
        ids: of the documents.
        threads: worker threads, shared by all searches of the process.

    Raises:
        NonFiniteEmbedding: a vector holds NaN or infinity.

    Example:
        >>> documents = [Vectors(np.array([[1, 0], [0, 1], [1, 1]], np.float32))]
        >>> rows, scores = SingleSearch(documents, pa.array(["a", "b", "c"])).best(np.array([1, 0], np.float32), 2)
        >>> rows.tolist(), scores.tolist()  # of equal scores, the greater id comes first
        ([2, 0], [1.0, 1.0])
    """

    def __init__(self, shards: Sequence[Vectors], ids: pa.Array, threads: int = 1) -> None:
        self.shards, self.threads, self._ranks = list(shards), threads, id_ranks(ids)
        firsts = np.cumsum([0, *(shard.rows for shard in self.shards)]).tolist()
        self._pieces = [
            (shard, start, min(start + PIECE, shard.rows), first)
            for shard, first in zip(self.shards, firsts, strict=False)
            for start in range(0, shard.rows, PIECE)
        ]
        self._longest = 0.0
        for shard, first in zip(self.shards, firsts, strict=False):
            norms = Norms(shard, lambda row, first=first: str(ids[first + row]))  # type: ignore[misc]
            for stop in [*range(PIECE, shard.rows, PIECE), shard.rows]:
                self._longest = max(self._longest, norms.largest_until(stop, lambda task, all: [task(x) for x in all]))
                shard.release(0, stop)

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
        depth = min(depth, len(self._ranks))
        estimates = self._estimate(block.queries[0])
        cut = float(np.partition(estimates, len(estimates) - depth)[len(estimates) - depth])
        rows = np.flatnonzero(estimates >= cut - 2 * float(block.lists.errors[0]))
        scores = np.empty(len(rows), np.float32)
        kernels.score_rows(block.wide[0], vectors_of(self.shards, rows), scores)
        order = np.argsort(kernels.order_keys(scores, rows.astype(np.int32), self._ranks))[::-1][:depth]
        return rows[order], scores[order]

    def _estimate(self, query: np.ndarray) -> np.ndarray:
        estimates = np.empty(len(self._ranks), np.float32)

        def work(piece: tuple[Vectors, int, int, int]) -> None:
            shard, start, stop, first = piece
            kernels.estimate_rows(query, shard.array[start:stop], estimates[first + start : first + stop])
            shard.release(start, stop)

        list(map(work, self._pieces) if len(self._pieces) == 1 else _pool(self.threads).map(work, self._pieces))
        return estimates


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "search")
