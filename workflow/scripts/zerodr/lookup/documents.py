"""Read titles and texts of single documents; row groups that were read stay in memory up to a limit."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zerodr.collections.access import corpus_ids

GROUPS = 256  # row groups in memory: about a million documents
Text = tuple[str, str]
MISSING: Text = ("", "the collection has no such document")


class IdRows:
    """Rows of documents by id, without a text in memory for each.

    >>> [IdRows(pa.array(["b", "a"])).find(name) for name in ("a", "z")]
    [1, None]
    """

    def __init__(self, ids: pa.Array) -> None:
        self.ids = ids
        hashes = np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def find(self, name: str) -> int | None:
        """Find the row of an id: by its hash, then by the id itself."""
        value = hash(name)
        at = int(np.searchsorted(self._hashes, value))
        while at < len(self._hashes) and self._hashes[at] == value:
            row = int(self._order[at])
            if self.ids[row].as_py() == name:
                return row
            at += 1
        return None


class Documents:
    """Random access to a corpus by document id.

    Args:
        folder: of a normalised collection.
    """

    def __init__(self, folder: Path) -> None:
        self.ids = corpus_ids(folder)
        self._rows = IdRows(self.ids)
        self._file = pq.ParquetFile(folder / "corpus.parquet")
        metadata = self._file.metadata
        sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._groups: OrderedDict[int, pa.Table] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.ids)

    def warm_up(self) -> None:
        """Read as many row groups as stay in memory."""
        for group in range(min(len(self._starts) - 1, GROUPS)):
            self._group(group)

    def texts(self, names: Sequence[str]) -> list[Text]:
        """Read title and text of each document; MISSING for an unknown id."""
        return [MISSING if row is None else self._text(row) for row in map(self._rows.find, names)]

    def _text(self, row: int) -> Text:
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        table, at = self._group(group), row - int(self._starts[group])
        return table["title"][at].as_py() or "", table["text"][at].as_py() or ""

    def _group(self, number: int) -> pa.Table:
        with self._lock:
            if number not in self._groups:
                table = self._file.read_row_group(number, columns=["title", "text"])
                self._groups[number] = table.combine_chunks()
                while len(self._groups) > GROUPS:
                    self._groups.popitem(last=False)
            self._groups.move_to_end(number)
            return self._groups[number]
