"""Add score columns and choose the best k, compiled by numba.

A clone's first search compiles. Sorts, assigned slices and `prange` took most of that time, so loops here go without.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np

LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)
BINS = 4096
LAST_BIN = np.uint64(BINS - 1)
BIN_SHIFT = np.uint64(32 + 13)
"""1024 bins for each doubling of the score, four doublings."""


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
        depth: length of a ranking.
        threads: cores.

    Returns:
        documents int32 [queries, depth], scores float32 [queries, depth], hits int32 [queries].
    """
    queries, depth = len(sizes) - 1, max(min(depth, total), 1)
    ranked, best = np.zeros((queries, depth), np.int32), np.zeros((queries, depth), np.float32)
    counts = np.zeros(queries, np.int32)
    workers = max(1, min(threads, queries))

    def work(worker: int) -> None:
        terms = ends, documents, scores, sizes, rows, boosts
        _rank(*terms, total, depth, worker, workers, ranked, best, counts)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    return ranked, best, counts


@numba.njit(nogil=True, cache=True)
def greatest(values: np.ndarray, k: int) -> Any:
    """Return the `k`-th greatest of `values` [n], 1 <= k <= n, and reorder them: Hoare's selection."""
    low, high, position = 0, len(values) - 1, k - 1
    while low < high:
        pivot, left, right = values[(low + high) // 2], low, high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left, right = left + 1, right - 1
        if position <= right:
            high = right
        elif position >= left:
            low = left
        else:
            break
    return values[position]


@numba.njit(nogil=True, cache=True)
def _rank(ends, documents, scores, sizes, rows, boosts, total, depth, worker, workers, ranked, best, counts):  # type: ignore[no-untyped-def]
    """Rank the queries `worker`, `worker + workers` and so on. Sums are float64, as in Lucene.

    A hit's key is its float32 score, then its number counted downwards, so that the greatest keys are the ranking.
    """
    sums = np.zeros(total, np.float64)
    rounded = np.zeros(total, np.float32)
    touched = np.empty(total, np.int32)
    bits = rounded.view(np.uint32)
    keys = np.empty(max(4 * depth, 1024), np.uint64)
    spare = np.empty_like(keys)
    bins = np.zeros(BINS, np.int32)
    for query in range(worker, len(sizes) - 1, workers):
        reached = 0
        for at in range(sizes[query], sizes[query + 1]):
            boost = np.float64(boosts[at])
            for posting in range(ends[rows[at]], ends[rows[at] + 1]):
                number = documents[posting]
                # Scores of postings are above 0, so a sum of 0 means: not reached yet. No second array of flags is
                # needed.
                if sums[number] == 0:
                    touched[reached] = number
                    reached += 1
                sums[number] += boost * scores[posting]
        held, bar = 0, np.uint64(0)
        for at in range(reached):
            number = touched[at]
            # Ties are ties of float32 scores, as in Lucene: sums that differ in float64 alone must compare equal.
            rounded[number] = sums[number]
            sums[number] = 0
            # Positive floats order like their bits, so no transformation as in `retrieval/kernels.py` is needed.
            key = (np.uint64(bits[number]) << SHIFT) | (LOW - np.uint64(number))
            if key > bar:
                keys[held] = key
                held += 1
                if held == len(keys):
                    held = _keep_best(keys, held, depth, spare, bins)
                    bar = keys[:held].min()
        held = _keep_best(keys, held, depth, spare, bins)
        _sort_down(keys, held, spare, bins)
        counts[query] = held
        for rank in range(held):
            number = LOW - (spare[rank] & LOW)
            ranked[query, rank] = number
            best[query, rank] = rounded[number]


@numba.njit(nogil=True, cache=True)
def _keep_best(keys, held, depth, spare, bins):  # type: ignore[no-untyped-def]
    """Move the `depth` greatest of `held` keys to the front; return their number.

    A histogram over the leading bits of the scores finds the bin of the last rank; only that bin is partitioned.
    """
    if held <= depth:
        return held
    bins[:] = 0
    top = keys[:held].max() >> BIN_SHIFT
    for at in range(held):
        bins[min(top - (keys[at] >> BIN_SHIFT), LAST_BIN)] += 1
    edge, above = 0, 0
    while above + bins[edge] < depth:
        above += bins[edge]
        edge += 1
    front, tied = 0, 0
    for at in range(held):
        bin_ = min(top - (keys[at] >> BIN_SHIFT), LAST_BIN)
        if bin_ < edge:
            keys[front] = keys[at]
            front += 1
        elif bin_ == edge:
            spare[tied] = keys[at]
            tied += 1
    greatest(spare[:tied], depth - front)  # brings these to the front of `spare`
    for at in range(front, depth):
        keys[at] = spare[at - front]
    return depth


@numba.njit(nogil=True, cache=True)
def _sort_down(keys, held, spare, bins):  # type: ignore[no-untyped-def]
    """Put the first `held` keys into `spare`, greatest first: bins in order, then insertion within the bins."""
    if held == 0:
        return
    bins[:] = 0
    top = keys[:held].max() >> BIN_SHIFT
    for at in range(held):
        bins[min(top - (keys[at] >> BIN_SHIFT), LAST_BIN)] += 1
    start = 0
    for number in range(BINS):
        start, bins[number] = start + bins[number], start
    for at in range(held):
        bin_ = min(top - (keys[at] >> BIN_SHIFT), LAST_BIN)
        spare[bins[bin_]] = keys[at]
        bins[bin_] += 1
    for at in range(1, held):
        key, slot = spare[at], at
        while slot > 0 and spare[slot - 1] < key:
            spare[slot] = spare[slot - 1]
            slot -= 1
        spare[slot] = key
