"""Read the BEIR layout (format `beir`): rows of a corpus and of queries, judgements in `qrels/<split>.tsv`."""

from collections.abc import Iterator
from typing import Any

from zerodr.collections.archives import Archive, find
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


class BeirReader(Reader):
    """Reader of format `beir`: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` in one folder of the archive.

    `member` names the folder (`cqadupstack/android`); empty, it is the folder of `corpus.jsonl`. The lab's archives may
    add `queries_unlabelled.jsonl` and `answers.jsonl`.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        corpus = find(archive, f"{member}/corpus.jsonl" if member else "corpus.jsonl")
        self.folder = str(corpus)[: -len("corpus.jsonl")]

    def member_of(self, stem: str) -> str | None:
        """Return the file with the rows of `corpus`, `queries`, `queries_unlabelled` or `answers`, if there is one."""
        member = f"{self.folder}{stem}.jsonl"
        return member if member in self.archive.names() else None

    def documents(self) -> Iterator[Document]:
        """Read the corpus."""
        member = str(self.member_of("corpus"))
        for location, value in read_json_lines(self.archive, member):
            key, text = (text_of(value, names, *location) for names in (("_id",), ("text",)))
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
        for location, value in read_json_lines(self.archive, member):
            yield Query(text_of(value, ("_id",), *location), text_of(value, ("text",), *location), *location)

    def splits(self) -> list[str]:
        """List the splits: every `qrels/<split>.tsv`."""
        start = f"{self.folder}qrels/"
        names = (name.removeprefix(start) for name in self.archive.names() if name.startswith(start))
        return sorted(name.removesuffix(".tsv") for name in names if name.endswith(".tsv") and "/" not in name)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the lines of `qrels/<split>.tsv`."""
        return read_qrels(self.archive, f"{self.folder}qrels/{split}.tsv")

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Read the objects of `answers.jsonl`."""
        member = self.member_of("answers")
        return (value for _, value in read_json_lines(self.archive, member)) if member else None
