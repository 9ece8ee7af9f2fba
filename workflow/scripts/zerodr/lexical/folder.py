"""Hold what both backends of BM25 share: the folder of an index, its documents in order, and hits.

Both rank equal scores by the lower internal number. With documents numbered by id, that is Anserini's rule
(score descending, then id ascending) at every depth, including the last rank, without its slow sort by id.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import CORPUS_SCHEMA, corpus_ids, read_corpus
from zerodr.config.base import Settings
from zerodr.errors import ArtifactError

log = logging.getLogger("zerodr")
ABOUT, IDS, LUCENE = "index.json", "documents.parquet", "lucene"
TIE_STEP = np.float32(1e-6)


class TermIndexSettings(Settings):
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
        return json.loads((folder / ABOUT).read_text(encoding="utf-8"))
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


class IndexedDocument(NamedTuple):
    """A row of the corpus."""

    id: str
    title: str
    text: str

    def flat(self) -> str:
        """Join title and text as one field."""
        return f"{self.title} {self.text}"


def ordered_documents(collection: Path, scratch: Path, block: int = 1024) -> Iterator[list[IndexedDocument]]:
    """Read all documents of a normalised collection by id (ascending by UTF-8 bytes), `block` at a time.

    The corpus is copied to a memory-mapped file in the folder `scratch`, so that memory stays small for any order.
    """
    order = pc.array_sort_indices(corpus_ids(collection), order="ascending").to_numpy()
    # Parquet decodes whole row groups; reading rows in id order would decode each group many times.
    path = scratch / "corpus.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, CORPUS_SCHEMA) as writer:
        for batch in read_corpus(collection):
            writer.write_batch(batch)
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        ends = np.cumsum([batch.num_rows for batch in batches])
        for first in range(0, len(order), block):
            yield [_document(batches, ends, int(row)) for row in order[first : first + block]]
    path.unlink()


def _document(batches: list[pa.RecordBatch], ends: np.ndarray, row: int) -> IndexedDocument:
    number = int(np.searchsorted(ends, row, side="right"))
    batch = batches[number]
    within = row - (int(ends[number]) - batch.num_rows)
    return IndexedDocument(*(batch.column(name)[within].as_py() or "" for name in ("id", "title", "text")))


class Hits(NamedTuple):
    """A ranking: internal document numbers int32 [hits] and scores float32 [hits], best first.

    Internal numbers ascend with document ids; of equal scores the lower number comes first.
    """

    documents: np.ndarray
    scores: np.ndarray


def lower_ties(scores: np.ndarray) -> np.ndarray:
    """Lower the n-th of equal scores (from 0) by n millionths, so that the scores carry their order.

    Anserini does the same before it writes a run, because trec_eval would put equal scores in the opposite order. The
    published BM25 numbers contain it: NFCorpus has nDCG@10 .3218 with, .3206 without. The arithmetic is float32, so
    above a score of 32 a millionth is lost, the scores stay equal, and the bench's total order (id descending)
    decides, as trec_eval did for the published ArguAna. A score is never lowered below the next distinct one.

    Args:
        scores: float32 [hits], descending.
    """
    scores = np.ascontiguousarray(scores, np.float32)
    first = np.searchsorted(-scores, -scores, side="left")
    after = np.searchsorted(-scores, -scores, side="right")
    rank = (np.arange(len(scores)) - first).astype(np.float32)
    floor = np.append(scores, np.float32(-np.inf))[after]
    return np.maximum(scores - TIE_STEP * rank, floor).astype(np.float32)
