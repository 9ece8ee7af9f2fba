"""Search approximately (HNSW, IVF-PQ) with exact final scores, and measure recall against exact search.

The index only proposes candidates: they get the same final scores and total order as in exact search. One thread builds
the index, because faiss's parallel insertion depends on timing. Where faiss sees a GPU, the lists of IVF-PQ are
clustered and searched there, with a few other candidates (benchmarks/gpu.md has the tolerance).
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zerodr.config.index import IndexSettings
from zerodr.errors import ConfigError
from zerodr.retrieval.candidates import NameRow, Norms, QueryBlock, Ranking, Run, join, rank, workers
from zerodr.retrieval.device import faiss_gpus
from zerodr.retrieval.exact import SLAB, search_exact
from zerodr.retrieval.vectors import Vectors

log = logging.getLogger("zerodr")
BLOCK = 16384  # documents added at once
CONSTRUCTION = 200  # HNSW: breadth of the search while building
POINTS_PER_LIST = 39  # faiss's lower limit of training points for a centroid
TRAINING_POINTS = 256  # faiss's upper limit
PROPOSALS = 4  # IVF-PQ: candidates for each entry of the result, since codes are coarse
LARGEST = 2048  # entries, and lists, of a query that the kernels take


class GpuIndex:
    """Copies of the pieces of an IVF index on the first GPU.

    faiss's kernels give a query at most 2,048 entries, and candidates of a deep ranking are more. So the GPU holds the
    index in pieces, document n in piece n modulo their number, and the best of all are kept: the candidates of the
    whole index, unless one piece has more than 2,048 of them. Scores of codes differ from the CPU's in the last bits.

    Args:
        index: trained, with its documents; it stays on the CPU and is not changed.
        proposals: candidates of a query.

    Raises:
        RuntimeError: faiss can't hold this index on a GPU: its sizes, or memory.
    """

    def __init__(self, index: Any, proposals: int) -> None:
        import faiss

        self.pieces = -(-proposals // LARGEST)
        self._resources = faiss.StandardGpuResources()
        self._copies = [self._copy(faiss, index, number) for number in range(self.pieces)]

    def _copy(self, faiss: Any, index: Any, number: int) -> Any:
        if self.pieces == 1:
            return faiss.index_cpu_to_gpu(self._resources, 0, index)
        piece = faiss.clone_index(index)
        piece.reset()
        index.copy_subset_to(piece, faiss.InvertedLists.SUBSET_TYPE_ID_MOD, self.pieces, number)
        return faiss.index_cpu_to_gpu(self._resources, 0, piece)

    def search(self, queries: np.ndarray, proposals: int, probes: int) -> np.ndarray:
        """Return the rows of the best candidates of each query, int64 [q, proposals]; -1 where there are fewer."""
        scores, rows = [], []
        for copy in self._copies:
            copy.nprobe = probes
            near, numbers = copy.search(queries, min(proposals, LARGEST))
            # faiss fills missing entries with row -1: they sort last, whatever score they have.
            scores.append(np.where(numbers < 0, -np.inf, near))
            rows.append(numbers)
        if self.pieces == 1:
            return rows[0]
        best = np.argsort(-np.concatenate(scores, 1), axis=1, kind="stable")[:, :proposals]
        return np.take_along_axis(np.concatenate(rows, 1), best, 1)


class ApproximateIndex:
    """An index of `corpus` [n, d], built on creation; `settings.index` is `hnsw` or `ivfpq`.

    Args:
        gpu: use the GPU. None: where faiss sees one.

    Attributes:
        facts: sizes of the index, and where it was made and searched, for the lineage record; complete after a search.
    """

    def __init__(
        self,
        settings: IndexSettings,
        corpus: Vectors,
        seed: int,
        threads: int,
        name_row: NameRow,
        gpu: bool | None = None,
    ) -> None:
        import faiss

        self._settings, self._corpus, self._threads = settings, corpus, threads
        self._gpu = bool(faiss_gpus()) if gpu is None else gpu
        self._copies: tuple[int, GpuIndex | None] = (0, None)  # for how many candidates
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
        if self._gpu:
            self._clustering = faiss.index_cpu_to_all_gpus(faiss.IndexFlatIP(dimension))
            index.clustering_index = self._clustering
            self.facts["clustered_on"] = "cuda"
        points = min(rows, TRAINING_POINTS * max(lists, 2**bits))
        chosen = np.sort(np.random.default_rng(seed).choice(rows, points, replace=False))
        index.train(self._corpus.array[chosen])
        if self._gpu:
            index.clustering_index = None  # the finished index is one of the CPU, which `on_gpu` copies
        return index

    def search(self, queries: Vectors, ranks: np.ndarray, depth: int, skip: np.ndarray | None) -> Iterator[Ranking]:
        """Yield rankings of consecutive queries, as `exact.search_exact`, but some documents may be missed."""
        depth = min(depth, self._corpus.rows)
        # One more, because the query's own document may be among them and is dropped.
        proposals = min(depth * (PROPOSALS if self._settings.index == "ivfpq" else 1) + 1, self._corpus.rows)
        propose = self._proposer(proposals)

        def collect(blocks: list[QueryBlock], _: Run) -> None:
            for block in blocks:
                rows = propose(block.queries)
                valid, lists = (rows >= 0) & (rows != block.skip[:, None]), block.lists
                lists.held[:] = valid.sum(1)
                inside = np.arange(proposals) < lists.held[:, None]
                lists.rows[inside] = rows[valid]
                lists.scores[inside] = 0  # all alike, so that none is dropped before it has its final score

        yield from rank(queries, self._corpus, ranks, depth, skip, self._threads, SLAB, collect, capacity=proposals)

    def _proposer(self, proposals: int) -> Callable[[np.ndarray], np.ndarray]:
        """Make the function from queries [q, d] to rows of candidates, int64 [q, proposals], -1 for none."""
        if self._settings.index == "hnsw":
            self._index.hnsw.efSearch = max(self._settings.hnsw_search, proposals)
            return lambda queries: self._index.search(queries, proposals)[1]
        probes = min(self._settings.ivf_probes, self._index.nlist)
        if self._gpu and self._copies[0] != proposals:
            copies, facts = on_gpu(self._index, proposals, probes)
            self._copies, self.facts = (proposals, copies), self.facts | facts
        copies = self._copies[1]
        if copies is not None:
            return lambda queries: copies.search(queries, proposals, probes)
        self._index.nprobe = probes
        return lambda queries: self._index.search(queries, proposals)[1]


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


def on_gpu(index: Any, proposals: int, probes: int) -> tuple[GpuIndex | None, dict[str, Any]]:
    """Copy an index to the GPU that faiss sees.

    Returns:
        the copies, or None where it stays on the CPU, and facts for lineage: where it is searched, and why.
    """
    reason = "" if probes <= LARGEST else f"{probes} lists of a query are more than the {LARGEST} that a GPU takes"
    try:
        if not reason:
            copies = GpuIndex(index, proposals)
            return copies, {"searched_on": "cuda", "pieces": copies.pieces}
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"faiss refuses it ({lines[-1] if lines else type(error).__name__})"
    log.warning("the index is searched on the CPU: %s", reason)
    return None, {"searched_on": "cpu", "not_on_gpu": reason}
