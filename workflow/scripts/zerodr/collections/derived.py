"""Read normalised collections, and define collections that are made of them (stage `transform_collection`)."""

import hashlib
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from zerodr.collections.access import qrels_files, read_corpus, read_qrels, read_queries
from zerodr.collections.readers.base import Document, Judgement, Query, Reader


def lot(seed: int, key: str) -> int:
    """Draw a number below 2**64 for an id."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {key}".encode(), digest_size=8).digest())


class Normalized(Reader):
    """Reads a normalised collection.

    Args:
        folder: with `corpus.parquet`, `queries.parquet` and `qrels.<split>.tsv`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.member = folder, ""

    def documents(self) -> Iterator[Document]:
        """Read the corpus."""
        rows = (row for batch in read_corpus(self.folder) for row in batch.to_pylist())
        for n, row in enumerate(rows, 1):
            yield Document(row["id"], row["title"] or "", row["text"] or "", self.folder.name, n)

    def queries(self) -> Iterator[Query]:
        """Read the queries."""
        for n, row in enumerate(read_queries(self.folder).to_pylist(), 1):
            yield Query(row["id"], row["text"] or "", self.folder.name, n)

    def splits(self) -> list[str]:
        """List the splits."""
        return list(qrels_files(self.folder))

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the judgements of a split."""
        for n, row in enumerate(read_qrels(self.folder, split).itertuples(index=False), 1):
            yield Judgement(row.query, row.document, row.grade, self.folder.name, n)

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Read the answers, if there are any."""
        path = self.folder / "answers.parquet"
        return iter(pq.read_table(path).to_pylist()) if path.exists() else None


class Derived(Reader):
    """A collection that is made of others."""

    def groups(self) -> dict[str, str]:
        """Return the group of each question, where the making knows groups."""
        return {}


class Changed(Derived):
    """A collection with the judgements of another, and changed texts.

    Args:
        whole: reads the other.
        seed: of every random choice.
    """

    def __init__(self, whole: Reader, seed: int) -> None:
        self.whole, self.seed, self.member = whole, seed, ""

    def splits(self) -> list[str]:
        """List the splits."""
        return self.whole.splits()

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the judgements of a split."""
        return self.whole.judgements(split)

    def documents(self) -> Iterator[Document]:
        """Read the documents, changed."""
        return map(self.document, self.whole.documents())

    def queries(self) -> Iterator[Query]:
        """Read the questions, changed."""
        return map(self.query, self.whole.queries())

    @abstractmethod
    def document(self, row: Document) -> Document:
        """Change a document."""

    @abstractmethod
    def query(self, row: Query) -> Query:
        """Change a question."""

    @cached_property
    def relevant(self) -> dict[str, list[str]]:
        """Relevant documents by question, over all splits."""
        pairs = defaultdict[str, list[str]](list)
        for row in (row for split in self.splits() for row in self.whole.judgements(split)):
            if row.grade > 0:
                pairs[row.query].append(row.document)
        return pairs
