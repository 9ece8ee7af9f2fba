"""Choose the training queries that are held out for evaluation during training."""

import hashlib
from collections.abc import Sequence

LARGEST_SHARE = 10  # dev queries are at most a tenth of the split


def held_out(queries: Sequence[str], count: int, seed: int) -> set[str]:
    """Choose dev queries of a split: those with the smallest hash of (seed, id), at most a tenth of all.

    The choice depends on the split's queries, not on which were mined: every stage of a chain holds out the same.
    """

    def rank(query: str) -> bytes:
        return hashlib.sha256(f"{seed} {query}".encode()).digest()

    distinct = sorted(set(queries), key=rank)
    return set(distinct[: min(count, len(distinct) // LARGEST_SHARE)])
