"""Exact search with the matrix products on a GPU. The candidates' final scores are computed as everywhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from zerodr.retrieval.candidates import Group, NameRow, Norms, Ranking, Run, chunks, finish, workers
from zerodr.retrieval.exact import check_dimensions
from zerodr.retrieval.vectors import Vectors

SLAB = 65536  # documents of one matrix product


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
) -> Iterator[Ranking]:
    """As `exact.search_exact`, bit for bit, with float32 products on torch device `device`."""
    check_dimensions(queries, corpus, "corpus embeddings")
    norms = Norms(corpus, name_row)
    torch.backends.cuda.matmul.allow_tf32 = False  # the error bound is that of float32
    with workers(threads) as run, torch.inference_mode():
        for groups in chunks(queries, skip, min(depth, corpus.rows), threads):
            on_device = torch.from_numpy(np.concatenate([g.queries for g in groups])).to(device)
            for first in range(0, corpus.rows, slab):
                stop = min(first + slab, corpus.rows)
                largest = norms.largest_until(stop, run)
                for group in groups:
                    group.bound_errors(largest)
                block = torch.from_numpy(corpus.array[first:stop].copy()).to(device)
                _collect(on_device @ block.T, first, groups, corpus.array, ranks, run)
                corpus.release(first, stop)
            yield finish(groups, corpus, ranks, run, slab)


def _collect(
    estimates: torch.Tensor, first: int, groups: list[Group], documents: np.ndarray, ranks: np.ndarray, run: Run
) -> None:
    """Raise the lower bounds by this block's own depth-th best, then add what is left to the candidate lists."""
    _leave_out(estimates, np.concatenate([g.skip for g in groups]) - first)
    errors = np.concatenate([g.errors for g in groups])
    lower = np.concatenate([g.lower for g in groups])
    if estimates.shape[1] >= groups[0].depth:
        cut = estimates.topk(groups[0].depth, dim=1, sorted=False).values.amin(1)
        lower = np.maximum(lower, cut.cpu().numpy().astype(np.float64) - errors)
    thresholds = np.nextafter((lower - errors).astype(np.float32), np.float32(-np.inf))
    chosen = estimates >= torch.from_numpy(thresholds).to(estimates.device)[:, None]
    chosen &= estimates > -torch.inf
    places = chosen.nonzero()
    values = estimates[places[:, 0], places[:, 1]].cpu().numpy()
    numbers = (places[:, 1] + first).to(torch.int32).cpu().numpy()
    offsets = np.concatenate([[0], np.cumsum(chosen.sum(1).cpu().numpy())])
    starts = np.cumsum([0] + [len(g.held) for g in groups])

    def add(number: int) -> None:
        group, begin, end = groups[number], starts[number], starts[number + 1]
        group.lower[:] = lower[begin:end]
        group.append(values, numbers, offsets[begin : end + 1], documents, ranks)

    run(add, list(range(len(groups))))


def _leave_out(estimates: torch.Tensor, columns: np.ndarray) -> None:
    """Set the entry of each row at `columns` to minus infinity where the column exists."""
    rows = np.flatnonzero((columns >= 0) & (columns < estimates.shape[1]))
    estimates[torch.from_numpy(rows), torch.from_numpy(columns[rows])] = -torch.inf
