"""Compiled loops of exact search: deterministic scores, threshold scan, bounded candidate lists.

The final score of a pair is defined here and nowhere else: products in float64 (exact for float32 factors), summed in
fixed lanes, rounded once to float32. It depends on the two vectors only, never on block shapes or threads, so
that searches over any sharding agree bit by bit. Matrix products only choose the candidates.
"""

from __future__ import annotations

import numpy as np
from numba import njit

Array = np.ndarray
LANES = 64
STRIP = 64  # estimates that are tested at once


@njit(nogil=True, cache=True, inline="always")
def dot(query: Array, document: Array, lanes: Array) -> np.float32:
    """Inner product of `query` [d] float64 (widened float32) and `document` [d] float32, rounded to float32.

    Element i goes to lane i mod 64; the lanes are folded in halves. `lanes` is scratch, float64 [64].
    """
    n = document.shape[0]
    whole = n - n % LANES
    lanes[:] = 0.0
    for i in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] += query[i + lane] * np.float64(document[i + lane])
    for lane in range(n - whole):
        lanes[lane] += query[whole + lane] * np.float64(document[whole + lane])
    half = LANES // 2
    while half:
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
        half //= 2
    return np.float32(lanes[0]) + np.float32(0.0)  # -0 becomes 0: equal scores have equal bytes


@njit(nogil=True, cache=True)
def square_norms(block: Array, out: Array) -> None:
    """Squared lengths [n] float64 of the rows of `block` [n, d]; NaN or infinity in a row shows in its sum."""
    n, lanes = block.shape[1], np.empty(LANES)
    whole = n - n % LANES
    for row in range(block.shape[0]):
        vector = block[row]
        lanes[:] = 0.0
        for i in range(0, whole, LANES):
            for lane in range(LANES):
                lanes[lane] += np.float64(vector[i + lane]) * np.float64(vector[i + lane])
        for lane in range(n - whole):
            lanes[lane] += np.float64(vector[whole + lane]) * np.float64(vector[whole + lane])
        out[row] = np.sum(lanes)


@njit(nogil=True, cache=True)
def order_keys(scores: Array, rows: Array, ranks: Array) -> Array:
    """One uint64 a candidate whose order is the total order: score first, then the rank of the document's id."""
    bits = scores.view(np.uint32)
    keys = np.empty(scores.shape[0], np.uint64)
    for i in range(scores.shape[0]):
        high = bits[i] ^ np.uint32(0xFFFFFFFF) if bits[i] >> np.uint32(31) else bits[i] | np.uint32(0x80000000)
        keys[i] = (np.uint64(high) << np.uint64(32)) | np.uint64(ranks[rows[i]])
    return keys


@njit(nogil=True, cache=True)
def _best(scores: Array, rows: Array, ranks: Array, depth: int) -> Array:
    """Positions of the first `depth` candidates in total order."""
    return np.argsort(order_keys(scores, rows, ranks))[::-1][:depth]


@njit(nogil=True, cache=True)
def _narrow(
    i: int,
    held: Array,
    scores: Array,
    rows: Array,
    lower: float,
    error: float,
    relative: float,
    depth: int,
    query: Array,
    documents: Array,
    ranks: Array,
) -> float:
    """Make room in the candidate list of query `i`; returns the new lower bound of its depth-th final score.

    Candidates whose estimate is surely below the depth-th best go first. When too many remain (near ties, copies of a
    document), all get their final score and the first `depth` in total order stay.
    """
    count = held[i]
    estimates = scores[i, :count]
    cut = np.partition(estimates, count - depth)[count - depth]
    lower = max(lower, _at_least(cut, error, relative))
    threshold = _threshold(lower, error, relative)
    kept = 0
    for j in range(count):
        if estimates[j] >= threshold:
            scores[i, kept], rows[i, kept] = scores[i, j], rows[i, j]
            kept += 1
    if kept > depth + (scores.shape[1] - depth) // 2:
        lanes = np.empty(LANES)
        for j in range(kept):
            scores[i, j] = dot(query, documents[rows[i, j]], lanes)
        chosen = _best(scores[i, :kept], rows[i, :kept], ranks, depth)
        best_scores, best_rows = scores[i, :kept][chosen], rows[i, :kept][chosen]
        scores[i, :depth], rows[i, :depth] = best_scores, best_rows
        lower = max(lower, np.float64(best_scores[depth - 1]))
        kept = depth
    held[i] = kept
    return lower


@njit(nogil=True, cache=True)
def _at_least(estimate: np.float32, error: float, relative: float) -> float:
    """The smallest final score that this estimate or a larger one can mean."""
    return np.float64(estimate) - relative * abs(np.float64(estimate)) - error


@njit(nogil=True, cache=True)
def _threshold(lower: float, error: float, relative: float) -> np.float32:
    """The smallest estimate that can mean a final score of `lower`, never rounded up."""
    value = lower - error
    value = value / (1 + relative) if value > 0 else value / (1 - relative)
    rounded = np.float32(value)
    if np.float64(rounded) > value:
        rounded = np.nextafter(rounded, np.float32(-np.inf))
    return rounded


@njit(nogil=True, cache=True, inline="always")
def _any_above(strip: Array, threshold: np.float32) -> bool:
    """Whether one of the `STRIP` estimates reaches the threshold; one vector loop without a branch."""
    hits = np.int32(0)
    for j in range(STRIP):
        hits |= np.int32(strip[j] >= threshold)
    return hits != 0


@njit(nogil=True, cache=True)
def collect(
    estimates: Array,
    first: int,
    skip: Array,
    held: Array,
    scores: Array,
    rows: Array,
    lower: Array,
    errors: Array,
    relative: float,
    depth: int,
    queries: Array,
    documents: Array,
    ranks: Array,
) -> int:
    """Add the documents of one block that may belong to the result to the candidate lists; returns how many.

    Args:
        estimates: float32 [q, n], inner products of queries and documents `first..first+n`.
        first: row of the block's first document.
        skip: int64 [q], the row that is left out for each query, -1 for none.
        held: int64 [q], candidates of each query; changed.
        scores, rows: float32 and int32 [q, capacity], estimates and rows of the candidates; changed.
        lower: float64 [q], lower bounds of the depth-th best final score; changed.
        errors, relative: float64 [q] and a factor; |estimate - final score| is at most `errors + relative * |estimate|`
            for all documents seen so far and of this block.
        depth: length of the result; less than capacity.
        queries: float64 [q, d]. documents: float32 [all, d]. ranks: int32 [all], ascending order of the ids.
    """
    width, taken = estimates.shape[1], 0
    for i in range(estimates.shape[0]):
        line = estimates[i]
        threshold = _threshold(lower[i], errors[i], relative)
        for start in range(0, width, STRIP):
            if start + STRIP <= width and not _any_above(line[start : start + STRIP], threshold):
                continue
            for j in range(start, min(start + STRIP, width)):
                if line[j] >= threshold and first + j != skip[i]:
                    if held[i] == scores.shape[1]:
                        lower[i] = _narrow(
                            i, held, scores, rows, lower[i], errors[i], relative, depth, queries[i], documents, ranks
                        )
                        threshold = _threshold(lower[i], errors[i], relative)
                        if line[j] < threshold:
                            continue
                    scores[i, held[i]], rows[i, held[i]] = line[j], first + j
                    held[i] += 1
                    taken += 1
    return taken


@njit(nogil=True, cache=True)
def append(
    values: Array,
    numbers: Array,
    offsets: Array,
    held: Array,
    scores: Array,
    rows: Array,
    lower: Array,
    errors: Array,
    relative: float,
    depth: int,
    queries: Array,
    documents: Array,
    ranks: Array,
) -> None:
    """Add listed documents to the candidate lists: query `i` gets entries `offsets[i]..offsets[i+1]`.

    Args:
        values, numbers: float32 and int32 [all], estimates and rows. The others are as in `collect`.
    """
    for i in range(held.shape[0]):
        for j in range(offsets[i], offsets[i + 1]):
            if held[i] == scores.shape[1]:
                lower[i] = _narrow(
                    i, held, scores, rows, lower[i], errors[i], relative, depth, queries[i], documents, ranks
                )
            if values[j] >= _threshold(lower[i], errors[i], relative):
                scores[i, held[i]], rows[i, held[i]] = values[j], numbers[j]
                held[i] += 1


@njit(nogil=True, cache=True)
def settle(held: Array, scores: Array, rows: Array, lower: Array, errors: Array, relative: float, depth: int) -> None:
    """Drop what is surely not in the result, and sort each candidate list by row for the pass of final scores."""
    for i in range(held.shape[0]):
        count = held[i]
        if count > depth:
            cut = np.partition(scores[i, :count], count - depth)[count - depth]
            lower[i] = max(lower[i], _at_least(cut, errors[i], relative))
        threshold = _threshold(lower[i], errors[i], relative)
        kept = 0
        for j in range(count):
            if scores[i, j] >= threshold:
                scores[i, kept], rows[i, kept] = scores[i, j], rows[i, j]
                kept += 1
        held[i] = kept
        rows[i, :kept] = np.sort(rows[i, :kept])


@njit(nogil=True, cache=True)
def rescore(held: Array, scores: Array, rows: Array, done: Array, stop: int, queries: Array, documents: Array) -> None:
    """Final scores of the candidates with rows below `stop`; `done` [q] counts what has one already."""
    lanes = np.empty(LANES)
    for i in range(held.shape[0]):
        j = done[i]
        while j < held[i] and rows[i, j] < stop:
            scores[i, j] = dot(queries[i], documents[rows[i, j]], lanes)
            j += 1
        done[i] = j


@njit(nogil=True, cache=True)
def finish(held: Array, scores: Array, rows: Array, depth: int, ranks: Array) -> None:
    """Bring each candidate list into total order and cut it at `depth`."""
    for i in range(held.shape[0]):
        count = held[i]
        chosen = _best(scores[i, :count], rows[i, :count], ranks, depth)
        best_scores, best_rows = scores[i, :count][chosen], rows[i, :count][chosen]
        held[i] = chosen.shape[0]
        scores[i, : held[i]], rows[i, : held[i]] = best_scores, best_rows
