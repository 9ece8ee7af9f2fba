"""Prepare the texts of coming steps in threads while the current step computes.

What is prepared is a pure function of the step, so threads change no number. The tokenizer works without Python's lock,
on all cores, so a second thread arranges one step while the first step's texts are tokenised.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

WORKERS, DEPTH = 2, 3  # threads; steps that are prepared ahead
T = TypeVar("T")


class Feed(Generic[T]):
    """Prepared steps, in order.

    Args:
        make: step -> what it needs.
        steps: end of the run.
        workers: threads.

    Attributes:
        waited: seconds that `get` spent waiting for data, after the first step.
    """

    def __init__(self, make: Callable[[int], T], steps: int, workers: int = WORKERS) -> None:
        self.make, self.steps, self.waited = make, steps, 0.0
        self._pool = ThreadPoolExecutor(workers)
        self._depth = max(DEPTH, workers + 1)
        self._coming: dict[int, Future[T]] = {}
        self._first = True

    def get(self, step: int) -> T:
        """Return what step `step` needs; the steps after it are begun."""
        for ahead in range(step, min(step + 1 + self._depth, self.steps)):
            if ahead not in self._coming:
                self._coming[ahead] = self._pool.submit(self.make, ahead)
        started = time.perf_counter()
        prepared = self._coming.pop(step).result()
        if not self._first:
            self.waited += time.perf_counter() - started
        self._first = False
        return prepared

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
