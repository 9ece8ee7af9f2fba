"""Batch texts of similar length within a budget of padded tokens, and prepare windows ahead. Deterministic."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Generic, TypeVar

import numpy as np

Text = tuple[str, str]
T = TypeVar("T")


def plan_batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Plan batches, longest texts first.

    Args:
        lengths: tokens of each text, (n,) int.
        budget: upper limit of rows times the longest row of a batch; a longer text is a batch alone.

    Returns:
        disjoint arrays of row numbers that cover all rows; equal lengths stay in order.

    Example:
        >>> [rows.tolist() for rows in plan_batches(np.array([3, 9, 4, 4]), budget=12)]
        [[1], [2, 3, 0]]
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
    """Count the tokens that the model computes, padding included.

    >>> padded_tokens(np.array([3, 9, 4, 4]), [np.array([1]), np.array([2, 3, 0])])
    21
    """
    return sum(len(rows) * max(1, int(lengths[rows].max())) for rows in batches)


class Ahead(Generic[T]):
    """Items of an iterator, each computed in a thread while the one before it is used.

    Attributes:
        waited: seconds that the user waited for items after the first.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self.items, self.waited = iter(items), 0.0

    def __iter__(self) -> Iterator[T]:
        end, first = object(), True
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(next, self.items, end)
            while True:
                started = time.monotonic()
                item = coming.result()
                self.waited += 0.0 if first else time.monotonic() - started
                if item is end:
                    return
                coming, first = pool.submit(next, self.items, end), False
                yield item  # type: ignore[misc]


def windows(texts: Iterable[Text], size: int) -> Iterator[list[Text]]:
    """Yield `texts` (id, text) in lists of `size`, the last one shorter; one list is in memory at once.

    >>> list(windows([("a", "one"), ("b", "two"), ("c", "three")], 2))
    [[('a', 'one'), ('b', 'two')], [('c', 'three')]]
    """
    remaining = iter(texts)
    while window := list(islice(remaining, size)):
        yield window
