"""Compile the loops of exact search: deterministic scores, threshold scan, bounded candidate lists.

The final score of a pair is defined only here: products in float64 (exact for float32 factors), summed in fixed lanes,
rounded once to float32. It depends on the two vectors only, never on block shapes or threads. So searches over any
sharding are bit-identical. Matrix products only choose the candidates. As in `lexical/topk.py`, numpy's sorts stay
outside the loops: they take longer to compile than all else here.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from zerodr.lexical.topk import greatest

Array = np.ndarray
LANES = 64
STRIP = 64  # estimates that are tested at once


class Lists(NamedTuple):
    """Candidate lists of q queries; the loops change all arrays but `errors`.

    Attributes:
        held: int64 [q], candidates of each query.
        scores, rows: float32 and int32 [q, capacity], estimates or final scores, and corpus rows.
        lower: float64 [q], lower bounds of the depth-th best final score.
        errors: float64 [q]; |estimate - final score| is at most `errors + relative * |estimate|` for all documents.
    """

    held: Array
    scores: Array
    rows: Array
    lower: Array
    errors: Array


class Pairs(NamedTuple):
    """Inputs of final scores and total order: float64 [q, d], float32 [all, d], int32 [all] ascending order of ids."""

    queries: Array
    documents: Array
    ranks: Array


@njit(nogil=True, cache=True, inline="always")
def dot(query: Array, document: Array, lanes: Array) -> np.float32:
    """Compute the inner product of `query` [d] float64 (widened float32) and `document` [d] float32, in float32.

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


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def estimate_rows(query: Array, documents: Array, out: Array) -> None:
    """Compute float32 products [n] of rows of `documents` [n, d], float32 or int8, and a query [d], in any order."""
    for row in range(documents.shape[0]):
        total = np.float32(0.0)
        for i in range(documents.shape[1]):
            total += query[i] * np.float32(documents[row, i])
        out[row] = total


@njit(nogil=True, cache=True)
def encode_rows(documents: Array, codes: Array, scales: Array) -> float:
    """Round rows of `documents` [n, d] to `codes` [n, d] int8 times `scales` [n]; return the largest distance."""
    largest = 0.0
    for row in range(documents.shape[0]):
        vector, top = documents[row], np.float32(0.0)
        for i in range(vector.shape[0]):
            top = max(top, abs(vector[i]))
        scale = top / np.float32(127.0)
        scales[row] = scale
        square = 0.0
        for i in range(vector.shape[0]):
            code = np.rint(vector[i] / scale) if scale > 0 else np.float32(0.0)
            code = min(max(code, np.float32(-127.0)), np.float32(127.0))
            codes[row, i] = np.int8(code)
            rest = np.float64(vector[i]) - np.float64(scale) * np.float64(code)
            square += rest * rest
        largest = max(largest, np.sqrt(square))
    return largest


@njit(nogil=True, cache=True)
def score_rows(query: Array, documents: Array, out: Array) -> None:
    """Compute the final scores [n] of all rows of `documents` [n, d] for a query [d] float64."""
    lanes = np.empty(LANES)
    for row in range(documents.shape[0]):
        out[row] = dot(query, documents[row], lanes)


@njit(nogil=True, cache=True)
def square_norms(block: Array, out: Array) -> None:
    """Compute squared lengths [n] float64 of the rows of `block` [n, d]; NaN or infinity in a row shows in its sum."""
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
        # Norms only bound errors, with slack, so their summation order is free; `dot` fixes its own.
        out[row] = np.sum(lanes)


@njit(nogil=True, cache=True)
def order_keys(scores: Array, rows: Array, ranks: Array) -> Array:
    """Return one uint64 a candidate, in total order: score first, then the rank of the document's id."""
    # Flipping the sign bit of positive floats, and all bits of negative ones, makes unsigned order equal float order.
    bits = scores.view(np.uint32)
    keys = np.empty(scores.shape[0], np.uint64)
    for i in range(scores.shape[0]):
        high = bits[i] ^ np.uint32(0xFFFFFFFF) if bits[i] >> np.uint32(31) else bits[i] | np.uint32(0x80000000)
        keys[i] = (np.uint64(high) << np.uint64(32)) | np.uint64(ranks[rows[i]])
    return keys


@njit(nogil=True, cache=True)
def _narrow(i: int, lists: Lists, relative: float, depth: int, pairs: Pairs) -> None:
    """Make room in the candidate list of query `i`; raise the lower bound of its depth-th final score.

    Candidates whose estimate is surely below the depth-th best go first. When too many remain (near ties, copies of a
    document), all get their final score and the first `depth` in total order stay.
    """
    scores, rows, count = lists.scores, lists.rows, _drop(i, lists, relative, depth)
    if count > depth + (scores.shape[1] - depth) // 2:
        lanes = np.empty(LANES)
        for j in range(count):
            scores[i, j] = dot(pairs.queries[i], pairs.documents[rows[i, j]], lanes)
        keys, remaining = order_keys(scores[i, :count], rows[i, :count], pairs.ranks), 0
        last = greatest(keys.copy(), depth)
        for j in range(count):
            if keys[j] >= last:  # keys are distinct, because ranks are
                if keys[j] == last:
                    lists.lower[i] = max(lists.lower[i], np.float64(scores[i, j]))
                scores[i, remaining], rows[i, remaining] = scores[i, j], rows[i, j]
                remaining += 1
        lists.held[i] = depth


@njit(nogil=True, cache=True)
def _drop(i: int, lists: Lists, relative: float, depth: int) -> int:
    """Drop candidates of query `i` that are surely not in its result; return how many remain."""
    held, scores, rows, lower, errors = lists
    count, remaining = held[i], 0
    if count > depth:
        cut = greatest(scores[i, :count].copy(), depth)
        lower[i] = max(lower[i], _at_least(cut, errors[i], relative))
    threshold = _threshold(lower[i], errors[i], relative)
    for j in range(count):
        if scores[i, j] >= threshold:
            scores[i, remaining], rows[i, remaining] = scores[i, j], rows[i, j]
            remaining += 1
    held[i] = remaining
    return remaining


@njit(nogil=True, cache=True)
def _at_least(estimate: np.float32, error: float, relative: float) -> float:
    """Return the smallest final score of this estimate or a larger one."""
    return np.float64(estimate) - relative * abs(np.float64(estimate)) - error


@njit(nogil=True, cache=True)
def _threshold(lower: float, error: float, relative: float) -> np.float32:
    """Return the smallest estimate of a final score of `lower`, never rounded up."""
    value = lower - error
    # The error grows with |estimate|, so the bound is solved for the estimate; its sign decides which side widens.
    value = value / (1 + relative) if value > 0 else value / (1 - relative)
    rounded = np.float32(value)
    if np.float64(rounded) > value:
        rounded = np.nextafter(rounded, np.float32(-np.inf))
    return rounded


@njit(nogil=True, cache=True, inline="always")
def _any_above(strip: Array, threshold: np.float32) -> bool:
    """Report whether one of the `STRIP` estimates reaches the threshold; one vector loop without a branch."""
    # An early exit would branch on each element and stop the compiler from using vector instructions.
    hits = np.int32(0)
    for j in range(STRIP):
        hits |= np.int32(strip[j] >= threshold)
    return hits != 0


@njit(nogil=True, cache=True)
def collect(estimates: Array, first: int, skip: Array, lists: Lists, relative: float, depth: int, pairs: Pairs) -> int:
    """Add the documents of one block that may belong to the result to the candidate lists; return how many.

    Args:
        estimates: float32 [q, n], inner products of queries and documents `first..first+n`.
        first: row of the block's first document.
        skip: int64 [q], the row to ignore for each query, -1 for none.
        lists: candidates; its bounds hold for all documents seen so far and of this block.
        relative: factor of the error bound.
        depth: length of the result; less than the lists' capacity.
        pairs: inputs of final scores.
    """
    held, scores, rows, lower, errors = lists
    width, added = estimates.shape[1], 0
    for i in range(estimates.shape[0]):
        line = estimates[i]
        threshold = _threshold(lower[i], errors[i], relative)
        for start in range(0, width, STRIP):
            if start + STRIP <= width and not _any_above(line[start : start + STRIP], threshold):
                continue
            for j in range(start, min(start + STRIP, width)):
                if line[j] >= threshold and first + j != skip[i]:
                    if held[i] == scores.shape[1]:
                        _narrow(i, lists, relative, depth, pairs)
                        threshold = _threshold(lower[i], errors[i], relative)
                        if line[j] < threshold:
                            continue
                    scores[i, held[i]], rows[i, held[i]] = line[j], first + j
                    held[i] += 1
                    added += 1
    return added


@njit(nogil=True, cache=True)
def append(
    values: Array, numbers: Array, offsets: Array, lists: Lists, relative: float, depth: int, pairs: Pairs
) -> None:
    """Add listed documents to the candidate lists: query `i` gets entries `offsets[i]..offsets[i+1]`.

    Args:
        values, numbers: float32 and int32 [all], estimates and rows. The others are as in `collect`.
    """
    held, scores, rows, lower, errors = lists
    for i in range(held.shape[0]):
        for j in range(offsets[i], offsets[i + 1]):
            if held[i] == scores.shape[1]:
                _narrow(i, lists, relative, depth, pairs)
            if values[j] >= _threshold(lower[i], errors[i], relative):
                scores[i, held[i]], rows[i, held[i]] = values[j], numbers[j]
                held[i] += 1


@njit(nogil=True, cache=True)
def settle(lists: Lists, relative: float, depth: int) -> None:
    """Drop candidates that are surely not in the result."""
    for i in range(lists.held.shape[0]):
        _drop(i, lists, relative, depth)


@njit(nogil=True, cache=True)
def rescore(lists: Lists, scored: Array, stop: int, queries: Array, documents: Array) -> None:
    """Compute final scores of candidates with rows below `stop`; `scored` [q] counts those that have one."""
    lanes = np.empty(LANES)
    for i in range(lists.held.shape[0]):
        j = scored[i]
        while j < lists.held[i] and lists.rows[i, j] < stop:
            lists.scores[i, j] = dot(queries[i], documents[lists.rows[i, j]], lanes)
            j += 1
        scored[i] = j
