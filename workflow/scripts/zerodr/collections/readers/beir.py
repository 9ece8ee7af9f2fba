"""BEIR layout: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` in one folder of the archive.

`member` names the folder (`cqadupstack/android`); empty, the folder is where `corpus.jsonl` is. The lab's own archives
may add `queries_unlabelled.jsonl` and `answers.jsonl`.
"""

from __future__ import annotations

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
    """Reader of format `beir`."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        corpus = find(archive, f"{member}/corpus.jsonl" if member else "corpus.jsonl")
        self.folder = str(corpus)[: -len("corpus.jsonl")]

    def documents(self) -> Iterator[Document]:
        """The corpus."""
        member = f"{self.folder}corpus.jsonl"
        file = f"{self.archive.name}/{member}"
        for line, value in read_json_lines(self.archive, member):
            yield Document(
                text_of(value, ("_id",), file, line),
                title_of(value, file, line),
                text_of(value, ("text",), file, line),
                file,
                line,
            )

    def queries(self) -> Iterator[Query]:
        """The queries; none when the archive is a corpus alone."""
        return self._queries("queries.jsonl") or iter(())

    def unlabelled(self) -> Iterator[Query] | None:
        """Queries of `queries_unlabelled.jsonl`."""
        return self._queries("queries_unlabelled.jsonl")

    def _queries(self, name: str) -> Iterator[Query] | None:
        if self.folder + name not in self.archive.names():
            return None
        return read_queries(self.archive, self.folder + name)

    def splits(self) -> list[str]:
        """Every `qrels/<split>.tsv`."""
        start = f"{self.folder}qrels/"
        names = (name.removeprefix(start) for name in self.archive.names() if name.startswith(start))
        return sorted(name.removesuffix(".tsv") for name in names if name.endswith(".tsv") and "/" not in name)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Lines of `qrels/<split>.tsv`."""
        return read_qrels(self.archive, f"{self.folder}qrels/{split}.tsv")

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Objects of `answers.jsonl`."""
        member = f"{self.folder}answers.jsonl"
        if member not in self.archive.names():
            return None
        return (value for _, value in read_json_lines(self.archive, member))


def read_queries(archive: Archive, member: str, ids: tuple[str, ...] = ("_id",)) -> Iterator[Query]:
    """Queries of JSON lines with an id and `text`."""
    file = f"{archive.name}/{member}"
    for line, value in read_json_lines(archive, member):
        yield Query(text_of(value, ids, file, line), text_of(value, ("text",), file, line), file, line)
