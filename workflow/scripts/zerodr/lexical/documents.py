"""Order the documents of a collection as an inverted index holds them: by id, ascending.

Both backends rank equal scores by the lower internal number. With documents numbered by id, that is Anserini's rule
(score descending, then id ascending) at every depth, including the last rank, without its slow sort by id.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.collections.access import CORPUS_SCHEMA, corpus_ids, read_corpus


class Document(NamedTuple):
    """A row of the corpus."""

    id: str
    title: str
    text: str

    def flat(self) -> str:
        """Join title and text as one field."""
        return f"{self.title} {self.text}"


def ordered_documents(collection: Path, scratch: Path, block: int = 1024) -> Iterator[list[Document]]:
    """Read all documents of a normalised collection by id (ascending by UTF-8 bytes), `block` at a time.

    The corpus is copied to a memory-mapped file in the folder `scratch`, so that memory stays small for any order.
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
