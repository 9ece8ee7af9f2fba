"""Stage `search_shard`: find the best documents of one shard for every query, in total order."""

import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from zerodr.artifacts.processor import kind_of_job
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import SplitSettings, corpus_ids, corpus_size, ranked_queries, shard_rows, split_queries
from zerodr.config.base import validate
from zerodr.config.index import IndexSettings
from zerodr.retrieval.approximate import ApproximateIndex, measure_recall
from zerodr.retrieval.candidates import NameRow, Ranking, Skip, check_dimensions, id_ranks
from zerodr.retrieval.device import search_device
from zerodr.retrieval.exact import search_exact
from zerodr.retrieval.hits import Searched, write_hits
from zerodr.retrieval.vectors import Vectors

log = logging.getLogger("zerodr")
FEWEST = 2  # documents of a shard below which faiss trains no codes, and searches no graph
HALF_WORK = 3e11  # multiplications and additions from which bf16 estimates repay loading torch


class ShardSettings(IndexSettings, SplitSettings):
    """Settings of `search_shard`."""

    shard: int = Field(ge=0)
    """Number of this shard."""
    shards: int = Field(ge=1)
    """Number of shards."""


def search_shard(stage: Stage) -> None:
    """Search one shard of a collection. Read inputs `queries`, `corpus`, `collection`, optional `sample`; write `hits`.

    With a sample, its queries alone are searched: `queries` holds the vectors of the whole split.

    Raises:
        ArtifactError: embeddings don't fit the collection or one another, or the sample doesn't fit the split.
        NonFiniteEmbedding: an embedding holds NaN or infinity.
    """
    settings = validate(ShardSettings, stage.params, stage.spec.rule)
    folder = stage.path("collection")
    start, stop = shard_rows(corpus_size(folder), settings.shard, settings.shards)
    queries, corpus = Vectors.open(stage.path("queries")), Vectors.open(stage.path("corpus"))
    asked = split_queries(folder, settings.split)
    queries.require(stage.path("queries"), len(asked), "query")
    ranked = ranked_queries(stage, asked)
    if len(ranked) < len(asked):
        queries = Vectors(queries.array[ranked.index])
    query_ids, ids = strings(ranked["id"]), corpus_ids(folder, start, stop)
    corpus.require(stage.path("corpus"), len(ids), "document")
    check_dimensions(queries, corpus, stage.path("corpus"))
    skip = self_rows(query_ids, ids) if settings.exclude_self else None
    rankings = rankings_of(stage, settings, queries, corpus, ids, settings.depth, settings.collection, skip)
    shard = {name: getattr(settings, name) for name in ("shard", "shards", "depth")}
    searched = Searched(**shard, queries=queries.rows, documents=corpus.rows)
    progress = Progress(f"search {settings.collection} {settings.shard + 1}/{settings.shards}", queries.rows, "queries")
    write_hits(stage.output("hits"), rankings, ids, searched, progress)


def self_rows(query_ids: pa.Array, ids: pa.Array) -> np.ndarray:
    """Return the row of the document with the query's id, int64 [q]; -1 where there is none.

    >>> self_rows(pa.array(["b", "z"]), pa.array(["a", "b"])).tolist()
    [1, -1]
    """
    return pc.fill_null(pc.index_in(query_ids, ids), -1).to_numpy().astype(np.int64)


def rankings_of(
    stage: Stage,
    settings: IndexSettings,
    queries: Vectors,
    corpus: Vectors,
    ids: pa.Array,
    depth: int,
    collection: str,
    skip: Skip = None,
) -> Iterator[Ranking]:
    """Search exactly or by the index of the settings, whose recall becomes a metric; arguments as `exact_rankings`."""
    if settings.index == "flat" or corpus.rows < FEWEST:
        return exact_rankings(stage, queries, corpus, ids, depth, collection, skip)
    ranks = id_ranks(ids)
    searcher = ApproximateIndex(settings, corpus, stage.seed, stage.threads, _row_names(collection, ids))
    for name, value in measure_recall(searcher, queries, ranks, depth, skip, settings.recall_queries).items():
        stage.metric(name, value)
        log.info("%s: %s %.4f", settings.index, name, value)
    stage.note(index=settings.index, **searcher.facts)  # complete after a search
    return searcher.search(queries, ranks, depth, skip)


def _row_names(collection: str, ids: pa.Array) -> NameRow:
    return lambda row: f"{collection}/{ids[row]}"


def exact_rankings(
    stage: Stage, queries: Vectors, corpus: Vectors, ids: pa.Array, depth: int, collection: str, skip: Skip = None
) -> Iterator[Ranking]:
    """Search exactly, on the GPU where there is one.

    Args:
        ids: of the corpus rows; they break ties.
        collection: its name, for errors.
        skip: int64 [q], the corpus row to ignore for each query, -1 for none.
    """
    ranks, name_row, device = id_ranks(ids), _row_names(collection, ids), search_device()
    half = device == "cpu" and pays_half(queries.rows, corpus.rows, corpus.dimension)
    stage.note(index="flat", device=device, estimates="bf16" if half else "float32")
    if device != "cpu":
        from zerodr.retrieval.gpu import choose_room, search_gpu

        room, facts = choose_room(corpus)
        stage.note(documents_on_gpu=facts)
        return search_gpu(queries, corpus, ranks, depth, skip, stage.threads, device, name_row, room=room)
    return search_exact(queries, corpus, ranks, depth, skip, stage.threads, name_row, half=half)


def pays_half(queries: int, documents: int, dimension: int) -> bool:
    """Report whether estimates in bf16, with the same result, save time: in a large search where they are faster."""
    return 2.0 * queries * documents * dimension >= HALF_WORK and kind_of_job().bf16 == "faster"
