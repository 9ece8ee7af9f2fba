"""Read a user's folder: `corpus.{jsonl,tsv,parquet}` and, if there are any, `queries.{...}` and `qrels/<split>.tsv`.

JSON lines and parquet columns: `_id` or `id` (text or whole number), `text`,
and `title` where there is one. TSV: a header with these names,
or none and the cells id, text or id, title, text.
"""

from collections.abc import Iterator
from typing import Any

from zerodr.collections.archives import Archive, read_lines
from zerodr.collections.readers.base import bad_line, read_json_lines
from zerodr.collections.readers.rows import RowsReader
from zerodr.errors import CollectionError

IDS = ("_id", "id")


class FolderReader(RowsReader):
    """Reader of format `folder`."""

    ids = IDS

    def member_of(self, stem: str) -> str | None:
        """Return the one file with these rows; a folder without a corpus is refused."""
        names = [name for ending in READ if (name := f"{stem}.{ending}") in self.archive.names()]
        if len(names) > 1:
            problem = f"holds {' and '.join(names)}, expected one of them"
            raise CollectionError(self.archive.name, problem, "remove the others")
        if stem == "corpus" and not names:
            raise CollectionError(self.archive.name, f"holds no {stem}.{{{','.join(READ)}}}", "add one")
        return names[0] if names else None

    def rows(self, member: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read line or row number and values of each row."""
        for line, value in READ[member.rpartition(".")[2]](self.archive, member):
            whole = {name: str(value[name]) for name in IDS if type(value.get(name)) is int}
            yield line, value | whole


def read_table(archive: Archive, member: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read line number and named cells of a TSV file."""
    names: list[str] = []
    for number, line in read_lines(archive, member):
        cells = line.split("\t")
        if not names:
            header = cells[0] in IDS and "text" in cells
            names = cells if header else {2: ["id", "text"], 3: ["id", "title", "text"]}.get(len(cells), [])
            if header:
                continue
        if not names or len(cells) != len(names):
            problem = f"expected {len(names) or '2 or 3'} cells separated by tabs, found {len(cells)}"
            raise bad_line(f"{archive.name}/{member}", number, problem)
        yield number, dict(zip(names, cells, strict=True))


def read_parquet(archive: Archive, member: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read row number (from 1) and values of a parquet file, in blocks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with archive.open(member) as stream, pq.ParquetFile(stream) as file:
            columns = [name for name in ("_id", "id", "title", "text") if name in file.schema_arrow.names]
            for batch in file.iter_batches(4096, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except pa.ArrowInvalid as error:
        raise CollectionError(f"{archive.name}/{member}", f"is no parquet file ({error})", "write it again") from None


READ = {"jsonl": read_json_lines, "tsv": read_table, "parquet": read_parquet}
