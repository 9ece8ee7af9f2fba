"""A user's own folder: `corpus.{jsonl,tsv,parquet}` and, if there are any, `queries.{...}` and `qrels/<split>.tsv`.

JSON lines and parquet columns: `_id` or `id`, `text`, and `title` where there is one. TSV: a header with these names,
or none and the cells id, text or id, title, text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerodr.collections.archives import Archive, read_lines
from zerodr.collections.readers.base import (
    Document,
    Judgement,
    Query,
    Reader,
    read_json_lines,
    read_qrels,
    text_of,
    title_of,
    where,
)
from zerodr.errors import CollectionError

ENDINGS = ("jsonl", "tsv", "parquet")
IDS = ("_id", "id")


class FolderReader(Reader):
    """Reader of format `folder`."""

    def documents(self) -> Iterator[Document]:
        """The corpus."""
        member = self._one("corpus", required=True)
        file = f"{self.archive.name}/{member}"
        for line, value in self._rows(str(member)):
            yield Document(
                text_of(value, IDS, file, line),
                title_of(value, file, line),
                text_of(value, ("text",), file, line),
                file,
                line,
            )

    def queries(self) -> Iterator[Query]:
        """The queries, if there are any."""
        return self._queries("queries") or iter(())

    def unlabelled(self) -> Iterator[Query] | None:
        """Queries of `queries_unlabelled.{jsonl,tsv,parquet}`."""
        return self._queries("queries_unlabelled")

    def splits(self) -> list[str]:
        """Every `qrels/<split>.tsv`."""
        names = (name for name in self.archive.names() if name.startswith("qrels/") and name.endswith(".tsv"))
        return sorted(name.removeprefix("qrels/").removesuffix(".tsv") for name in names)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Lines of `qrels/<split>.tsv`."""
        return read_qrels(self.archive, f"qrels/{split}.tsv")

    def _queries(self, stem: str) -> Iterator[Query] | None:
        member = self._one(stem)
        return self._query_rows(member) if member else None

    def _query_rows(self, member: str) -> Iterator[Query]:
        file = f"{self.archive.name}/{member}"
        for line, value in self._rows(member):
            yield Query(text_of(value, IDS, file, line), text_of(value, ("text",), file, line), file, line)

    def _one(self, stem: str, required: bool = False) -> str | None:
        found = [name for ending in ENDINGS if (name := f"{stem}.{ending}") in self.archive.names()]
        if len(found) > 1:
            raise CollectionError(
                self.archive.name, f"holds {' and '.join(found)}, expected one of them", "remove the others"
            )
        if required and not found:
            raise CollectionError(self.archive.name, f"holds no {stem}.{{{','.join(ENDINGS)}}}", "add one")
        return found[0] if found else None

    def _rows(self, member: str) -> Iterator[tuple[int, dict[str, Any]]]:
        read = {"jsonl": read_json_lines, "tsv": read_table, "parquet": read_parquet}[member.rpartition(".")[2]]
        return read(self.archive, member)


def read_table(archive: Archive, member: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and named cells of a TSV file."""
    names: list[str] = []
    for number, line in read_lines(archive, member):
        cells = line.split("\t")
        if not names:
            header = cells[0] in IDS and "text" in cells
            names = cells if header else {2: ["id", "text"], 3: ["id", "title", "text"]}.get(len(cells), [])
            if header:
                continue
        if not names or len(cells) != len(names):
            expected = len(names) or "2 or 3"
            raise CollectionError(
                where(f"{archive.name}/{member}", number),
                f"expected {expected} cells separated by tabs, found {len(cells)}",
                "correct the line",
            )
        yield number, dict(zip(names, cells, strict=True))


def read_parquet(archive: Archive, member: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Row number (from 1) and values of a parquet file, read in blocks."""
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
