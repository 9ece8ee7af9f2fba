"""Exact search of one shard by inner product, in total order, with bounded memory.

Matrix products give an estimate of every score. Rounding errors of a float32 product, whatever its summation order,
are at most `error_factor * |q| * |d|`; a document stays a candidate unless its estimate is further below the
depth-th best than these errors allow. Candidates then get their final score (`kernels.dot`), which depends on the two
vectors only. So the ranking is a function of the vectors and ids alone, not of shards, blocks, threads or kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from zerodr.errors import ArtifactError
from zerodr.retrieval.candidates import Group, NameRow, Norms, Ranking, chunks, finish, workers
from zerodr.retrieval.vectors import Vectors

TILE = 1024  # documents of one matrix product
SLAB = 32768  # documents between two meetings of the threads


def check_dimensions(queries: Vectors, corpus: Vectors, where: object) -> None:
    """Both matrices must have one dimension."""
    if queries.dimension != corpus.dimension:
        raise ArtifactError(where, f"expected vectors of dimension {queries.dimension} as the queries have, "
                            f"found {corpus.dimension}", "embed both with the same model")  # fmt: skip


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
) -> Iterator[Ranking]:
    """The first `depth` documents of every query in total order (score, then `ranks`, both descending).

    Args:
        queries: [q, d]. corpus: [n, d].
        ranks: int32 [n], ascending order of the document ids.
        depth: entries a query gets, fewer when the corpus is smaller.
        skip: int64 [q], the corpus row left out for each query, -1 for none.
        threads: worker threads.
        name_row: the name of a corpus row in errors.
        tile, slab: documents of a matrix product and between two meetings; of no influence on the result.

    Yields:
        Rankings of consecutive queries.

    Raises:
        NonFiniteEmbedding: a vector holds NaN or infinity.
        ArtifactError: the dimensions differ, or scores leave float32.
    """
    check_dimensions(queries, corpus, "corpus embeddings")
    norms = Norms(corpus, name_row)
    with workers(threads) as run:
        for groups in chunks(queries, skip, min(depth, corpus.rows), threads):
            for start in range(0, corpus.rows, slab):
                stop = min(start + slab, corpus.rows)
                largest = norms.largest_until(stop, run)
                run(lambda group: _scan(group, corpus.array, start, stop, tile, largest, ranks), groups)  # noqa: B023
                corpus.release(start, stop)
            yield finish(groups, corpus, ranks, run, slab)


def _scan(
    group: Group, documents: np.ndarray, start: int, stop: int, tile: int, largest: float, ranks: np.ndarray
) -> None:
    group.bound_errors(largest)
    count = len(group.queries)
    buffer = np.empty(count * min(tile, stop - start), np.float32)
    for first in range(start, stop, tile):
        block = documents[first : min(first + tile, stop)]
        estimates = buffer[: count * len(block)].reshape(count, len(block))
        np.matmul(group.queries, block.T, out=estimates)
        group.collect(estimates, first, documents, ranks)
