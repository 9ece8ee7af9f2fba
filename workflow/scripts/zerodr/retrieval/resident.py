"""Hold documents on a GPU between chunks of queries: as many slabs as its free memory has room for."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zerodr.retrieval.budget import GpuMemory, Memory
from zerodr.retrieval.candidates import CHUNK
from zerodr.retrieval.vectors import Vectors

log = logging.getLogger("zerodr")
SLAB = 65536  # documents of one matrix product
SHARE = 0.8  # of free memory that slabs and one chunk's estimates take together
ESTIMATES = 3  # estimates of a chunk, and what is computed of them, in units of one float32 a pair
FLOAT_BYTES = 4


class Slabs:
    """The rows of a matrix on a device, slab by slab. The first ones stay there, others are copied each time.

    Args:
        corpus: [n, d].
        device: a torch device.
        slab: rows of a slab.
        room: bytes that slabs may occupy for good.

    Attributes:
        resident: number of slabs that stay.
        copied: slabs that were copied to the device so far.
    """

    def __init__(self, corpus: Vectors, device: str, slab: int = SLAB, room: int = 0) -> None:
        self.corpus, self.device, self.slab, self.room = corpus, device, slab, room
        self.resident = min(len(self), max(0, room) // (FLOAT_BYTES * slab * max(1, corpus.dimension)))
        self.copied = 0
        self._held: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return -(-self.corpus.rows // self.slab)

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first and last-plus-one row of a slab."""
        first = number * self.slab
        return first, min(first + self.slab, self.corpus.rows)

    def rows(self, number: int) -> Tensor:
        """Return a slab's rows (m, d) float32 on the device."""
        if number in self._held:
            return self._held[number]
        first, stop = self.bounds(number)
        rows = torch.from_numpy(self.corpus.array[first:stop].copy()).to(self.device)
        self.copied += 1
        if number < self.resident:
            self._held[number] = rows
        return rows


def choose_room(corpus: Vectors, memory: Callable[[], Memory] = GpuMemory) -> tuple[int, dict[str, Any]]:
    """Choose how many bytes documents may occupy on the GPU for good.

    Returns:
        bytes: SHARE of the free memory, less what a chunk's estimates need; and facts for lineage.
    """
    card = memory()
    free = card.free()
    room = max(0, int(SHARE * free) - ESTIMATES * FLOAT_BYTES * CHUNK * min(SLAB, corpus.rows))
    slabs = Slabs(corpus, "cpu", room=room)
    log.info("%d of %d slabs of documents stay on %s", slabs.resident, len(slabs), card.name)
    facts = {"free_bytes": free, "room_bytes": room, "slabs": len(slabs), "resident": slabs.resident}
    return room, facts | {"device": card.name}
