"""Several collections behind one space of ids: `<memory>:<document id>`, and the texts of such documents.

A memory is a normalised collection whose queries don't matter (MoMA 3.1). Names of collections hold no colon, so the
first one of an id ends the memory's name.
"""

from __future__ import annotations

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
    """`<memory>:<id>` of each id."""
    return pc.binary_join_element_wise(pa.scalar(memory), ids.cast(pa.string()), COLON)


def memory_of(document: str) -> str:
    """The memory that a document stands in."""
    return document.partition(COLON)[0]


def memories_of(documents: pa.Array) -> pa.DictionaryArray:
    """The memory of each document."""
    return pc.replace_substring_regex(documents.cast(pa.string()), "^([^:]*):(?s:.*)$", r"\1").dictionary_encode()


def joined_texts(block: pa.RecordBatch, title_join: str | None) -> pa.Array:
    """Texts of documents (title, text), behind their title where they have one and a join is given."""
    title, text = block.column("title").cast(TEXT), block.column("text").cast(TEXT)
    if title_join is None:
        return text
    both = pc.binary_join_element_wise(title, text, pa.scalar(title_join, TEXT))
    return pc.if_else(pc.equal(title, ""), text, both)


def folded(text: str) -> str:
    """A text without differences of case and blanks, to tell equal ones."""
    return " ".join(text.split()).casefold()


class MemoryTexts:
    """Texts of documents of several memories; ids are held, texts are read from the corpora when asked for.

    Args:
        folders: collection folder of each memory.
        joins: what stands between title and text in each; None leaves titles out.
    """

    def __init__(self, folders: Mapping[str, Path], joins: Mapping[str, str | None]) -> None:
        self.folders, self.joins = dict(folders), dict(joins)

    def texts(self, documents: pa.Array, where: object) -> pa.Array:
        """Texts of namespaced `documents`, in their order.

        Raises:
            ArtifactError: `where` names a memory that is not plugged in, or a document that its memory lacks.
        """
        made = np.empty(len(documents), object)
        names = memories_of(documents)
        numbers = names.indices.to_numpy()
        for number, name in enumerate(names.dictionary.to_pylist()):
            if name not in self.folders:
                raise ArtifactError(
                    where,
                    f"names documents of memory {name!r}, plugged in are {', '.join(self.folders) or 'none'}",
                    "plug it in",
                )
            places = np.flatnonzero(numbers == number)
            made[places] = self._of(name, documents.take(pa.array(places)), where)
        return pa.array(made, TEXT)

    def _of(self, name: str, documents: pa.Array, where: object) -> np.ndarray:
        """Texts of documents of one memory, with one pass over the needed row groups."""
        ids = pc.utf8_slice_codeunits(documents.cast(pa.string()), len(name) + 1)
        found = pc.index_in(ids, value_set=corpus_ids(self.folders[name]))
        if found.null_count:
            first = ids.filter(pc.is_null(found))[0]
            raise ArtifactError(
                where,
                f"names {found.null_count} documents that memory {name} lacks, the first is {first}",
                "retrieve from this memory again",
            )
        rows, order = np.unique(found.to_numpy(), return_inverse=True)
        parts, first_row = [], 0
        for block in read_corpus(self.folders[name], columns=("title", "text")):
            low, high = np.searchsorted(rows, [first_row, first_row + len(block)])
            if high > low:
                parts += joined_texts(block.take(pa.array(rows[low:high] - first_row)), self.joins[name]).to_pylist()
            first_row += len(block)
        return np.array(parts, object)[order] if parts else np.empty(0, object)


def equal_rows(
    folder: Path, start: int, stop: int, title_join: str | None, texts: Mapping[str, list[int]]
) -> Iterator[tuple[int, int]]:
    """Pairs (number, row) of texts and of corpus rows `start..stop`, from 0, that hold the same text.

    Args:
        texts: folded text -> its numbers. A document is compared with its title and without it.
    """
    row = 0
    for block in read_corpus(folder, start, stop, columns=("title", "text")):
        whole, bare = joined_texts(block, title_join).to_pylist(), block.column("text").to_pylist()
        for one, other in zip(whole, bare, strict=True):
            for number in sorted({*texts.get(folded(one), ()), *texts.get(folded(other or ""), ())}):
                yield number, row
            row += 1
