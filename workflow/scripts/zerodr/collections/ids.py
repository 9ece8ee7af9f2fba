"""Store sets of ids in bounded memory: 8 bytes an id for its hash, 5 for its file and line."""

from array import array

import numpy as np

from zerodr.errors import CollectionError


class IdIndex:
    """A set of ids, compared by Python's 64-bit string hash.

    Two different ids share a hash with a probability below 1e-4 for 20 million ids; `duplicates` then lists both, and
    the caller compares them by value.
    """

    def __init__(self) -> None:
        self._hashes, self._lines, self._files = array("q"), array("L"), array("H")
        self._names: list[str] = []
        self._sorted: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, key: str, file: str, line: int) -> None:
        """Add `key`.

        Raises:
            CollectionError: it is empty.
        """
        if not key:
            raise CollectionError(f"{file}:{line}", "id is empty, expected a word", "give it a name")
        if not self._names or self._names[-1] != file:
            self._names.append(file)
        self._hashes.append(hash(key))
        self._lines.append(line)
        self._files.append(len(self._names) - 1)
        self._sorted = None

    def duplicates(self) -> list[list[int]]:
        """Group the rows (from 0, in order of addition) that share a hash, in order of the second occurrence."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")
        same = hashes[order][1:] == hashes[order][:-1]
        groups: dict[int, list[int]] = {}
        for left, right in zip(order[:-1][same], order[1:][same], strict=True):
            groups.setdefault(int(hashes[left]), [int(left)]).append(int(right))
        return sorted(groups.values(), key=lambda rows: rows[1])

    def position(self, row: int) -> str:
        """Return `file:line` of a row."""
        return f"{self._names[self._files[row]]}:{self._lines[row]}"

    def __contains__(self, key: object) -> bool:
        if self._sorted is None:
            self._sorted = np.sort(np.frombuffer(self._hashes, dtype=np.int64))
        value = hash(key)
        row = int(np.searchsorted(self._sorted, value))
        return row < len(self._sorted) and int(self._sorted[row]) == value
