"""Read the BEIR layout: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` in one folder of the archive.

`member` names the folder (`cqadupstack/android`); empty, it is the folder of `corpus.jsonl`. The lab's archives
may add `queries_unlabelled.jsonl` and `answers.jsonl`.
"""

from collections.abc import Iterator
from typing import Any

from zerodr.collections.archives import Archive, find
from zerodr.collections.readers.rows import RowsReader


class BeirReader(RowsReader):
    """Reader of format `beir`."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        corpus = find(archive, f"{member}/corpus.jsonl" if member else "corpus.jsonl")
        self.folder = str(corpus)[: -len("corpus.jsonl")]

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Read the objects of `answers.jsonl`."""
        member = self.member_of("answers")
        return (value for _, value in self.rows(member)) if member else None
