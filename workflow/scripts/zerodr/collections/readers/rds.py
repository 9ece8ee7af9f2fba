"""Read tables in R's serialisation format (XDR, `.rds`): vectors, factors and their attributes. Nothing is run."""

import gzip
import struct
from typing import IO, Any

from zerodr.errors import CollectionError

SYMBOL, PAIRS, CHARACTERS, LOGICAL, INTEGER, REAL, STRINGS, LIST, POINTER = 1, 2, 9, 10, 13, 14, 16, 19, 22
NIL, REFERENCE = 254, 255
NUMBERS = {LOGICAL: "i", INTEGER: "i", REAL: "d"}
HAS_ATTRIBUTES, HAS_TAG, UTF8 = 1 << 9, 1 << 10, (1 << 15) | (1 << 18)


class Vector(list):
    """A vector of R with its attributes, such as `names`."""

    attributes: dict[str, Any]


def read_table(stream: IO[bytes], where: str) -> dict[str, list[Any]]:
    """Read a data frame: columns by name, factors as their labels.

    Raises:
        CollectionError: another format, or an object of R that is no table.
    """
    data = gzip.decompress(stream.read())
    try:
        frame = _Cursor(data).table()
    except (struct.error, LookupError, ValueError, TypeError, AttributeError) as error:
        problem = f"is no table that R saved ({type(error).__name__}: {error})"
        raise CollectionError(where, problem, "download it again") from None
    return frame


class _Cursor:
    """A position in the serialised bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 2
        if data[:2] != b"X\n":
            raise ValueError(f"starts with {data[:2]!r}, expected b'X\\n'")
        version, _, _ = (self.integer() for _ in range(3))
        if version == 3:
            self.take(self.integer())
        self.references: list[Any] = []

    def take(self, count: int) -> bytes:
        self.position += count
        return self.data[self.position - count : self.position]

    def integer(self) -> int:
        return struct.unpack(">i", self.take(4))[0]

    def table(self) -> dict[str, list[Any]]:
        frame = self.item(self.integer())
        columns = {}
        for name, column in zip(frame.attributes["names"], frame, strict=True):
            levels = column.attributes.get("levels")
            columns[name] = [levels[code - 1] for code in column] if levels else list(column)
        return columns

    def item(self, flags: int) -> Any:
        """Read the object whose type and flags were read already."""
        kind = flags & 255
        if kind == NIL:
            return None
        if kind == REFERENCE:
            return self.references[(flags >> 8) - 1]
        if kind == PAIRS:
            return self.pairs(flags)
        if kind in (SYMBOL, POINTER):
            number = len(self.references)
            self.references.append(None)
            items = [self.item(self.integer()) for _ in range(1 if kind == SYMBOL else 2)]
            if kind == SYMBOL:
                self.references[number] = items[0]
            elif flags & HAS_ATTRIBUTES:
                self.item(self.integer())
            return self.references[number]
        count = self.integer()
        if kind == CHARACTERS:
            return None if count < 0 else self.take(count).decode("utf-8" if flags & UTF8 else "latin-1")
        if kind in NUMBERS:
            code = f">{count}{NUMBERS[kind]}"
            vector = Vector(struct.unpack(code, self.take(struct.calcsize(code))))
        elif kind in (STRINGS, LIST):
            vector = Vector(self.item(self.integer()) for _ in range(count))
        else:
            raise ValueError(f"object of type {kind}")
        vector.attributes = self.item(self.integer()) if flags & HAS_ATTRIBUTES else {}
        return vector

    def pairs(self, flags: int) -> dict[str, Any]:
        """Read a pair list: values by tag."""
        values: dict[str, Any] = {}
        while flags & 255 == PAIRS:
            if flags & HAS_ATTRIBUTES:
                self.item(self.integer())
            tag = self.item(self.integer()) if flags & HAS_TAG else str(len(values))
            values[tag] = self.item(self.integer())
            flags = self.integer()
        return values
