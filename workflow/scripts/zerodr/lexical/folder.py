"""Read and write the folder of a BM25 index, apart from the inverted index: settings, index.json and document ids."""

import json
import logging
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings
from zerodr.errors import ArtifactError

log = logging.getLogger("zerodr")
ABOUT, IDS, LUCENE = "index.json", "documents.parquet", "lucene"


class IndexSettings(Settings):
    """Settings that decide an index."""

    backend: Literal["lucene", "bm25s"]
    """`lucene` needs Java, `bm25s` does not."""
    fields: Literal["flat", "multifield"]
    """`flat`: title, a space and the text as one field. `multifield`: title and text as two."""
    language: str
    """Language of the texts; decides the analyzer."""


def read_about(folder: Path) -> dict[str, Any]:
    """Read index.json.

    Raises:
        ArtifactError: the folder is no index.
    """
    try:
        return json.loads((folder / ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise ArtifactError(folder, f"is no BM25 index ({error})", "run the target index_bm25 again") from error


def write_ids(folder: Path, ids: list[str]) -> None:
    """Write the ids by internal document number."""
    pq.write_table(pa.table({"id": pa.array(ids, pa.string())}), folder / IDS)


def read_ids(folder: Path) -> pa.Array:
    """Read the document ids by internal number."""
    column = pq.read_table(folder / IDS).column("id").combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def report_hits(stage: Stage, about: dict[str, Any], queries: int, without: int) -> None:
    """Record the number of queries, those without hits, and the index that was searched."""
    if without:
        log.warning("%d of %d queries have no hit", without, queries)
    stage.metric("queries", queries)
    stage.metric("queries_without_hits", without)
    stage.note(**{key: value for key, value in about.items() if not key.endswith("documents")})
