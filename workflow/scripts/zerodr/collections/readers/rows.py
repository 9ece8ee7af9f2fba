"""Read formats of named values: rows of corpus and queries, judgements in `qrels/<split>.tsv`."""

from collections.abc import Iterator
from typing import Any

from zerodr.collections.readers.base import (
    Document,
    Judgement,
    Query,
    Reader,
    read_json_lines,
    read_qrels,
    text_of,
    title_of,
)


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

    def rows(self, member: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read line number and values of each row."""
        return read_json_lines(self.archive, member)

    def documents(self) -> Iterator[Document]:
        """Read the corpus."""
        member = str(self.member_of("corpus"))
        file = f"{self.archive.name}/{member}"
        for line, value in self.rows(member):
            key, text = (text_of(value, names, file, line) for names in (self.ids, ("text",)))
            yield Document(key, title_of(value, file, line), text, file, line)

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
        file = f"{self.archive.name}/{member}"
        for line, value in self.rows(member):
            yield Query(text_of(value, self.ids, file, line), text_of(value, ("text",), file, line), file, line)

    def splits(self) -> list[str]:
        """List the splits: every `qrels/<split>.tsv`."""
        start = f"{self.folder}qrels/"
        names = (name.removeprefix(start) for name in self.archive.names() if name.startswith(start))
        return sorted(name.removesuffix(".tsv") for name in names if name.endswith(".tsv") and "/" not in name)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the lines of `qrels/<split>.tsv`."""
        return read_qrels(self.archive, f"{self.folder}qrels/{split}.tsv")
