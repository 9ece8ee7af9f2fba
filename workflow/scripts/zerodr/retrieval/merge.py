"""Stages `merge_run` and `merge_candidates`: merge the rankings of all shards in total order."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import order_rows, run_writer, strings
from zerodr.collections.access import RankingSettings, ranked_queries, split_queries
from zerodr.config.base import validate
from zerodr.errors import ArtifactError
from zerodr.retrieval.hits import HitsReader

ROWS = 1 << 20  # hits in memory at once


class MergeSettings(RankingSettings):
    """Settings of `merge_run`."""

    tag: str
    """Last word of every line: the model."""


def merge_run(stage: Stage) -> None:
    """Merge shard rankings. Read inputs `hits` (one file a shard) and `collection`; write `run`.

    Raises:
        ArtifactError: as `merge_shards`.
    """
    settings = validate(MergeSettings, stage.params, stage.spec.rule)
    queries = strings(split_queries(stage.path("collection"), settings.split)["id"])
    stage.note(lines=merge_hits(stage.paths("hits"), queries, settings.depth, settings.tag, stage.output("run")))


def merge_candidates(stage: Stage) -> None:
    """Merge shard rankings for mining. Read inputs `hits` (one file a shard) and `collection`; write `candidates`.

    An optional input `sample` names the queries that were searched, where they are not all. Order and entries are those
    of `merge_run`; a query without hits has an empty row.

    Raises:
        ArtifactError: as `merge_shards`.
    """
    settings = validate(RankingSettings, stage.params, stage.spec.name())
    queries = strings(ranked_queries(stage, split_queries(stage.path("collection"), settings.split))["id"])
    progress = Progress(f"merge {settings.collection}/{settings.split}", len(queries), "queries")
    with RankingsWriter(stage.output("candidates"), settings.depth) as writer:
        for piece in merge_shards(stage.paths("hits"), len(queries), settings.depth):
            names = queries[piece.start : piece.stop]
            sizes = np.bincount(piece.rows["query"].to_numpy() - piece.start, minlength=len(names))
            document, score = piece.rows["document"].combine_chunks(), piece.rows["score"].to_numpy()
            writer.write(Rankings(names, sizes, document, score))
            progress.add(len(names))
    progress.finish()
    stage.metric("queries", len(queries))


def merge_hits(hits: list[Path], queries: pa.Array, depth: int, tag: str, run: Path) -> int:
    """Write the first `depth` entries of each query over all shards to `run`; returns the number of lines."""
    lines = 0
    with run_writer(run, tag) as writer:
        for piece in merge_shards(hits, len(queries), depth):
            names = queries.take(piece.rows["query"].combine_chunks())
            writer.write(names, piece.rows["document"].combine_chunks(), piece.rows["score"].to_numpy())
            lines += len(piece.rows)
    return lines


class Piece(NamedTuple):
    """Merged rankings of the queries `start..stop`: rows (query row, document id, score) in total order."""

    start: int
    stop: int
    rows: pa.Table


def merge_shards(hits: list[Path], queries: int, depth: int) -> Iterator[Piece]:
    """Yield the first `depth` entries of each of `queries` queries over all shards, some queries at a time.

    The result does not depend on the number of shards: scores of a pair are bit-identical everywhere, and the order is
    total.

    Raises:
        ArtifactError: a shard is missing, occurs twice, or was searched with other queries or another depth.
    """
    with ExitStack() as stack:
        readers = [stack.enter_context(HitsReader(path)) for path in hits]
        check_shards(readers, queries, depth)
        # Bounds memory by rows in flight, whatever the depth and the number of shards.
        step = max(1, ROWS // (depth * len(readers)))
        for start in range(0, queries, step):
            stop = min(start + step, queries)
            rows = pa.concat_tables([reader.read_until(stop) for reader in readers])
            yield Piece(start, stop, first_entries(rows, depth))


def first_entries(table: pa.Table, depth: int) -> pa.Table:
    """Return the first `depth` rows (query, document, score) of each query, in total order.

    >>> rows = {"query": [0, 0, 0, 1], "document": ["a", "c", "b", "a"], "score": [1.0, 2.0, 2.0, 0.5]}
    >>> first_entries(pa.table(rows), depth=2)["document"].to_pylist()
    ['c', 'b', 'a']
    """
    table = table.combine_chunks()
    if not len(table):
        return table
    query = table["query"].to_numpy()
    order = order_rows(query, table["score"].to_numpy(), table["document"].combine_chunks())
    first = np.searchsorted(query[order], query[order])  # first row of the query
    return table.take(pa.array(order[np.arange(len(order)) - first < depth]))


def check_shards(readers: list[HitsReader], queries: int, depth: int) -> None:
    """Check that the readers cover all shards of one corpus, searched alike.

    Raises:
        ArtifactError: as `merge_shards`.
    """
    numbers = sorted(reader.searched.shard for reader in readers)
    for reader in readers:
        facts = reader.searched
        if facts.shards != len(readers) or numbers != list(range(len(readers))):
            problem = f"expected shards 0 to {facts.shards - 1} once each, found {numbers}"
            raise ArtifactError(reader.path, problem, AGAIN)
        if facts.queries != queries or facts.depth < depth:
            problem = f"expected {queries} queries to depth {depth}, found {facts.queries} to depth {facts.depth}"
            raise ArtifactError(reader.path, problem, AGAIN)
