"""Store candidates of queries as parquet, a row a query: `query`, `documents` (ids, best first), `scores` (float32).

The file's metadata holds the depth of the rankings; a ranking is shorter where the corpus has fewer
documents or the query fewer hits. A query without hits has an empty row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.artifacts.parquet import AGAIN, GroupWriter, list_array, open_parquet
from zerodr.errors import ArtifactError

SCHEMA = pa.schema([("query", pa.string()), ("documents", pa.list_(pa.string())), ("scores", pa.list_(pa.float32()))])
KEY = b"zerodr.rankings"
ROW_GROUP = 2048  # queries


class Rankings(NamedTuple):
    """Rankings of consecutive queries: `queries` (Q,) ids; `sizes` (Q,) int64; `documents` (ids) and `scores`
    (float32) of all of them, one query after the other, best first."""

    queries: pa.Array
    sizes: np.ndarray
    documents: pa.Array
    scores: np.ndarray


class RankingsWriter:
    """A writer of a candidates file in pieces; equal rankings have equal bytes, whatever the pieces.

    Args:
        path: the file.
        depth: upper limit of entries for a query.
    """

    def __init__(self, path: Path, depth: int) -> None:
        about = json.dumps({"depth": depth}).encode()
        self._writer = GroupWriter(path, SCHEMA.with_metadata({KEY: about}), ROW_GROUP, ["documents.list.element"])

    def write(self, rankings: Rankings) -> None:
        """Append rankings."""
        scores = pa.array(rankings.scores, pa.float32())
        lists = [list_array(rankings.sizes, values) for values in (rankings.documents, scores)]
        self._writer.write(pa.table([rankings.queries, *lists], names=SCHEMA.names))

    def __enter__(self) -> RankingsWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)


def read_depth(path: Path) -> int:
    """Read the depth of a candidates file.

    Raises:
        ArtifactError: the file is missing, damaged or no candidates file.
    """
    with open_parquet(path, SCHEMA) as file:
        return _depth(path, file)


def read_queries(path: Path) -> pa.Array:
    """Read the queries of a candidates file, in its order.

    Raises:
        ArtifactError: as `read_depth`; or a query is null or appears twice.
    """
    with open_parquet(path, SCHEMA) as file:
        _depth(path, file)
        queries = file.read(["query"])["query"].combine_chunks()
    if queries.null_count:
        raise ArtifactError(path, "holds a ranking of no query (null)", AGAIN)
    counts = pc.value_counts(queries)
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        raise ArtifactError(path, f"query {twice[0]} appears twice", AGAIN)
    return queries


def iterate_rankings(path: Path, queries: int) -> Iterator[Rankings]:
    """Read the rankings of a candidates file, at most `queries` at a time.

    Raises:
        ArtifactError: as `read_depth`; or a row has more or fewer scores than documents.
    """
    with open_parquet(path, SCHEMA) as file:
        _depth(path, file)
        for batch in file.iter_batches(batch_size=queries):
            yield _rankings(path, batch)


def read_rankings(path: Path) -> Rankings:
    """Read all rankings of a candidates file.

    Raises:
        ArtifactError: as `iterate_rankings`.
    """
    with open_parquet(path, SCHEMA) as file:
        _depth(path, file)
        table = file.read().combine_chunks()
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], SCHEMA)]
    return _rankings(path, batches[0])


def _depth(path: Path, file: pq.ParquetFile) -> int:
    try:
        return int(json.loads(file.schema_arrow.metadata[KEY])["depth"])
    except (TypeError, KeyError, ValueError) as error:
        raise ArtifactError(path, f"is no candidates file (metadata {KEY.decode()} names no depth)", AGAIN) from error


def _rankings(path: Path, batch: pa.RecordBatch) -> Rankings:
    documents, scores = batch.column("documents"), batch.column("scores")
    sizes, others = (pc.fill_null(pc.list_value_length(column), -1).to_numpy() for column in (documents, scores))
    wrong = np.flatnonzero((sizes != others) | (sizes < 0))
    if len(wrong):
        row = int(wrong[0])
        counts = f"{max(sizes[row], 0)} documents and {max(others[row], 0)} scores"
        raise ArtifactError(path, f"query {batch.column('query')[row]} has {counts}, expected as many", AGAIN)
    values = scores.flatten()
    if values.null_count or documents.flatten().null_count:
        raise ArtifactError(path, "a ranking holds null", AGAIN)
    return Rankings(batch.column("query"), sizes.astype(np.int64), documents.flatten(), values.to_numpy())
