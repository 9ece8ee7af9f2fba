"""Fill an embedding file window by window, so that it survives `kill -9`.

`embeddings.npy` has its full size from the start, so a full disk is an error at once instead of a crash in the middle.
`progress.json` is replaced only after its data were flushed.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from zerodr.artifacts.manifest import link_or_copy
from zerodr.artifacts.record import read_state, write_json

log = logging.getLogger("zerodr")


class EmbeddingStore:
    """A float32 matrix [rows, dimension] in `folder`, with the progress of filling it.

    Args:
        folder: the stage's state.
        rows: number of all texts.
        dimension: components of a vector.
        key: facts (backend, versions, batch plan) that must be equal to resume an earlier attempt.

    Attributes:
        finished: rows of all finished windows.
        batches: batches done of the window after them.
        totals: counters that survive a kill with the rows.
    """

    def __init__(self, folder: Path, rows: int, dimension: int, key: dict[str, Any]) -> None:
        self.path, self._progress = folder / "embeddings.npy", folder / "progress.json"
        self.rows, self.dimension = rows, dimension
        self.key = key | {"rows": rows, "dimension": dimension}
        self.finished, self.batches = 0, 0
        self.totals: dict[str, int] = {}
        if not self._resume():
            self._create()

    def _header(self) -> bytes:
        stream = BytesIO()
        shape = (self.rows, self.dimension)
        # The header's bytes follow from the shape alone, so rows have known offsets before any is written.
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
        return stream.getvalue()

    def _resume(self) -> bool:
        state = read_state(self._progress)
        if state is None or not self.path.exists():
            return False
        changed = sorted(name for name in self.key | state["key"] if self.key.get(name) != state["key"].get(name))
        if changed or self.path.stat().st_size != len(self._header()) + 4 * self.rows * self.dimension:
            log.info("start again instead of resuming; changed: %s", ", ".join(changed) or "size of the file")
            return False
        self.finished, self.batches, self.totals = state["finished"], state["batches"], state["totals"]
        return True

    def _create(self) -> None:
        # Progress goes first: a kill between the two must not leave progress about a file that is gone.
        self._progress.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        header = self._header()
        with open(self.path, "wb") as stream:
            stream.write(header)
            stream.flush()
            if self.rows:
                # A sparse file would let a full disk kill the process by SIGBUS in a mapped write.
                os.posix_fallocate(stream.fileno(), 0, len(header) + 4 * self.rows * self.dimension)
        self.save(0, 0)

    @contextmanager
    def window(self, count: int) -> Iterator[np.memmap]:
        """Map the next `count` rows for writing; they reach the file when the block ends."""
        offset = len(self._header()) + 4 * self.finished * self.dimension
        mapped = np.memmap(self.path, np.float32, "r+", offset, (count, self.dimension))
        try:
            yield mapped
        finally:
            mapped.flush()

    def save(self, finished: int, batches: int) -> None:
        """Record that `finished` rows and `batches` of the next window are in the file. Flush before."""
        self.finished, self.batches = finished, batches
        write_json(self._progress, {"key": self.key, "finished": finished, "batches": batches, "totals": self.totals})

    def publish(self, target: Path) -> None:
        """Link (or copy) the whole file to `target`; the state's file remains until the stage is done."""
        target.unlink(missing_ok=True)
        link_or_copy(self.path, target)
