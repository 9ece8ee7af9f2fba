"""Read named values: the BEIR layout (format `beir`) and a user's own folder (format `folder`).

Both have rows of a corpus and of queries, and judgements in `qrels/<split>.tsv`.
"""

from collections.abc import Iterator
from typing import Any

from zerodr.collections.archives import Archive, Location, find, read_lines
from zerodr.collections.readers.base import (
    Document,
    Judgement,
    Query,
    Reader,
    bad_line,
    read_json_lines,
    read_qrels,
    text_of,
    title_of,
)
from zerodr.errors import CollectionError

IDS = ("_id", "id")


class RowsReader(Reader):
    """Base of these readers.

    Attributes:
        ids: names that the value with the id may have.
        folder: prefix of the names of the files, with a slash at its end.
    """

    ids: tuple[str, ...] = ("_id",)
    folder = ""

    def member_of(self, stem: str) -> str | None:
        """Return the file with the rows of `corpus`, `queries`, `queries_unlabelled` or `answers`, if there is one.

        A format refuses an archive without corpus.
        """
        member = f"{self.folder}{stem}.jsonl"
        return member if member in self.archive.names() else None

    def rows(self, member: str) -> Iterator[tuple[Location, dict[str, Any]]]:
        """Read location and values of each row."""
        return read_json_lines(self.archive, member)

    def documents(self) -> Iterator[Document]:
        """Read the corpus."""
        member = str(self.member_of("corpus"))
        for location, value in self.rows(member):
            key, text = (text_of(value, names, *location) for names in (self.ids, ("text",)))
            yield Document(key, title_of(value, *location), text, *location)

    def queries(self) -> Iterator[Query]:
        """Read the queries; none for a corpus alone."""
        return self._queries("queries") or iter(())

    def unlabelled(self) -> Iterator[Query] | None:
        """Read the rows of `queries_unlabelled`."""
        return self._queries("queries_unlabelled")

    def _queries(self, stem: str) -> Iterator[Query] | None:
        member = self.member_of(stem)
        return self._query_rows(member) if member else None

    def _query_rows(self, member: str) -> Iterator[Query]:
        for location, value in self.rows(member):
            yield Query(text_of(value, self.ids, *location), text_of(value, ("text",), *location), *location)

    def splits(self) -> list[str]:
        """List the splits: every `qrels/<split>.tsv`."""
        start = f"{self.folder}qrels/"
        names = (name.removeprefix(start) for name in self.archive.names() if name.startswith(start))
        return sorted(name.removesuffix(".tsv") for name in names if name.endswith(".tsv") and "/" not in name)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the lines of `qrels/<split>.tsv`."""
        return read_qrels(self.archive, f"{self.folder}qrels/{split}.tsv")


class BeirReader(RowsReader):
    """Reader of format `beir`: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` in one folder of the archive.

    `member` names the folder (`cqadupstack/android`); empty, it is the folder of `corpus.jsonl`. The lab's archives may
    add `queries_unlabelled.jsonl` and `answers.jsonl`.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        corpus = find(archive, f"{member}/corpus.jsonl" if member else "corpus.jsonl")
        self.folder = str(corpus)[: -len("corpus.jsonl")]

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Read the objects of `answers.jsonl`."""
        member = self.member_of("answers")
        return (value for _, value in self.rows(member)) if member else None


class FolderReader(RowsReader):
    """Reader of format `folder`: `corpus.{jsonl,tsv,parquet}` and, if there are any, `queries.{...}` and qrels.

    JSON lines and parquet columns: `_id` or `id` (text or whole number), `text`, and `title` where there is one. TSV: a
    header with these names, or none and the cells id, text or id, title, text.
    """

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

    def rows(self, member: str) -> Iterator[tuple[Location, dict[str, Any]]]:
        """Read location and values of each row."""
        _, _, ending = member.rpartition(".")
        for location, value in READ[ending](self.archive, member):
            whole = {name: str(value[name]) for name in IDS if type(value.get(name)) is int}
            yield location, value | whole


def read_table(archive: Archive, member: str) -> Iterator[tuple[Location, dict[str, Any]]]:
    """Read location and named cells of a TSV file."""
    names: list[str] = []
    for location, line in read_lines(archive, member):
        cells = line.split("\t")
        if not names:
            header = cells[0] in IDS and "text" in cells
            names = cells if header else {2: ["id", "text"], 3: ["id", "title", "text"]}.get(len(cells), [])
            if header:
                continue
        if not names or len(cells) != len(names):
            problem = f"expected {len(names) or '2 or 3'} cells separated by tabs, found {len(cells)}"
            raise bad_line(*location, problem)
        yield location, dict(zip(names, cells, strict=True))


def read_parquet(archive: Archive, member: str) -> Iterator[tuple[Location, dict[str, Any]]]:
    """Read location (rows count from 1) and values of a parquet file, in blocks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with archive.open(member) as stream, pq.ParquetFile(stream) as file:
            columns = [name for name in ("_id", "id", "title", "text") if name in file.schema_arrow.names]
            for batch in file.iter_batches(4096, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield Location(f"{archive.name}/{member}", number), row
    except pa.ArrowInvalid as error:
        raise CollectionError(f"{archive.name}/{member}", f"is no parquet file ({error})", "write it again") from None


READ = {"jsonl": read_json_lines, "tsv": read_table, "parquet": read_parquet}
