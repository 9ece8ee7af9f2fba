"""Which texts share a batch: equal lengths together, within a budget of padded tokens. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

Text = tuple[str, str]


def plan_batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Rows of each batch, longest texts first.

    Args:
        lengths: tokens of each text, (n,) int.
        budget: rows times the longest row of a batch stay within it; a longer text is a batch of its own.

    Returns:
        disjoint arrays of row numbers that cover all rows; equal lengths keep their order.
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    batches, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + max(1, budget // longest)
        batches.append(order[start:stop])
        start = stop
    return batches


def padded_tokens(lengths: np.ndarray, batches: Iterable[np.ndarray]) -> int:
    """Tokens that the model works through, padding included."""
    return sum(len(rows) * max(1, int(lengths[rows].max())) for rows in batches)


def windows(texts: Iterable[Text], size: int) -> Iterator[list[Text]]:
    """`texts` (id, text) in lists of `size`, the last one shorter; never holds more than one list."""
    kept: list[Text] = []
    for text in texts:
        kept.append(text)
        if len(kept) == size:
            yield kept
            kept = []
    if kept:
        yield kept
