"""A brute-force oracle of search, and small collections run through the real stages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from folder_helpers import publish_folder

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA, shard_rows
from zerodr.plan import paths
from zerodr.retrieval.candidates import Ranking, id_ranks
from zerodr.retrieval.exact import search_exact
from zerodr.retrieval.merge import merge_run
from zerodr.retrieval.search import search_shard
from zerodr.retrieval.vectors import Vectors

Hits = list[list[tuple[str, float]]]
INDEX: dict[str, dict[str, int]] = {
    "flat": {},
    "hnsw": {"hnsw_links": 8, "hnsw_search": 64},
    "ivfpq": {"ivf_lists": 16, "ivf_probes": 4, "pq_bytes": 4},
}


def exact_scores(queries: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    """All inner products in float64, rounded to float32."""
    with np.errstate(under="ignore"):
        return (queries.astype(np.float64) @ corpus.astype(np.float64).T).astype(np.float32) + np.float32(0)


def oracle(queries: np.ndarray, corpus: np.ndarray, ids: list[str], depth: int) -> Hits:
    """Sort all pairs."""
    rows = []
    for scores in exact_scores(queries, corpus):
        pairs = zip(ids, scores.tolist(), strict=True)
        rows.append(sorted(pairs, key=lambda pair: (pair[1], pair[0].encode()), reverse=True)[:depth])
    return rows


def as_lists(rankings: Iterable[Ranking], ids: list[str]) -> Hits:
    """Rankings as lists of (id, score)."""
    rows: Hits = []
    for ranking in rankings:
        pairs = [(ids[row], score) for row, score in zip(ranking.rows, ranking.scores.tolist(), strict=True)]
        ends = np.cumsum(ranking.counts)
        rows += [pairs[end - count : end] for end, count in zip(ends, ranking.counts, strict=True)]
    return rows


def search(
    queries: np.ndarray,
    corpus: np.ndarray,
    ids: list[str],
    depth: int,
    skip: np.ndarray | None = None,
    **options: Any,
) -> Hits:
    """Exact search of one shard."""
    ranking = list(search_exact(Vectors(queries), Vectors(corpus), id_ranks(pa.array(ids)), depth, skip, **options))
    return as_lists(ranking, ids)


def clustered(rows: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Documents and queries of length 1 near 20 centers."""
    random = np.random.default_rng(8)
    centers = random.standard_normal((20, 16))
    both = centers[random.integers(0, 20, rows + queries)] + 0.3 * random.standard_normal((rows + queries, 16))
    both = (both / np.linalg.norm(both, axis=1, keepdims=True)).astype(np.float32)
    return both[:rows], both[rows:]


def make_collection(folder: Path, documents: list[str], queries: list[str]) -> Path:
    """A normalised collection with empty texts; every query is judged. Returns its manifest."""
    made = folder.with_name(folder.name + ".making")
    made.mkdir(parents=True)
    empty = [""] * len(documents)
    pq.write_table(pa.table([documents, empty, empty], schema=CORPUS_SCHEMA), made / "corpus.parquet")
    pq.write_table(pa.table([queries, [""] * len(queries)], schema=QUERY_SCHEMA), made / "queries.parquet")
    lines = [f"{query}\t{documents[0]}\t1\n" for query in queries]
    (made / "qrels.test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    publish_folder(made, folder / "manifest.json")
    return folder / "manifest.json"


def run_search(
    collection: Path,
    queries: np.ndarray,
    corpus: np.ndarray,
    shards: int,
    depth: int,
    exclude_self: bool = False,
    threads: int = 2,
    **index: object,
) -> list[Path]:
    """Run `search_shard` for every shard; returns the hits."""
    folder = Path(f"embeddings-{shards}")
    folder.mkdir(exist_ok=True)
    np.save(folder / "queries.npy", queries)
    hits = []
    for number in range(shards):
        part = folder / f"{paths.shard('corpus', number, shards)}.npy"
        np.save(part, corpus[slice(*shard_rows(len(corpus), number, shards))])
        hits.append(folder / f"{paths.shard('shard', number, shards)}.parquet")
        ranking = {"collection": "c", "split": "test", "depth": depth, "exclude_self": exclude_self}
        inputs = {"queries": str(folder / "queries.npy"), "corpus": str(part), "collection": str(collection)}
        params = ranking | {"shard": number, "shards": shards} | index
        spec = StageSpec(
            rule="search_shard",
            version=1,
            wildcards={},
            inputs=inputs,
            outputs={"hits": str(hits[-1])},
            params=params,
            seed=13,
            threads=threads,
        )
        run_spec(spec, search_shard)
    return hits


def run_merge(collection: Path, hits: list[Path], run: Path, depth: int) -> Path:
    """Run `merge_run`; returns the run."""
    params = {"collection": "c", "split": "test", "depth": depth, "tag": "model"}
    inputs = {"hits": [str(path) for path in hits], "collection": str(collection)}
    run_spec(
        StageSpec(
            rule="merge_run",
            version=1,
            wildcards={},
            inputs=inputs,
            outputs={"run": str(run)},
            params=params,
        ),
        merge_run,
    )
    return run
