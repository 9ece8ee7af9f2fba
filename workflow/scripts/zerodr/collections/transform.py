"""Make a collection of others by changing their texts: stage `transform_collection`.

Each way is a reader of normalised collections that changes what it passes on, so that `write_collection` audits the
result as it audits an archive. Only joined documents keep their answers: elsewhere texts change.
"""

import hashlib
import re
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import qrels_files, read_corpus, read_qrels, read_queries
from zerodr.collections.normalize import NormalizeSettings, write_collection
from zerodr.collections.readers.base import Document, Judgement, Query, Reader
from zerodr.config.base import Settings, validate
from zerodr.config.transform import Transform

WORD = re.compile(r"[^\W\d_]+")
COMMON, RARE = 0.1, 0.002
"""Words in more than a tenth of the documents say little; in fewer than one of 500, they rarely meet a question."""
SHORTEST = 4
CONSONANTS, VOWELS, SYLLABLES = "bdfghjklmnprstvz", "aeiou", 4
BOILERPLATE = 200


class TransformSettings(Settings):
    """Settings of `transform_collection`."""

    name: str
    """Name of the collection."""
    splits: tuple[str, ...]
    """Splits that it has; none: those of its sources."""
    transform: Transform
    """Change of the texts of its sources."""


def transform_collection(stage: Stage) -> None:
    """Read input `sources`, normalised collections; write output `collection` (a folder artifact).

    Raises:
        CollectionError: a source lacks a split.
    """
    settings = validate(TransformSettings, stage.params, stage.spec.rule)
    sources = {name: Normalized(folder) for name, folder in stage.folders("sources").items()}
    reader = transformed(settings.transform, sources, stage.seed)
    named = dict.fromkeys(settings.splits)
    row = NormalizeSettings(name=settings.name, kind="subset", format="transform", splits=named)
    facts = write_collection(reader, row, stage.output("collection"))
    stage.note(audit=facts)
    stage.metric("documents", facts["documents"])
    stage.metric("queries", facts["queries"])


def transformed(settings: Transform, sources: Mapping[str, Reader], seed: int) -> Reader:
    """Return a reader of the changed collection.

    Args:
        settings: how it is made.
        sources: readers by collection, in the order of the result's documents.
        seed: of every random choice.
    """
    if settings.kind == "mix":
        return Mixed(sources, settings.questions, seed)
    (whole,) = sources.values()
    ways: dict[str, Callable[[], Reader]] = {
        "new_words": lambda: NewWords(whole, settings.words, seed),
        "cipher": lambda: Ciphered(whole, settings.share, seed),
        "boilerplate": lambda: WithBoilerplate(whole, settings.longest, settings.shared, seed),
        "join": lambda: Joined(whole, (settings.first, settings.second), seed),
    }
    return ways[settings.kind]()


def invented(word: str, seed: int) -> str:
    """Invent a word for a word, the same in any text.

    >>> invented("heart", 13) == invented("Heart", 13) != invented("heart", 14)
    True
    >>> len(invented("heart", 13))
    8
    """
    digest = hashlib.blake2b(f"{seed} {word.lower()}".encode(), digest_size=2 * SYLLABLES).digest()
    pairs = zip(digest[::2], digest[1::2], strict=True)
    return "".join(CONSONANTS[a % len(CONSONANTS)] + VOWELS[b % len(VOWELS)] for a, b in pairs)


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


class Changed(Reader):
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


class NewWords(Changed):
    """Content words are replaced by invented ones in all texts: a vocabulary that no model has read.

    Args:
        whole: reads the collection.
        words: how many.
        seed: decides how the invented words are spelt.
    """

    def __init__(self, whole: Reader, words: int, seed: int) -> None:
        super().__init__(whole, seed)
        self.words = words

    @cached_property
    def replaced(self) -> frozenset[str]:
        """The words, in lower case."""
        counts, total = Counter[str](), 0
        for row in self.whole.documents():
            counts.update({word.lower() for word in WORD.findall(f"{row.title} {row.text}") if len(word) >= SHORTEST})
            total += 1
        fitting = [word for word, count in counts.items() if RARE * total <= count <= COMMON * total]
        return frozenset(sorted(fitting, key=lambda word: (-counts[word], word))[: self.words])

    def text(self, text: str) -> str:
        """Replace the words of a text."""
        return WORD.sub(lambda m: invented(m[0], self.seed) if m[0].lower() in self.replaced else m[0], text)

    def document(self, row: Document) -> Document:
        """Replace the words of a document."""
        return row._replace(title=self.text(row.title), text=self.text(row.text))

    def query(self, row: Query) -> Query:
        """Replace the words of a question."""
        return row._replace(text=self.text(row.text))


class Ciphered(Changed):
    """All words of a share of the articles are replaced, and of the questions whose relevant documents all are theirs.

    Args:
        whole: reads the collection.
        share: of the articles.
        seed: decides which, and how the invented words are spelt.
    """

    def __init__(self, whole: Reader, share: float, seed: int) -> None:
        super().__init__(whole, seed)
        self.share = share

    @cached_property
    def hidden(self) -> frozenset[str]:
        """Documents whose words are replaced."""
        return frozenset(row.id for row in self.whole.documents() if self._drawn(row.title or row.id))

    def _drawn(self, article: str) -> bool:
        return lot(self.seed, article) < self.share * 2**64

    def text(self, text: str) -> str:
        """Replace all words of a text."""
        return WORD.sub(lambda m: invented(m[0], self.seed), text)

    def document(self, row: Document) -> Document:
        """Replace the words of a document that was drawn."""
        return row if row.id not in self.hidden else row._replace(title=self.text(row.title), text=self.text(row.text))

    def query(self, row: Query) -> Query:
        """Replace the words of a question about documents that were drawn."""
        documents = self.relevant.get(row.id)
        return row._replace(text=self.text(row.text)) if documents and self.hidden.issuperset(documents) else row


class WithBoilerplate(Changed):
    """Invented words stand before each text, as many as drawn.

    Args:
        whole: reads the collection.
        longest: at most so many words.
        shared: a question has the words of its first relevant document.
        seed: of the draws.
    """

    def __init__(self, whole: Reader, longest: int, shared: bool, seed: int) -> None:
        super().__init__(whole, seed)
        self.longest, self.shared = longest, shared

    def words(self, key: str) -> str:
        """Draw the words of an id."""
        random = np.random.default_rng(lot(self.seed, key))
        chosen = random.integers(0, BOILERPLATE, size=random.integers(0, self.longest + 1))
        return "".join(f"{invented(f'boilerplate {n}', self.seed)} " for n in chosen)

    def document(self, row: Document) -> Document:
        """Put words before a document's text."""
        return row._replace(text=self.words(f"document {row.id}") + row.text)

    def query(self, row: Query) -> Query:
        """Put words before a question."""
        documents = self.relevant.get(row.id) if self.shared else None
        return row._replace(text=self.words(f"document {documents[0]}" if documents else f"query {row.id}") + row.text)


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


class Mixed(Reader):
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
