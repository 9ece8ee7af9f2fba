"""Write and read hits of a shard: parquet rows (query row, document id, score) in total order, and facts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.progress import Progress
from zerodr.config.base import Settings, validate
from zerodr.errors import ArtifactError
from zerodr.retrieval.candidates import Ranking

SCHEMA = pa.schema([("query", pa.int32()), ("document", pa.string()), ("score", pa.float32())])
KEY = b"zerodr.shard"
ROW_GROUP = 1 << 17
BATCH = 1 << 16


class Searched(Settings):
    """Facts of a shard's search, in the file's metadata."""

    shard: int
    """Number of the shard, from 0."""
    shards: int
    """Number of shards."""
    queries: int
    """Queries searched."""
    documents: int
    """Documents of the shard."""
    depth: int
    """Entries a query gets, fewer on small shards."""
    memory: str | None = None
    """The searched memory, where document ids begin with its name."""


def write_hits(
    path: Path, rankings: Iterator[Ranking], ids: pa.Array, searched: Searched, progress: Progress | None = None
) -> None:
    """Write rankings of consecutive queries; `ids` names the shard's rows, `progress` counts the queries."""
    facts = json.dumps(searched.model_dump(exclude_none=True), sort_keys=True).encode()
    schema = SCHEMA.with_metadata({KEY: facts})
    first = 0
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=["query"]) as writer:
        for ranking in rankings:
            numbers = np.arange(first, first + len(ranking.counts), dtype=np.int32)
            queries, documents = pa.array(np.repeat(numbers, ranking.counts)), ids.take(pa.array(ranking.rows))
            table = pa.table([queries, documents, pa.array(ranking.scores, pa.float32())], schema=schema)
            writer.write_table(table, row_group_size=ROW_GROUP)
            first += len(ranking.counts)
            if progress is not None:
                progress.add(len(ranking.counts))
    if progress is not None:
        progress.finish()


class HitsReader:
    """Read the hits of one shard, some queries at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise ArtifactError(path, f"can't be read as parquet ({error})", AGAIN) from error
        schema = self._file.schema_arrow
        facts = (schema.metadata or {}).get(KEY)
        if facts is None or schema.names != SCHEMA.names:
            problem = f"expected hits with columns {SCHEMA.names}, found {schema.names}"
            raise ArtifactError(path, problem, AGAIN)
        self.searched = validate(Searched, json.loads(facts), str(path))
        self._batches = self._file.iter_batches(batch_size=BATCH)
        self._buffer = SCHEMA.empty_table()

    def read_until(self, query: int) -> pa.Table:
        """Read the next rows whose query is below `query`; call with growing values."""
        tables = [self._buffer]
        while not self._buffer.num_rows or self._buffer["query"][-1].as_py() < query:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._buffer = pa.Table.from_batches([batch]).replace_schema_metadata(None)
            tables.append(self._buffer)
        rows = pa.concat_tables(tables)
        count = pc.sum(pc.less(rows["query"], query)).as_py() or 0
        self._buffer = rows.slice(count)
        return rows.slice(0, count)

    def __enter__(self) -> HitsReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
