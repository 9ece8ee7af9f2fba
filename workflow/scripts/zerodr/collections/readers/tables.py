"""Read tables that people bring: TSV, CSV, words with blanks between them, parquet, with or without a header."""

import csv
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from zerodr.collections.archives import Archive, Location, read_lines, read_whole_lines
from zerodr.collections.readers.base import bad_line, read_json_lines
from zerodr.errors import CollectionError

QUOTE = re.compile(r'(?:^|\t)"')
SEPARATOR = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # Excel's first line
SEPARATORS = ",;\t"
TREC = ("txt", "trec", "qrels", "qrel")
GRADE_CELL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?")  # a number: the line is no header
Row = tuple[Location, list[str]]
Named = tuple[Location, dict[str, Any]]


def form_of(member: str) -> str:
    """Return the ending of a file's name in small letters, without `.gz`."""
    return member.lower().removesuffix(".gz").rpartition(".")[2]


def plain(name: str) -> str:
    """Return a column's name in the form in which names are compared."""
    return name.strip().lstrip("#").strip().casefold().replace("-", "_").replace(" ", "_")


def read_objects(archive: Archive, member: str, columns: Iterable[str] | None = None) -> Iterator[Named]:
    """Read location and fields of each row of JSON lines or parquet; `columns`: the ones that are needed of parquet."""
    if form_of(member) == "parquet":
        return read_parquet(archive, member, columns)
    return read_json_lines(archive, member)


def read_rows(archive: Archive, member: str) -> Iterator[Row]:
    """Read location and cells of each row of a table that is no parquet, a header among them."""
    form = form_of(member)
    if form == "csv":
        return _read_csv(archive, member, None)
    first = next(read_lines(archive, member), None)
    if first is not None and SEPARATOR.fullmatch(first[1]):
        return _read_csv(archive, member, None)
    if first is not None and "\t" not in first[1] and (form in TREC or len(first[1].split()) == 4):
        return ((location, line.split()) for location, line in read_lines(archive, member))
    if is_quoted(archive, member):
        return _read_csv(archive, member, "\t")
    return ((location, line.split("\t")) for location, line in read_lines(archive, member))


def is_quoted(archive: Archive, member: str) -> bool:
    """True when a table with tabs has cells in quotation marks, and all of them as CSV has them.

    A text that only begins with a quotation mark (`"Yes", she said`) makes the file a plain one.
    """
    if form_of(member) == "csv":
        return False
    if not any(QUOTE.search(line) for _, line in read_lines(archive, member)):
        return False
    widths = set()
    try:
        for _, cells in _read_csv(archive, member, "\t"):
            widths.add(len(cells))
            if len(widths) > 1 or any("\n" in cell and "\t" in cell for cell in cells):
                return False  # a quotation mark that is none swallowed lines
    except CollectionError:
        return False
    return True


def _read_csv(archive: Archive, member: str, separator: str | None) -> Iterator[Row]:
    """Read rows as CSV has them; a row's location is its first line.

    Raises:
        CollectionError: quotation marks that do not fit together, with the row's line.
    """
    csv.field_size_limit(sys.maxsize)
    lines, skipped = read_whole_lines(archive, member), 0
    if separator is None:
        separator, skipped = find_separator(line for _, line in read_lines(archive, member))
    rows = csv.reader((line for _, line in islice(lines, skipped, None)), delimiter=separator, strict=True)
    while True:
        location = Location(f"{archive.name}/{member}", skipped + rows.line_num + 1)
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise bad_line(*location, f"is no CSV ({error})", 'write a quotation mark in a cell twice: ""') from None
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield location, cells


def find_separator(lines: Iterable[str]) -> tuple[str, int]:
    """Find what separates the cells of a CSV file: as Excel's line `sep=;` says, else what comes first after a cell.

    Returns:
        the separator, and the number of lines to leave out.
    """
    first = next(iter(lines), "")
    if match := SEPARATOR.fullmatch(first):
        return match[1], 1
    rest = re.sub(r'^"(?:[^"]|"")*"', "", first)
    return next((character for character in rest if character in SEPARATORS), ","), 0


def read_parquet(archive: Archive, member: str, columns: Iterable[str] | None = None) -> Iterator[Named]:
    """Read location (rows count from 1) and values of a parquet file, in blocks; `columns`: those that are there.

    Raises:
        CollectionError: it is none, or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with archive.open(member) as stream, pq.ParquetFile(stream) as file:
            names = None if columns is None else [name for name in file.schema_arrow.names if name in set(columns)]
            for batch in file.iter_batches(4096, columns=names):
                for row in batch.to_pylist():
                    number += 1
                    yield Location(f"{archive.name}/{member}", number), row
    except (pa.ArrowException, OSError, ValueError) as error:
        where, problem = f"{archive.name}/{member}", " ".join(str(error).split())[:200]
        what = f"is damaged after row {number}" if number else "is damaged, or no parquet file"
        raise CollectionError(where, f"{what} ({problem})", "write it again") from None


def parquet_names(archive: Archive, member: str) -> list[str]:
    """List the columns of a parquet file; see `read_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with archive.open(member) as stream, pq.ParquetFile(stream) as file:
            return list(file.schema_arrow.names)
    except (pa.ArrowException, OSError, ValueError) as error:
        problem = f"is damaged, or no parquet file ({' '.join(str(error).split())[:200]})"
        raise CollectionError(f"{archive.name}/{member}", problem, "write it again") from None
