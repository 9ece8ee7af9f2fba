"""Search exactly with matrix products on a GPU; final scores of candidates are those of the CPU."""

from collections.abc import Iterator

import numpy as np
import torch

from zerodr.retrieval.candidates import NameRow, Norms, QueryBlock, Ranking, Run, chunks, finish, workers
from zerodr.retrieval.exact import check_dimensions
from zerodr.retrieval.resident import SLAB, Slabs
from zerodr.retrieval.vectors import Vectors


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
    check_dimensions(queries, corpus, "corpus embeddings")
    norms, slabs = Norms(corpus, name_row), Slabs(corpus, device, slab, room)
    torch.backends.cuda.matmul.allow_tf32 = False  # the error bound is that of float32
    with workers(threads) as run, torch.inference_mode():
        for blocks in chunks(queries, skip, min(depth, corpus.rows), threads):
            on_device = torch.from_numpy(np.concatenate([b.queries for b in blocks])).to(device)
            for number in range(len(slabs)):
                first, stop = slabs.bounds(number)
                largest = norms.largest_until(stop, run)
                for block in blocks:
                    block.bound_errors(largest)
                _collect(on_device @ slabs.rows(number).T, first, blocks, corpus.array, ranks, run)
                corpus.release(first, stop)
            yield finish(blocks, corpus, ranks, run, slab)


def _collect(
    estimates: torch.Tensor, first: int, blocks: list[QueryBlock], documents: np.ndarray, ranks: np.ndarray, run: Run
) -> None:
    """Raise the lower bounds by this slab's depth-th best, then add what remains to the candidate lists."""
    _mask(estimates, np.concatenate([b.skip for b in blocks]) - first)
    errors = np.concatenate([b.lists.errors for b in blocks])
    lower = np.concatenate([b.lists.lower for b in blocks])
    if estimates.shape[1] >= blocks[0].depth:
        cut = estimates.topk(blocks[0].depth, dim=1, sorted=False).values.amin(1)
        lower = np.maximum(lower, cut.cpu().numpy().astype(np.float64) - errors)
    thresholds = np.nextafter((lower - errors).astype(np.float32), np.float32(-np.inf))
    chosen = estimates >= torch.from_numpy(thresholds).to(estimates.device)[:, None]
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
