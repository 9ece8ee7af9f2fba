"""Choose negatives from rankings. Pure functions of arrays.

Rankings of Q queries are flat, one after the other: entry i belongs to the query `query[i]` (int64, ascending) and
has the rank `rank[i]` (int64, from 1). Random choices are functions of (seed, stage, query id, rank), so that neither
the order of queries nor their batches matter.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
Sampling = Literal["uniform", "top"]
MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def entries(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `query` and `rank` of the entries of rankings of (Q,) `sizes`."""
    ends = np.cumsum(sizes)
    query = np.repeat(np.arange(len(sizes)), sizes)
    return query, np.arange(1, len(query) + 1) - np.repeat(ends - sizes, sizes)


def words_of(queries: Iterable[str], purpose: str, seed: int, stage_index: int) -> np.ndarray:
    """Return a 64-bit word for each query id, uint64 (Q,): the start of its random numbers."""
    prefix = hashlib.blake2b(f"{purpose} {seed} {stage_index} ".encode(), digest_size=8)

    def word(query: str) -> bytes:
        digest = prefix.copy()
        digest.update(query.encode())
        return digest.digest()

    return np.frombuffer(b"".join(map(word, queries)), "<u8").astype(np.uint64)


def draws(words: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return output `numbers` (from 1) of SplitMix64 started at `words`, uint64, elementwise (Steele et al. 2014)."""
    state = words + numbers.astype(np.uint64) * GOLDEN
    for shift, factor in MIXERS:
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return state ^ (state >> np.uint64(31))


def sampled_rows(words: np.ndarray, count: int | None) -> np.ndarray:
    """Return rows of the `count` queries with the smallest words, ascending; all where there are no more."""
    if count is None or count >= len(words):
        return np.arange(len(words))
    return np.sort(np.argsort(words, kind="stable")[:count])


def choose(
    query: np.ndarray, rank: np.ndarray, allowed: np.ndarray, words: np.ndarray, count: int, sampling: Sampling
) -> np.ndarray:
    """Choose entries as negatives; return their positions, ascending, so by rank within a query.

    Args:
        query, rank: of all entries.
        allowed: (entries,) bool, True where an entry may be a negative.
        words: (Q,) uint64 of the queries.
        count: negatives of a query; all allowed entries where it has fewer.
        sampling: `top` chooses the first allowed entries; `uniform` each subset of `count` with equal probability
            (those with the smallest draws).
    """
    chosen = np.flatnonzero(allowed)
    if sampling == "uniform":
        owner = query[chosen]
        chosen = chosen[np.lexsort((draws(words[owner], rank[chosen]), owner))]
    owner = query[chosen]
    return np.sort(chosen[np.arange(len(chosen)) - np.searchsorted(owner, owner) < count])


class PairSet:
    """A set of pairs (row, number) of 8 bytes each.

    Args:
        rows, numbers: of the pairs.
        width: numbers are below it.
    """

    def __init__(self, rows: np.ndarray, numbers: np.ndarray, width: int) -> None:
        self._width = width
        self._keys = np.unique(self._key(rows, numbers))

    def contains(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Mark the pairs that are in the set, bool."""
        if not len(self._keys):
            return np.zeros(len(rows), bool)
        keys = self._key(rows, numbers)
        return self._keys[np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)] == keys

    def _key(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return rows.astype(np.int64) * self._width + numbers
