"""Read normalised collections, and define collections that are made of one or several (`transform_collection`)."""

import hashlib
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
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
        """Relevant documents of the corpus by question, over all splits."""
        pairs, known = defaultdict[str, list[str]](list), {row.id for row in self.whole.documents()}
        for row in (row for split in self.splits() for row in self.whole.judgements(split)):
            if row.grade > 0 and row.document in known:
                pairs[row.query].append(row.document)
        return pairs


class Joined(Changed):
    """Two documents become one, the second behind the first; a question's judgements and answers follow.

    Args:
        whole: reads the collection.
        shares: of the questions about first and about second halves, which are kept.
        seed: decides which two, and which questions.
    """

    def __init__(self, whole: Reader, shares: tuple[float, float], seed: int) -> None:
        super().__init__(whole, seed)
        self.shares = shares

    @cached_property
    def pairs(self) -> dict[str, str]:
        """Id of the joined document by the id of each."""
        order = sorted((row.id for row in self.whole.documents()), key=partial(lot, self.seed))
        joined = ["+".join(order[n : n + 2]) for n in range(0, len(order), 2)]
        return {key: joined[n // 2] for n, key in enumerate(order)}

    def is_second(self, document: str) -> bool:
        """Check whether a document is a second half."""
        return self.pairs[document].endswith(f"+{document}")

    def is_drawn(self, query: str) -> bool:
        """Draw a question by the half of its first relevant document."""
        documents = self.relevant.get(query)
        return not documents or lot(self.seed, query) < self.shares[self.is_second(documents[0])] * 2**64

    def documents(self) -> Iterator[Document]:
        """Read the joined documents, in the order of their second halves."""
        waiting: dict[str, Document] = {}
        for row in self.whole.documents():
            name = self.pairs[row.id]
            if name == row.id:
                yield row
            elif name in waiting:
                halves = sorted((waiting.pop(name), row), key=lambda half: self.is_second(half.id))
                yield self.document(row)._replace(text="\n".join(map(half_text, halves)))
            else:
                waiting[name] = row

    def document(self, row: Document) -> Document:
        """Name a document after both, without a title."""
        return row._replace(id=self.pairs[row.id], title="")

    def query(self, row: Query) -> Query:
        """Return a question as it is."""
        return row

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the judgements, of a document that holds several the highest."""
        best: dict[tuple[str, str], Judgement] = {}
        for row in (row for row in self.whole.judgements(split) if self.is_drawn(row.query)):
            moved = row._replace(document=self.pairs.get(row.document, row.document))
            key = moved.query, moved.document
            best[key] = max(best.get(key, moved), moved, key=lambda judgement: judgement.grade)
        return iter(best.values())

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Read the answers to the questions that are kept, where they stand in the joined documents."""
        rows = self.whole.answers()
        return None if rows is None else map(self._moved, (row for row in rows if self.is_drawn(row["query_id"])))

    def _moved(self, row: dict[str, Any]) -> dict[str, Any]:
        document = row["corpus_id"]
        spans = [span | {"start": span["start"] + self.before[document]} for span in row["answers"]]
        return row | {"corpus_id": self.pairs[document], "answers": spans}

    @cached_property
    def before(self) -> dict[str, int]:
        """Characters that stand before each document's text."""
        rows = {row.id: (len(half_text(row)), len(row.text.rstrip())) for row in self.whole.documents()}
        firsts = {self.pairs[key]: half + 1 for key, (half, _) in rows.items() if not self.is_second(key)}
        return {k: half - text + self.is_second(k) * firsts[self.pairs[k]] for k, (half, text) in rows.items()}


def half_text(row: Document) -> str:
    """Return a document as it stands in a joined one."""
    return f"{row.title} {row.text}".strip()


class Mixed(Derived):
    """Questions of several collections with the documents of all. Ids begin with the collection's name and a slash.

    Args:
        sources: readers by collection.
        questions: how many of each split are drawn, by collection; all where one is not named.
        seed: of the draw.
    """

    def __init__(self, sources: Mapping[str, Reader], questions: Mapping[str, int], seed: int) -> None:
        self.sources, self.questions, self.seed, self.member = sources, questions, seed, ""

    def documents(self) -> Iterator[Document]:
        """Read the documents of all."""
        for name, reader in self.sources.items():
            yield from (row._replace(id=f"{name}/{row.id}") for row in reader.documents())

    def queries(self) -> Iterator[Query]:
        """Read the questions that were drawn."""
        drawn = {row.query for split in self.splits() for row in self.judgements(split)}
        for name, reader in self.sources.items():
            rows = (row._replace(id=f"{name}/{row.id}") for row in reader.queries())
            yield from (row for row in rows if row.id in drawn)

    def groups(self) -> dict[str, str]:
        """Return the collection of each question that was drawn."""
        return {row.id: row.id.partition("/")[0] for row in self.queries()}

    def splits(self) -> list[str]:
        """List the splits of any source."""
        return sorted({split for reader in self.sources.values() for split in reader.splits()})

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the judgements of the questions that were drawn; a source without the split has none."""
        for name, reader in self.sources.items():
            rows = list(reader.judgements(split)) if split in reader.splits() else []
            asked = sorted({row.query for row in rows if row.grade > 0}, key=partial(lot, self.seed))
            drawn = set(asked[: self.questions.get(name)])
            for row in rows:
                if row.query in drawn:
                    yield row._replace(query=f"{name}/{row.query}", document=f"{name}/{row.document}")
