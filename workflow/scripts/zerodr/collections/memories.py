"""Put several collections behind one space of ids, `<memory>:<document id>`, and read the texts of such documents.

A memory is a normalised collection whose queries are not used (MoMA section 3.1). Names of collections hold no colon,
so the first one of an id ends the memory's name.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.collections.access import corpus_ids, read_corpus
from zerodr.errors import ArtifactError

COLON = ":"
TEXT = pa.large_string()  # all texts of a corpus may pass 2 GiB


def namespaced(memory: str, ids: pa.Array) -> pa.Array:
    """Return `<memory>:<id>` of each id."""
    return pc.binary_join_element_wise(pa.scalar(memory), ids.cast(pa.string()), COLON)


def memory_of(document: str) -> str:
    """Return the memory that holds a document."""
    return document.partition(COLON)[0]


def memories_of(documents: pa.Array) -> pa.DictionaryArray:
    """Return the memory of each document."""
    return pc.replace_substring_regex(documents.cast(pa.string()), "^([^:]*):(?s:.*)$", r"\1").dictionary_encode()


def joined_texts(block: pa.RecordBatch, title_join: str | None) -> pa.Array:
    """Join title and text of each document; without a join or a title, return the text alone."""
    title, text = block.column("title").cast(TEXT), block.column("text").cast(TEXT)
    if title_join is None:
        return text
    both = pc.binary_join_element_wise(title, text, pa.scalar(title_join, TEXT))
    return pc.if_else(pc.equal(title, ""), text, both)


def folded(text: str) -> str:
    """Remove differences of case and blanks from a text, to recognise equal ones."""
    return " ".join(text.split()).casefold()


class MemoryTexts:
    """Read texts of documents of several memories from their corpora.

    Args:
        folders: collection folder of each memory.
        joins: separator between title and text in each; None leaves titles out.
    """

    def __init__(self, folders: Mapping[str, Path], joins: Mapping[str, str | None]) -> None:
        self.folders, self.joins = dict(folders), dict(joins)

    def texts(self, documents: pa.Array, where: object) -> pa.Array:
        """Return the texts of namespaced `documents`, in their order.

        Raises:
            ArtifactError: `where` names a memory that is not plugged in, or a document that its memory lacks.
        """
        texts = np.empty(len(documents), object)
        names = memories_of(documents)
        numbers = names.indices.to_numpy()
        for number, name in enumerate(names.dictionary.to_pylist()):
            if name not in self.folders:
                problem = f"names documents of memory {name!r}, plugged in are {', '.join(self.folders) or 'none'}"
                raise ArtifactError(where, problem, "plug it in")
            rows = np.flatnonzero(numbers == number)
            texts[rows] = self._of(name, documents.take(pa.array(rows)), where)
        return pa.array(texts, TEXT)

    def _of(self, name: str, documents: pa.Array, where: object) -> np.ndarray:
        """Read texts of documents of one memory, with one pass over the needed row groups."""
        ids = pc.utf8_slice_codeunits(documents.cast(pa.string()), len(name) + 1)
        corpus_rows = pc.index_in(ids, value_set=corpus_ids(self.folders[name]))
        if corpus_rows.null_count:
            first = ids.filter(pc.is_null(corpus_rows))[0]
            problem = f"names {corpus_rows.null_count} documents that memory {name} lacks, the first is {first}"
            raise ArtifactError(where, problem, "retrieve from this memory again")
        rows, order = np.unique(corpus_rows.to_numpy(), return_inverse=True)
        texts, first_row = [], 0
        for block in read_corpus(self.folders[name], columns=("title", "text")):
            low, high = np.searchsorted(rows, [first_row, first_row + len(block)])
            if high > low:
                texts += joined_texts(block.take(pa.array(rows[low:high] - first_row)), self.joins[name]).to_pylist()
            first_row += len(block)
        return np.array(texts, object)[order] if texts else np.empty(0, object)


def equal_rows(
    folder: Path, start: int, stop: int, title_join: str | None, texts: Mapping[str, list[int]]
) -> Iterator[tuple[int, int]]:
    """Find pairs (number, row) of texts and of corpus rows `start..stop`, from 0, that hold the same text.

    Args:
        texts: folded text -> its numbers. A document is compared with its title and without it.
    """
    row = 0
    for block in read_corpus(folder, start, stop, columns=("title", "text")):
        titled, untitled = joined_texts(block, title_join).to_pylist(), block.column("text").to_pylist()
        for one, other in zip(titled, untitled, strict=True):
            for number in sorted({*texts.get(folded(one), ()), *texts.get(folded(other or ""), ())}):
                yield number, row
            row += 1
