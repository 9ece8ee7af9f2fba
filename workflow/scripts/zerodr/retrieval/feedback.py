"""Stage `augment_queries`: add documents that another ranking found to the vectors of queries; nothing is trained.

Vector pseudo-relevance feedback (Li et al. 2021, "Pseudo relevance feedback with deep language models and dense
retrievers") with attention over the documents, as MoMA has it, from fused scores instead of learned weights.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import read_run, strings, total_order
from zerodr.collections.access import corpus_ids, split_queries
from zerodr.config.base import validate
from zerodr.config.methods import Feedback
from zerodr.errors import ArtifactError
from zerodr.retrieval.fuse import check_run
from zerodr.retrieval.vectors import AGAIN, Vectors

BLOCK = 1024  # queries in memory at once


class AugmentSettings(Feedback):
    """Settings of `augment_queries`."""

    memory: str
    """The method whose ranking names the documents."""
    collection: str
    """Name of the collection."""
    split: str
    """Split of the queries."""
    exclude_self: bool
    """The document whose id is the query's may not be in the ranking."""


class Attention(NamedTuple):
    """Documents of one query and their shares.

    Attributes:
        rows: of the corpus, int64 [k].
        shares: float32 [k], which sum to 1.
    """

    rows: np.ndarray
    shares: np.ndarray


def augment_queries(stage: Stage) -> None:
    """Augment the queries of a split. Read inputs `queries`, `corpus`, `run` and `collection`; write `embeddings`.

    A query that the ranking lacks keeps its vector.

    Raises:
        ArtifactError: embeddings don't fit the collection, or the ranking has other queries or documents.
        ProtocolError: the ranking holds the document with the query's id, although `exclude_self`.
    """
    settings = validate(AugmentSettings, stage.params, "augment_queries")
    folder, path = stage.path("collection"), stage.path("run")
    shards = [Vectors.open(shard) for shard in stage.paths("corpus")]
    queries, names = Vectors.open(stage.path("queries")), split_queries(folder, settings.split)["id"]
    ids = corpus_ids(folder)
    sizes = (queries.rows, sum(shard.rows for shard in shards))
    if sizes != (len(names), len(ids)):
        expected = f"expected {len(names)} queries and {len(ids)} documents"
        raise ArtifactError(stage.path("queries"), f"{expected}, found {sizes[0]} and {sizes[1]}", AGAIN)
    run = read_run(path)
    check_run(run, names, f"{settings.memory} ({path})", settings.exclude_self)
    read = attended(run, names, ids, settings, str(path))
    vectors = np.empty((queries.rows, queries.dimension), np.float32)
    progress = Progress(f"augment {settings.collection}/{settings.split}", queries.rows, "queries")
    for start in range(0, queries.rows, BLOCK):
        block = read[start : start + BLOCK]
        vectors[start : start + BLOCK] = augment(queries.array[start : start + BLOCK], shards, block, settings.weight)
        progress.add(len(block))
    progress.finish()
    firsts = [float(one.shares[0]) for one in read if len(one.rows)]
    stage.metric("first_document_attention", float(np.mean(firsts)) if firsts else 0.0)
    stage.note(queries=queries.rows, augmented=len(firsts), memory=settings.memory)
    with open(stage.output("embeddings"), "wb") as stream:
        np.save(stream, vectors)


def attended(run: pd.DataFrame, names: pd.Series, ids: pa.Array, settings: Feedback, where: str) -> list[Attention]:
    """Return the documents and shares of each query, in the order of `names`.

    Args:
        run: columns query, document, score.
        names: ids of the queries.
        ids: of the corpus rows.
        settings: how many documents, and how sharp.
        where: the run's path, for errors.

    Raises:
        ArtifactError: a document is not in the collection.
    """
    run = total_order(run)
    run = run[run.groupby("query", sort=False).cumcount() < settings.documents]
    rows = pc.index_in(strings(run["document"]), ids)
    if rows.null_count:
        unknown = run["document"].iloc[int(np.flatnonzero(rows.is_null())[0])]
        raise ArtifactError(where, f"document {unknown!r} is not in the collection", AGAIN)
    run = run.assign(row=rows.to_numpy().astype(np.int64))
    nothing = Attention(np.zeros(0, np.int64), np.zeros(0, np.float32))
    by_query = {
        query: Attention(one["row"].to_numpy(), softmax(settings.inverse_temperature * one["score"].to_numpy()))
        for query, one in run.groupby("query", sort=False)
    }
    return [by_query.get(name, nothing) for name in names]


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return the softmax of scores [k] as float32 [k], computed in float64."""
    exponents = np.exp(scores.astype(np.float64) - scores.max())
    return (exponents / exponents.sum()).astype(np.float32)


def augment(queries: np.ndarray, shards: list[Vectors], read: list[Attention], weight: float) -> np.ndarray:
    """Return `q + weight * sum(share_i d_i)` for each query, float32 [n, d].

    Args:
        queries: float32 [n, d].
        shards: the documents' vectors, in the order of the corpus.
        read: documents of each query.
        weight: of their mean; 0 returns the queries unchanged.
    """
    added = [share @ vectors for share, vectors in _gathered(shards, read)]
    return queries + np.float32(weight) * np.stack(added) if added else queries


def _gathered(shards: list[Vectors], read: list[Attention]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield shares [k] and the documents' vectors [k, d] of each query; which shard they lie in changes no bit."""
    first = np.cumsum([0, *(shard.rows for shard in shards)])
    for one in read:
        vectors = np.empty((len(one.rows), shards[0].dimension), np.float32)
        shard_of = np.searchsorted(first, one.rows, side="right") - 1
        for number in np.unique(shard_of):
            inside = shard_of == number
            vectors[inside] = shards[number].array[one.rows[inside] - first[number]]
        yield one.shares, vectors
