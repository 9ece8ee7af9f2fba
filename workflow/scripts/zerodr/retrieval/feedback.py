"""Stage `augment_queries`: add documents that another ranking found to the vectors of queries.

Vector pseudo-relevance feedback (Li et al. 2021, "Pseudo relevance feedback with deep language models and dense
retrievers") with attention over the documents, as MoMA has it: from their scores alone, or also learned on the source
(`learn_attention`).
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import read_run, strings, total_order
from zerodr.collections.access import corpus_ids, split_queries
from zerodr.config.base import validate
from zerodr.config.feedback import Feedback
from zerodr.encoders.folder.attention import Attention, scores_alone
from zerodr.errors import ArtifactError
from zerodr.retrieval.fuse import check_run
from zerodr.retrieval.vectors import Vectors

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


class Retrieved(NamedTuple):
    """Documents that were found for one query.

    Attributes:
        rows: of the corpus, int64 [k].
        scores: of the ranking, best first [k].
    """

    rows: np.ndarray
    scores: np.ndarray


def augment_queries(stage: Stage) -> None:
    """Augment the queries of a split. Read inputs `queries`, `corpus`, `run` and `collection`; write `embeddings`.

    With an input `attention` it is a learned one. A query that the ranking lacks keeps its vector.

    Raises:
        ArtifactError: embeddings don't fit the collection, or the ranking has other queries or documents.
        ProtocolError: the ranking holds the document with the query's id, although `exclude_self`.
    """
    settings = validate(AugmentSettings, stage.params, stage.spec.rule)
    folder, path = stage.path("collection"), stage.path("run")
    names, ids = split_queries(folder, settings.split)["id"], corpus_ids(folder)
    queries, shards = open_embeddings(stage, len(names), len(ids))
    run = read_run(path)
    check_run(run, names, f"{settings.memory} ({path})", settings.exclude_self)
    retrieved = documents_of(run, names, ids, settings.documents, str(path))
    learned = "attention" in stage.spec.inputs
    attention = Attention.load(stage.path("attention")) if learned else scores_alone(settings)
    vectors, firsts = np.empty((queries.rows, queries.dimension), np.float32), []
    progress = Progress(f"augment {settings.collection}/{settings.split}", queries.rows, "queries")
    for start in range(0, queries.rows, BLOCK):
        block = retrieved[start : start + BLOCK]
        plain = queries.array[start : start + BLOCK]
        vectors[start : start + BLOCK], shares = augment(plain, shards, block, attention)
        firsts += [float(share[0]) for share in shares if len(share)]
        progress.add(len(block))
    progress.finish()
    stage.metric("first_document_attention", float(np.mean(firsts)) if firsts else 0.0)
    stage.metric("weight", attention.weight)
    stage.note(queries=queries.rows, augmented=len(firsts), memory=settings.memory)
    with open(stage.output("embeddings"), "wb") as stream:
        np.save(stream, vectors)


def open_embeddings(stage: Stage, queries: int, documents: int) -> tuple[Vectors, list[Vectors]]:
    """Open inputs `queries` and `corpus` (a file a shard).

    Raises:
        ArtifactError: they have other numbers of rows than given.
    """
    vectors, shards = Vectors.open(stage.path("queries")), [Vectors.open(shard) for shard in stage.paths("corpus")]
    rows = sum(shard.rows for shard in shards)
    if (vectors.rows, rows) != (queries, documents):
        problem = f"expected {queries} queries and {documents} documents, found {vectors.rows} and {rows}"
        raise ArtifactError(stage.path("queries"), problem, AGAIN)
    return vectors, shards


def documents_of(run: pd.DataFrame, names: pd.Series, ids: pa.Array, most: int, where: str) -> list[Retrieved]:
    """Return the first documents of each query, in the order of `names`.

    Args:
        run: columns query, document, score.
        names: ids of the queries.
        ids: of the corpus rows.
        most: documents of a query.
        where: the run's path, for errors.

    Raises:
        ArtifactError: a document is not in the collection.
    """
    run = total_order(run)
    run = run[run.groupby("query", sort=False).cumcount() < most]
    rows = pc.index_in(strings(run["document"]), ids)
    if rows.null_count:
        unknown = run["document"].iloc[int(np.flatnonzero(rows.is_null())[0])]
        raise ArtifactError(where, f"document {unknown!r} is not in the collection", AGAIN)
    run = run.assign(row=rows.to_numpy().astype(np.int64))
    nothing = Retrieved(np.zeros(0, np.int64), np.zeros(0, np.float32))
    by_query = {
        query: Retrieved(one["row"].to_numpy(), one["score"].to_numpy())
        for query, one in run.groupby("query", sort=False)
    }
    return [by_query.get(name, nothing) for name in names]


def augment(
    queries: np.ndarray, shards: list[Vectors], retrieved: list[Retrieved], attention: Attention
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return `q + weight * sum(share_i d_i)` for each query, float32 [n, d], and the shares [k] of each.

    Args:
        queries: float32 [n, d].
        shards: the documents' vectors, in the order of the corpus.
        retrieved: documents of each query.
        attention: their shares, and their weight; weight 0 returns the queries unchanged.
    """
    added, shares = np.zeros_like(queries), []
    for row, (query, one) in enumerate(zip(queries, retrieved, strict=True)):
        documents = vectors_of(shards, one.rows)
        share = attention.shares(query, documents, one.scores)
        added[row] = share @ documents
        shares.append(share)
    return queries + np.float32(attention.weight) * added, shares


def vectors_of(shards: list[Vectors], rows: np.ndarray) -> np.ndarray:
    """Return the vectors float32 [k, d] of corpus rows [k]; which shard they lie in changes no bit.

    >>> shards = [Vectors(np.array([[1.0], [2.0]], np.float32)), Vectors(np.array([[3.0]], np.float32))]
    >>> vectors_of(shards, np.array([2, 0])).tolist()
    [[3.0], [1.0]]
    """
    first = np.cumsum([0, *(shard.rows for shard in shards)])
    vectors = np.empty((len(rows), shards[0].dimension), np.float32)
    shard_of = np.searchsorted(first, rows, side="right") - 1
    for number in np.unique(shard_of):
        inside = shard_of == number
        vectors[inside] = shards[number].array[rows[inside] - first[number]]
    return vectors
