"""Many batches at once: each worker thread takes a whole batch and computes it alone.

A batch is never split between threads, so there is nothing to wait for inside a layer (on busy cores that waiting costs
more than the work), and its vectors do not depend on the number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch

AHEAD = 2  # batches that wait for each worker


class BatchEncoder(Protocol):
    """What works on one batch at a time: an `Encoder`, or a `Scorer` of pairs."""

    device: str

    def encode_batch(self, rows: Sequence[Any]) -> np.ndarray:
        """What comes of B rows of token ids, (B, ...) float32."""
        ...


class Rows(Protocol):
    """Tokens of many texts, by row."""

    def __getitem__(self, row: int, /) -> Any:
        """Tokens of one text."""
        ...


def encode_batches(
    encoder: BatchEncoder, tokens: Rows, batches: Sequence[np.ndarray], threads: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows of each batch with what the encoder makes of them (rows, ...) float32, in the order of `batches`.

    Args:
        encoder: on the CPU, `threads` batches run at once with one thread each; on a GPU one after another.
        tokens: of all texts.
        batches: row numbers of `tokens`.
        threads: cores to use.
    """
    workers = threads if encoder.device == "cpu" else 1
    before = torch.get_num_threads()

    def work(rows: np.ndarray) -> np.ndarray:
        return encoder.encode_batch([tokens[row] for row in rows])

    left, waiting = iter(batches), deque[tuple[np.ndarray, Future[np.ndarray]]]()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for rows in islice(left, AHEAD * workers):
                waiting.append((rows, pool.submit(work, rows)))
            while waiting:
                rows, made = waiting.popleft()
                vectors = made.result()
                for following in islice(left, 1):
                    waiting.append((following, pool.submit(work, following)))
                yield rows, vectors
        finally:
            for _, made in waiting:
                made.cancel()
            torch.set_num_threads(before)  # the workers' 1 is what later threads would start with
