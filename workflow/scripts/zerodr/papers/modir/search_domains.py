"""Stage `search_domains`: rank all documents of source and target with one model (MoDIR section 4.5).

KNN-Source% is over the full indexes of both domains, and the model ranks the source's own queries: what an adapted
model loses there.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import corpus_ids, corpus_size, read_qrels, shard_rows, split_queries
from zerodr.config.base import Settings, validate
from zerodr.evaluation.judged import judge
from zerodr.evaluation.metrics import measure
from zerodr.papers.modir.domain_measures import base_rate
from zerodr.retrieval.candidates import check_dimensions, join
from zerodr.retrieval.merge import first_entries
from zerodr.retrieval.search import exact_rankings, self_rows
from zerodr.retrieval.vectors import Vectors

MEASURES = ("recip_rank_cut_10", "ndcg_cut_10")
DEPTH = 10  # of the source's rankings


class SearchDomainsSettings(Settings):
    """Params of rule search_domains."""

    splits: dict[str, str]
    """Collection -> split of its queries; the source's, too."""
    exclude_self: bool = False
    """A query of the source is no result for itself."""
    neighbours: int = Field(100, ge=1)
    """k of KNN-Source%."""


def search_domains(stage: Stage) -> None:
    """Write `indexes` (TSV: metric, value).

    Inputs `source`, `source_queries`, `source_corpus` (vectors, a file a shard); `targets` (manifests),
    `target_queries` (a file a target), `target_corpora` (a file a shard, target by target).

    Raises:
        ArtifactError: vectors don't fit the collections.
    """
    settings = validate(SearchDomainsSettings, stage.params, stage.spec.name())
    source, shards, k = stage.path("source"), stage.paths("source_corpus"), settings.neighbours
    targets, corpora = stage.folders("targets"), stage.paths("target_corpora")
    shares = []
    for (name, folder), file in zip(targets.items(), stage.paths("target_queries"), strict=True):
        queries = _queries(file, folder, settings.splits[name])
        of_target = [
            _best(stage, queries, other, [path for path in corpora if path.parts[-3] == at], k)
            for at, other in targets.items()
        ]
        near = _best(stage, queries, source, shards, k)
        shares.append(source_shares(near, pa.concat_tables(of_target), queries.rows, k))
    documents = corpus_size(source), sum(map(corpus_size, targets.values()))
    facts = {f"knn_source_{k}": float(np.concatenate(shares).mean()), "knn_source_base_rate": base_rate(*documents)}
    facts |= {"source_documents": float(documents[0]), "target_documents": float(documents[1])}
    facts |= _ranked_source(stage, settings, source, shards)
    stage.numbers(facts)
    lines = ["metric\tvalue", *(f"{name}\t{value!r}" for name, value in facts.items())]
    stage.output("indexes").write_text("\n".join(lines) + "\n", encoding="utf-8")


def source_shares(source: pa.Table, target: pa.Table, queries: int, k: int) -> np.ndarray:
    """Compute the share of the source among the k nearest documents of each query; of equal scores it comes last.

    Args:
        source, target: columns `query` (row), `score`: the k best of each, or all that there are.

    >>> near, far = ({"query": [0, 0], "score": scores} for scores in ([3.0, 2.0], [2.0, 1.0]))
    >>> source_shares(pa.table(near), pa.table(far), 1, 2).tolist()
    [0.5]
    """
    sides = [np.zeros(len(target), bool), np.ones(len(source), bool)]
    query = np.concatenate([side["query"].to_numpy() for side in (target, source)])
    score = np.concatenate([side["score"].to_numpy() for side in (target, source)])
    order = np.lexsort((np.concatenate(sides), -score, query))
    rank = np.arange(len(query)) - np.searchsorted(query[order], query[order])
    first = order[rank < k]
    counts = np.bincount(query[first], minlength=queries)
    return np.bincount(query[first], np.concatenate(sides)[first], minlength=queries) / np.maximum(counts, 1)


def _queries(file: Path, folder: Path, split: str) -> Vectors:
    vectors = Vectors.open(file)
    vectors.require(file, len(split_queries(folder, split)), "query")
    return vectors


def _best(
    stage: Stage, queries: Vectors, folder: Path, shards: list[Path], depth: int, asked: pa.Array | None = None
) -> pa.Table:
    """Search all shards of a collection: query (row), document, score, in total order.

    Args:
        asked: ids of the queries, which are no results for themselves; None: they may be.
    """
    pieces, size = [], corpus_size(folder)
    for number, file in enumerate(shards):
        ids, corpus = corpus_ids(folder, *shard_rows(size, number, len(shards))), Vectors.open(file)
        corpus.require(file, len(ids), "document")
        check_dimensions(queries, corpus, file)
        skip = None if asked is None else self_rows(asked, ids)
        ranking = join(list(exact_rankings(stage, queries, corpus, ids, depth, folder.name, skip)))
        rows = np.repeat(np.arange(queries.rows), ranking.counts)
        pieces.append(pa.table({"query": rows, "document": ids.take(pa.array(ranking.rows)), "score": ranking.scores}))
    return first_entries(pa.concat_tables(pieces), depth)


def _ranked_source(stage: Stage, settings: SearchDomainsSettings, source: Path, shards: list[Path]) -> dict[str, float]:
    """Compute means of the source's queries that have a positive."""
    split = settings.splits[source.name]
    queries = _queries(stage.path("source_queries"), source, split)
    names = strings(split_queries(source, split)["id"])
    run = _best(stage, queries, source, shards, DEPTH, names if settings.exclude_self else None).to_pandas()
    run["query"] = names.to_pandas().to_numpy()[run["query"]]
    judged = judge(run, read_qrels(source, split), names.to_pylist(), f"{source.name}/{split}")
    means = measure(judged, MEASURES)[judged.positives > 0].mean()
    return {f"source_{name}": float(means[name]) for name in MEASURES}
