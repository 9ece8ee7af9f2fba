"""Adding score columns and choosing the best k, compiled by numba."""

from __future__ import annotations

import numba
import numpy as np

LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def search_terms(
    ends: np.ndarray,
    documents: np.ndarray,
    scores: np.ndarray,
    sizes: np.ndarray,
    rows: np.ndarray,
    boosts: np.ndarray,
    total: int,
    depth: int,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rank documents for queries of terms.

    Args:
        ends: int64 [terms + 1]; term t has the postings ends[t]..ends[t + 1].
        documents: int32 [postings], ascending within a term.
        scores: float32 [postings], above 0.
        sizes: int64 [queries + 1]; query q has the terms sizes[q]..sizes[q + 1] of `rows` and `boosts`.
        rows, boosts: term numbers int64 and their weights float32.
        total: number of documents.
        depth: places of a ranking.
        threads: cores.

    Returns:
        documents int32 [queries, depth], scores float32 [queries, depth], hits int32 [queries].
    """
    queries, depth = len(sizes) - 1, max(min(depth, total), 1)
    found, best = np.zeros((queries, depth), np.int32), np.zeros((queries, depth), np.float32)
    counts = np.zeros(queries, np.int32)
    workers = max(1, min(threads, queries, numba.config.NUMBA_NUM_THREADS))
    run = _alone if workers == 1 else _together
    if workers > 1:
        numba.set_num_threads(workers)
    run(ends, documents, scores, sizes, rows, boosts, total, depth, workers, found, best, counts)
    return found, best, counts


def _rank(ends, documents, scores, sizes, rows, boosts, total, depth, workers, found, best, counts):  # type: ignore[no-untyped-def]
    """Sums are float64, as in Lucene; a hit's key is its float32 score, then its number counted downwards."""
    for worker in numba.prange(workers):
        sums = np.zeros(total, np.float64)
        rounded = np.zeros(total, np.float32)
        bits = rounded.view(np.uint32)
        keys = np.empty(max(4 * depth, 1024), np.uint64)
        for query in range(worker, len(sizes) - 1, workers):
            for at in range(sizes[query], sizes[query + 1]):
                boost = boosts[at]
                for posting in range(ends[rows[at]], ends[rows[at] + 1]):
                    sums[documents[posting]] += boost * scores[posting]
            for number in range(total):
                rounded[number] = sums[number]
                sums[number] = 0
            held, bar = 0, np.uint64(0)
            for number in range(total):
                if bits[number] != 0:
                    key = (np.uint64(bits[number]) << SHIFT) | (LOW - np.uint64(number))
                    if key > bar:
                        keys[held] = key
                        held += 1
                        if held == len(keys):
                            keys[:depth] = np.partition(keys, held - depth)[held - depth :]
                            bar, held = keys[:depth].min(), depth
            ordered = np.sort(keys[:held])
            count = min(held, depth)
            counts[query] = count
            for place in range(count):
                number = LOW - (ordered[held - 1 - place] & LOW)
                found[query, place] = number
                best[query, place] = rounded[number]


_alone = numba.njit(nogil=True, cache=True)(_rank)
_together = numba.njit(parallel=True, nogil=True, cache=True)(_rank)
