"""Search one shard exactly by inner product, in total order, with bounded memory.

Matrix products give an estimate of every score. Rounding errors of a float32 product, whatever its summation order,
are at most `error_factor * |q| * |d|`; a document stays a candidate unless its estimate is further below the
depth-th best than these errors allow. Candidates then get their final score (`kernels.dot`), which depends on the two
vectors only. So the ranking is a function of the vectors and ids only, not of shards, blocks, threads or kernels.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from zerodr.retrieval.candidates import NameRow, Norms, Products, QueryBlock, Ranking, Run, SingleProducts, rank
from zerodr.retrieval.vectors import Vectors

TILE = 1024  # documents of one matrix product
SLAB = 32768  # documents between two synchronizations of the threads
CROWDED = 0.1  # share of candidates after the first slab above which bf16 estimates are too loose

log = logging.getLogger("zerodr")


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
    norms: Norms | None = None,
) -> Iterator[Ranking]:
    """Search the first `depth` documents of every query in total order (score, then `ranks`, both descending).

    Args:
        queries: [q, d]. corpus: [n, d].
        ranks: int32 [n], ascending order of the document ids.
        depth: entries of a query, fewer when the corpus is smaller.
        skip: int64 [q], the corpus row to ignore for each query, -1 for none.
        threads: worker threads.
        name_row: gives the name of a corpus row for errors.
        tile, slab: documents of a matrix product, and between two synchronizations.
        half: estimate with bf16 products where they separate the documents.
        norms: of the corpus, to be used for several searches.

    Threads, tile, slab and half have no influence on the result.

    Yields:
        Rankings of consecutive queries.

    Raises:
        NonFiniteEmbedding: a vector holds NaN or infinity.
        ArtifactError: the dimensions differ, or scores leave float32.

    Example:
        >>> queries = Vectors(np.array([[1, 0], [0, 2]], np.float32))
        >>> corpus = Vectors(np.array([[1, 0], [0, 1], [1, 1]], np.float32))
        >>> (ranking,) = search_exact(queries, corpus, np.arange(3, dtype=np.int32), depth=2)
        >>> ranking.rows.tolist(), ranking.scores.tolist()  # of equal scores, the greater id comes first
        ([2, 0, 2, 1], [1.0, 1.0, 2.0, 2.0])
    """
    norms, prepare = norms or Norms(corpus, name_row), None
    if half:
        import torch

        from zerodr.retrieval.half import HalfProducts

        # Workers already use all cores; torch's own threads in each of them would only contend.
        prepare = partial(torch.set_num_threads, 1)

    def collect(blocks: list[QueryBlock], run: Run) -> None:
        nonlocal half
        if half:
            half = _scan_all(blocks, HalfProducts, corpus, norms, ranks, run, tile, slab)
        if not half:
            _scan_all(blocks, SingleProducts, corpus, norms, ranks, run, tile, slab)

    yield from rank(queries, corpus, ranks, depth, skip, threads, slab, collect, prepare)


def _scan_all(
    blocks: list[QueryBlock],
    products: Callable[[np.ndarray], Products],
    corpus: Vectors,
    norms: Norms,
    ranks: np.ndarray,
    run: Run,
    tile: int,
    slab: int,
) -> bool:
    """Collect candidates from all documents. False, early, when loose estimates give too many of them."""
    for block in blocks:
        block.restart(products(block.queries))
    loose = blocks[0].products.relative > 0
    queries = sum(len(block.queries) for block in blocks)
    for start in range(0, corpus.rows, slab):
        stop = min(start + slab, corpus.rows)
        largest, before = norms.largest_until(stop, run), sum(block.added for block in blocks)
        run(lambda block: _scan(block, corpus.array, start, stop, tile, largest, ranks), blocks)  # noqa: B023 - run waits
        corpus.release(start, stop)
        added = sum(block.added for block in blocks) - before
        # The first slab fills empty lists, so its count says nothing about how well estimates separate.
        if loose and start and added > CROWDED * queries * (stop - start):
            log.info("bf16 estimates don't separate these vectors: continue in float32")
            return False
    return True


def _scan(
    block: QueryBlock, documents: np.ndarray, start: int, stop: int, tile: int, largest: float, ranks: np.ndarray
) -> None:
    block.bound_errors(largest)
    count = len(block.queries)
    # One flat buffer: a shorter last tile is contiguous too, so its product is written without a copy.
    buffer = np.empty(count * min(tile, stop - start), np.float32)
    for first in range(start, stop, tile):
        rows = documents[first : min(first + tile, stop)]
        estimates = buffer[: count * len(rows)].reshape(count, len(rows))
        block.products.multiply(rows, estimates)
        block.collect(estimates, first, documents, ranks)
