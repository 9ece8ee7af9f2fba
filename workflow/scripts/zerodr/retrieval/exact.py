"""Exact search of one shard by inner product, in total order, with bounded memory.

Matrix products give an estimate of every score. Rounding errors of a float32 product, whatever its summation order,
are at most `error_factor * |q| * |d|`; a document stays a candidate unless its estimate is further below the
depth-th best than these errors allow. Candidates then get their final score (`kernels.dot`), which depends on the two
vectors only. So the ranking is a function of the vectors and ids alone, not of shards, blocks, threads or kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from zerodr.errors import ArtifactError
from zerodr.retrieval.candidates import Group, NameRow, Norms, Ranking, Run, chunks, finish, workers
from zerodr.retrieval.products import SingleProducts
from zerodr.retrieval.vectors import Vectors

TILE = 1024  # documents of one matrix product
SLAB = 32768  # documents between two meetings of the threads
CROWDED = 0.1  # share of candidates after the first slab that tells that bf16 estimates are too loose

log = logging.getLogger("zerodr")


def check_dimensions(queries: Vectors, corpus: Vectors, where: object) -> None:
    """Both matrices must have one dimension."""
    if queries.dimension != corpus.dimension:
        raise ArtifactError(
            where,
            f"expected vectors of dimension {queries.dimension} as the queries have, found {corpus.dimension}",
            "embed both with the same model",
        )


def search_exact(
    queries: Vectors,
    corpus: Vectors,
    ranks: np.ndarray,
    depth: int,
    skip: np.ndarray | None = None,
    threads: int = 1,
    name_row: NameRow = str,
    tile: int = TILE,
    slab: int = SLAB,
    half: bool = False,
) -> Iterator[Ranking]:
    """The first `depth` documents of every query in total order (score, then `ranks`, both descending).

    Args:
        queries: [q, d]. corpus: [n, d].
        ranks: int32 [n], ascending order of the document ids.
        depth: entries a query gets, fewer when the corpus is smaller.
        skip: int64 [q], the corpus row left out for each query, -1 for none.
        threads: worker threads.
        name_row: the name of a corpus row in errors.
        tile, slab: documents of a matrix product and between two meetings.
        half: estimate with bf16 products where they separate the documents.

    Threads, tile, slab and half have no influence on the result.

    Yields:
        Rankings of consecutive queries.

    Raises:
        NonFiniteEmbedding: a vector holds NaN or infinity.
        ArtifactError: the dimensions differ, or scores leave float32.
    """
    check_dimensions(queries, corpus, "corpus embeddings")
    norms, prepare = Norms(corpus, name_row), None
    if half:
        from zerodr.retrieval.half import HalfProducts, one_thread

        prepare = one_thread
    with workers(threads, prepare) as run:
        for groups in chunks(queries, skip, min(depth, corpus.rows), threads):
            if half:
                for group in groups:
                    group.restart(HalfProducts(group.queries))
                half = _scan_all(groups, corpus, norms, ranks, run, tile, slab)
            if not half:
                for group in groups:
                    group.restart(SingleProducts(group.queries))
                _scan_all(groups, corpus, norms, ranks, run, tile, slab)
            yield finish(groups, corpus, ranks, run, slab)


def _scan_all(
    groups: list[Group], corpus: Vectors, norms: Norms, ranks: np.ndarray, run: Run, tile: int, slab: int
) -> bool:
    """Collect candidates from all documents. False, early, when loose estimates make too many of them."""
    loose = groups[0].products.relative > 0
    queries = sum(len(group.held) for group in groups)
    for start in range(0, corpus.rows, slab):
        stop = min(start + slab, corpus.rows)
        largest, before = norms.largest_until(stop, run), sum(group.taken for group in groups)
        run(lambda group: _scan(group, corpus.array, start, stop, tile, largest, ranks), groups)  # noqa: B023 - run waits
        corpus.release(start, stop)
        taken = sum(group.taken for group in groups) - before
        if loose and start and taken > CROWDED * queries * (stop - start):
            log.info("bf16 estimates don't separate these vectors: going on in float32")
            return False
    return True


def _scan(
    group: Group, documents: np.ndarray, start: int, stop: int, tile: int, largest: float, ranks: np.ndarray
) -> None:
    group.bound_errors(largest)
    count = len(group.queries)
    buffer = np.empty(count * min(tile, stop - start), np.float32)
    for first in range(start, stop, tile):
        block = documents[first : min(first + tile, stop)]
        estimates = buffer[: count * len(block)].reshape(count, len(block))
        group.products.multiply(block, estimates)
        group.collect(estimates, first, documents, ranks)
