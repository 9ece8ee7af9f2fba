"""The documents of a collection in the order of an inverted index: by id, ascending.

Both backends rank equal scores by the lower internal number. With documents numbered by id, that is Anserini's rule
(score descending, then id ascending) at every depth, the last place included, without its slow sort by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.collections.access import CORPUS_SCHEMA, corpus_ids, read_corpus

IDS = "documents.parquet"


class Document(NamedTuple):
    """A row of the corpus."""

    id: str
    title: str
    text: str

    def flat(self) -> str:
        """Title and text as one field."""
        return f"{self.title} {self.text}"


def ordered_documents(collection: Path, scratch: Path, block: int = 1024) -> Iterator[list[Document]]:
    """All documents of a normalised collection by id (ascending by UTF-8 bytes), `block` at a time.

    The corpus is copied to a memory-mapped file in the folder `scratch`, so memory stays small whatever the order is.
    """
    order = pc.array_sort_indices(corpus_ids(collection), order="ascending").to_numpy()
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


def _document(batches: list[pa.RecordBatch], ends: np.ndarray, row: int) -> Document:
    number = int(np.searchsorted(ends, row, side="right"))
    batch = batches[number]
    within = row - (int(ends[number]) - batch.num_rows)
    return Document(*(batch.column(name)[within].as_py() or "" for name in ("id", "title", "text")))


def write_ids(folder: Path, ids: list[str]) -> None:
    """Keep the ids by internal document number."""
    pq.write_table(pa.table({"id": pa.array(ids, pa.string())}), folder / IDS)


def read_ids(folder: Path) -> pa.Array:
    """Document ids by internal number."""
    column = pq.read_table(folder / IDS).column("id").combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
