"""Search exactly with matrix products on a GPU; final scores of candidates are those of the CPU."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.retrieval.budget import DeviceMemory, GpuMemory
from zerodr.retrieval.candidates import CHUNK, NameRow, Norms, QueryBlock, Ranking, Run, rank
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
        # The corpus is mapped read-only, and torch warns of tensors over memory that it may not write.
        rows = torch.from_numpy(self.corpus.array[first:stop].copy()).to(self.device)
        self.copied += 1
        if number < self.resident:
            self._held[number] = rows
        return rows


def search_gpu(
    queries: Vectors,
    corpus: Vectors,
    ranks: np.ndarray,
    depth: int,
    skip: np.ndarray | None,
    threads: int,
    device: str,
    name_row: NameRow = str,
    slab: int = SLAB,
    room: int = 0,
) -> Iterator[Ranking]:
    """Search as `exact.search_exact`, bit-identical, with float32 products on torch device `device`.

    Args:
        slab: documents of a matrix product.
        room: bytes of the device that documents may occupy between chunks of queries; the result is the same.
    """
    norms, slabs = Norms(corpus, name_row), Slabs(corpus, device, slab, room)
    torch.backends.cuda.matmul.allow_tf32 = False  # the error bound is that of float32

    @torch.inference_mode()
    def collect(blocks: list[QueryBlock], run: Run) -> None:
        on_device = torch.from_numpy(np.concatenate([b.queries for b in blocks])).to(device)
        for number in range(len(slabs)):
            first, stop = slabs.bounds(number)
            largest = norms.largest_until(stop, run)
            for block in blocks:
                block.bound_errors(largest)
            _collect(on_device @ slabs.rows(number).T, first, blocks, corpus.array, ranks, run)
            corpus.release(first, stop)

    yield from rank(queries, corpus, ranks, depth, skip, threads, slab, collect)


def _collect(
    estimates: torch.Tensor, first: int, blocks: list[QueryBlock], documents: np.ndarray, ranks: np.ndarray, run: Run
) -> None:
    """Raise the lower bounds by this slab's depth-th best, then add what remains to the candidate lists."""
    _mask(estimates, np.concatenate([b.skip for b in blocks]) - first)
    errors = np.concatenate([b.lists.errors for b in blocks])
    lower = np.concatenate([b.lists.lower for b in blocks])
    # topk raises where it is asked for more columns than there are.
    if estimates.shape[1] >= blocks[0].depth:
        cut = estimates.topk(blocks[0].depth, dim=1, sorted=False).values.amin(1)
        lower = np.maximum(lower, cut.cpu().numpy().astype(np.float64) - errors)
    # Rounding to float32 may go up; one step down keeps the threshold safe.
    thresholds = np.nextafter((lower - errors).astype(np.float32), np.float32(-np.inf))
    chosen = estimates >= torch.from_numpy(thresholds).to(estimates.device)[:, None]
    # With too few documents so far, thresholds are minus infinity and would let masked entries through.
    chosen &= estimates > -torch.inf
    queries, columns = chosen.nonzero(as_tuple=True)
    values = estimates[queries, columns].cpu().numpy()
    numbers = (columns + first).to(torch.int32).cpu().numpy()
    offsets = np.concatenate([[0], np.cumsum(chosen.sum(1).cpu().numpy())])
    starts = np.cumsum([0] + [len(b.queries) for b in blocks])

    def add(number: int) -> None:
        block, begin, end = blocks[number], starts[number], starts[number + 1]
        block.lists.lower[:] = lower[begin:end]
        block.append(values, numbers, offsets[begin : end + 1], documents, ranks)

    run(add, list(range(len(blocks))))


def _mask(estimates: torch.Tensor, columns: np.ndarray) -> None:
    """Set the entry of each row at `columns` to minus infinity where the column exists."""
    rows = np.flatnonzero((columns >= 0) & (columns < estimates.shape[1]))
    estimates[torch.from_numpy(rows), torch.from_numpy(columns[rows])] = -torch.inf


def choose_room(corpus: Vectors, memory: Callable[[], DeviceMemory] = GpuMemory) -> tuple[int, dict[str, Any]]:
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
