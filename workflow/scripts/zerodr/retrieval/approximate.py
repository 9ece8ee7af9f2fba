"""Search approximately (HNSW, IVF-PQ) with exact final scores, and measure recall against exact search.

The index only proposes candidates: they get the same final scores and total order as in exact search. One thread builds
the index, because faiss's parallel insertion depends on timing.
"""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from zerodr.config.index import IndexSettings
from zerodr.errors import ConfigError
from zerodr.retrieval.candidates import NameRow, Norms, QueryBlock, Ranking, Run, join, rank, workers
from zerodr.retrieval.exact import SLAB, search_exact
from zerodr.retrieval.vectors import Vectors

log = logging.getLogger("zerodr")
BLOCK = 16384  # documents added at once
CONSTRUCTION = 200  # HNSW: breadth of the search while building
POINTS_PER_LIST = 39  # faiss's lower limit of training points for a centroid
TRAINING_POINTS = 256  # faiss's upper limit
PROPOSALS = 4  # IVF-PQ: candidates for each entry of the result, since codes are coarse


class ApproximateIndex:
    """An index of `corpus` [n, d], built on creation; `settings.index` is `hnsw` or `ivfpq`.

    Attributes:
        facts: sizes of the index, for the lineage record.
    """

    def __init__(self, settings: IndexSettings, corpus: Vectors, seed: int, threads: int, name_row: NameRow) -> None:
        import faiss

        self._settings, self._corpus, self._threads = settings, corpus, threads
        self.facts: dict[str, Any] = {}
        norms = Norms(corpus, name_row)
        with workers(threads) as run:
            for start in range(0, corpus.rows, SLAB):
                norms.largest_until(min(start + SLAB, corpus.rows), run)
        # Parallel additions to HNSW depend on the threads' timing: one thread gives equal indexes.
        faiss.omp_set_num_threads(1)
        self._index = {"hnsw": self._hnsw, "ivfpq": self._ivfpq}[settings.index](faiss, seed)
        for start in range(0, corpus.rows, BLOCK):
            stop = min(start + BLOCK, corpus.rows)
            self._index.add(np.ascontiguousarray(corpus.array[start:stop]))
            corpus.release(start, stop)
        faiss.omp_set_num_threads(threads)

    def tune(self, **values: int) -> None:
        """Change `hnsw_search` or `ivf_probes` of the finished index."""
        self._settings = self._settings.model_copy(update=values)

    def _hnsw(self, faiss: Any, seed: int) -> Any:
        index = faiss.IndexHNSWFlat(self._corpus.dimension, self._settings.hnsw_links, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = CONSTRUCTION
        # faiss draws the levels of nodes from this generator; its default seed is not ours.
        index.hnsw.rng = faiss.RandomGenerator(seed)
        self.facts = {"links": self._settings.hnsw_links, "construction_breadth": CONSTRUCTION}
        return index

    def _ivfpq(self, faiss: Any, seed: int) -> Any:
        rows, dimension, codes = self._corpus.rows, self._corpus.dimension, self._settings.pq_bytes
        if dimension % codes:
            problem = f"expected a divisor of the dimension {dimension}, found {codes}"
            raise ConfigError("pq_bytes", problem, "set pq_bytes to a divisor")
        bits = int(np.clip(np.log2(max(rows / POINTS_PER_LIST, 2)), 1, 8))  # 2**bits centroids need points, too
        lists = max(1, min(self._settings.ivf_lists, rows // POINTS_PER_LIST))
        if lists < self._settings.ivf_lists:
            log.info("ivfpq: %d lists, not %d: the shard has %d documents", lists, self._settings.ivf_lists, rows)
        self.facts = {"lists": lists, "lists_asked": self._settings.ivf_lists, "code_bits": bits}
        quantizer = faiss.IndexFlatIP(dimension)
        index = faiss.IndexIVFPQ(quantizer, dimension, lists, codes, bits, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed = index.pq.cp.seed = seed
        self._quantizer = quantizer  # the index only points to it
        points = min(rows, TRAINING_POINTS * max(lists, 2**bits))
        chosen = np.sort(np.random.default_rng(seed).choice(rows, points, replace=False))
        index.train(self._corpus.array[chosen])
        return index

    def search(self, queries: Vectors, ranks: np.ndarray, depth: int, skip: np.ndarray | None) -> Iterator[Ranking]:
        """Yield rankings of consecutive queries, as `exact.search_exact`, but some documents may be missed."""
        depth = min(depth, self._corpus.rows)
        # One more, because the query's own document may be among them and is dropped.
        proposals = min(depth * (PROPOSALS if self._settings.index == "ivfpq" else 1) + 1, self._corpus.rows)
        if self._settings.index == "hnsw":
            self._index.hnsw.efSearch = max(self._settings.hnsw_search, proposals)
        else:
            self._index.nprobe = min(self._settings.ivf_probes, self._index.nlist)

        def collect(blocks: list[QueryBlock], _: Run) -> None:
            for block in blocks:
                rows = self._index.search(block.queries, proposals)[1]  # -1 where there are fewer
                valid, lists = (rows >= 0) & (rows != block.skip[:, None]), block.lists
                lists.held[:] = valid.sum(1)
                inside = np.arange(proposals) < lists.held[:, None]
                lists.rows[inside] = rows[valid]
                lists.scores[inside] = 0  # all alike, so that none is dropped before it has its final score

        yield from rank(queries, self._corpus, ranks, depth, skip, self._threads, SLAB, collect, capacity=proposals)


def measure_recall(
    searcher: ApproximateIndex, queries: Vectors, ranks: np.ndarray, depth: int, skip: np.ndarray | None, count: int
) -> dict[str, float]:
    """Measure recall of the exact first 10, 100, `depth` documents (`recall_10`, ...), on `count` spread queries."""
    if not queries.rows or not searcher._corpus.rows:
        return {}
    chosen = np.unique(np.linspace(0, queries.rows - 1, min(count, queries.rows)).astype(np.int64))
    sample, skip = Vectors(queries.array[chosen]), None if skip is None else skip[chosen]
    approximate = join(list(searcher.search(sample, ranks, depth, skip)))
    exact = join(list(search_exact(sample, searcher._corpus, ranks, depth, skip, searcher._threads)))
    cuts = sorted({min(cut, depth) for cut in (10, 100, depth)})
    return {f"recall_{cut}": _overlap(approximate, exact, cut) for cut in cuts}


def _overlap(approximate: Ranking, exact: Ranking, cut: int) -> float:
    """Average |first `cut` of both| / |first `cut` of exact| over queries."""
    pairs = zip(*(np.split(r.rows, np.cumsum(r.counts)[:-1]) for r in (approximate, exact)), strict=True)
    return float(np.mean([len(np.intersect1d(a[:cut], b[:cut])) / max(1, len(b[:cut])) for a, b in pairs]))
