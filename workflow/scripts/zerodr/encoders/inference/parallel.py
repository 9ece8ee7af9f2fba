"""Encode many batches at once: each worker thread computes whole batches.

A batch is never split between threads, so no thread waits inside a layer (on busy cores that waiting costs more than
the work), and its vectors do not depend on the number of threads.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch

AHEAD = 2  # queued batches for each worker
GPU_WORKERS = 2  # while one waits for its vectors, the other pads the next batch and starts it


class BatchEncoder(Protocol):
    """Encoder of one batch at a time: an `Encoder`, or a `Scorer` of pairs."""

    device: str

    def encode_batch(self, rows: Sequence[Any]) -> np.ndarray:
        """Encode B rows of token ids, (B, ...) float32."""


class Rows(Protocol):
    """Tokens of many texts, by row."""

    def __getitem__(self, row: int, /) -> Any:
        """Return the tokens of one text."""


def encode_batches(
    encoder: BatchEncoder, tokens: Rows, batches: Sequence[np.ndarray], threads: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows of each batch with their encodings (rows, ...) float32, in the order of `batches`.

    Args:
        encoder: on the CPU, `threads` batches run at once with one thread each; on a GPU two take turns.
        tokens: of all texts.
        batches: row numbers of `tokens`.
        threads: cores to use.
    """
    workers = threads if encoder.device == "cpu" else GPU_WORKERS
    before = torch.get_num_threads()

    def work(rows: np.ndarray) -> np.ndarray:
        return encoder.encode_batch([tokens[row] for row in rows])

    remaining, queue = iter(batches), deque[tuple[np.ndarray, Future[np.ndarray]]]()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for rows in islice(remaining, AHEAD * workers):
                queue.append((rows, pool.submit(work, rows)))
            while queue:
                rows, future = queue.popleft()
                vectors = future.result()
                for following in islice(remaining, 1):
                    queue.append((following, pool.submit(work, following)))
                yield rows, vectors
        finally:
            for _, future in queue:
                future.cancel()
            torch.set_num_threads(before)  # later threads would start with the workers' 1
