"""Make a collection of others by changing their texts: stage `transform_collection`.

Each way is a reader of normalised collections that changes what it passes on, so that `write_collection` audits the
result as it audits an archive. Only joined documents keep their answers: elsewhere texts change.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import GROUPS
from zerodr.collections.derived import Changed, Derived, Joined, Mixed, Normalized, lot
from zerodr.collections.normalize import NormalizeSettings, write_collection
from zerodr.collections.readers.base import Document, Query, Reader
from zerodr.config.base import Settings, validate
from zerodr.config.transform import Transform

WORD = re.compile(r"[^\W\d_]+")
COMMON, RARE = 0.1, 0.002
"""Words in more than a tenth of the documents say little; in fewer than one of 500, they rarely meet a question."""
SHORTEST = 4
CONSONANTS, VOWELS, SYLLABLES = "bdfghjklmnprstvz", "aeiou", 4


class TransformSettings(Settings):
    """Settings of `transform_collection`."""

    name: str
    """Name of the collection."""
    splits: tuple[str, ...]
    """Splits that it has; none: those of its sources."""
    transform: Transform
    """Change of the texts of its sources."""
    known_gaps: int = 0
    """Judged documents that its sources lack."""
    drop_missing: bool = False
    """Drop judgements of absent documents."""


def transform_collection(stage: Stage) -> None:
    """Read input `sources`, normalised collections; write output `collection` (a folder artifact).

    Raises:
        CollectionError: a source lacks a split.
    """
    settings = validate(TransformSettings, stage.params, stage.spec.rule)
    sources = {name: Normalized(folder) for name, folder in stage.folders("sources").items()}
    reader = transformed(settings.transform, sources, stage.seed)
    named = dict.fromkeys(settings.splits)
    shared = settings.model_dump(include={"name", "known_gaps", "drop_missing"})
    row = NormalizeSettings(kind="subset", format="transform", splits=named, **shared)
    facts = write_collection(reader, row, stage.output("collection"))
    if groups := reader.groups():
        lines = ["query\tgroup", *(f"{query}\t{group}" for query, group in groups.items())]
        (stage.output("collection") / GROUPS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    stage.note(audit=facts)
    stage.metric("documents", facts["documents"])
    stage.metric("queries", facts["queries"])


def transformed(settings: Transform, sources: Mapping[str, Reader], seed: int) -> Derived:
    """Return a reader of the changed collection.

    Args:
        settings: how it is made.
        sources: readers by collection, in the order of the result's documents.
        seed: of every random choice.
    """
    if settings.kind == "mix":
        return Mixed(sources, settings.questions, seed)
    (whole,) = sources.values()
    ways: dict[str, Callable[[], Derived]] = {
        "new_words": lambda: NewWords(whole, settings.words, seed),
        "cipher": lambda: Ciphered(whole, settings.share, settings.groups, seed),
        "boilerplate": lambda: WithBoilerplate(whole, settings.longest, settings.vocabulary, settings.shared, seed),
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
        others: groups of the other articles.
        seed: decides which, and how the invented words are spelt.
    """

    def __init__(self, whole: Reader, share: float, others: int, seed: int) -> None:
        super().__init__(whole, seed)
        self.share, self.others = share, others

    @cached_property
    def articles(self) -> dict[str, str]:
        """Article of each document."""
        return {row.id: row.title or row.id for row in self.whole.documents()}

    @cached_property
    def hidden(self) -> frozenset[str]:
        """Documents whose words are replaced."""
        return frozenset(document for document, article in self.articles.items() if self._drawn(article))

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
        return row._replace(text=self.text(row.text)) if self._asks_hidden(row.id) else row

    def _asks_hidden(self, query: str) -> bool:
        documents = self.relevant.get(query, [])
        return bool(documents) and self.hidden.issuperset(documents)

    def groups(self) -> dict[str, str]:
        """Return `ciphered`, or the group of the first relevant document's article."""
        groups = {}
        for row in self.whole.queries():
            first = self.relevant.get(row.id, [row.id])[0]
            plain = f"plain {1 + lot(self.seed, f'group {self.articles.get(first, first)}') % self.others}"
            groups[row.id] = "ciphered" if self._asks_hidden(row.id) else plain
        return groups


class WithBoilerplate(Changed):
    """Invented words stand before each text, as many as drawn.

    Args:
        whole: reads the collection.
        longest: at most so many words.
        vocabulary: of so many different ones.
        shared: a question has the words of its first relevant document.
        seed: of the draws.
    """

    def __init__(self, whole: Reader, longest: int, vocabulary: int, shared: bool, seed: int) -> None:
        super().__init__(whole, seed)
        self.longest, self.vocabulary, self.shared = longest, vocabulary, shared

    def words(self, key: str) -> str:
        """Draw the words of an id."""
        random = np.random.default_rng(lot(self.seed, key))
        chosen = random.integers(0, self.vocabulary, size=random.integers(0, self.longest + 1))
        return "".join(f"{invented(f'boilerplate {n}', self.seed)} " for n in chosen)

    def document(self, row: Document) -> Document:
        """Put words before a document's text."""
        return row._replace(text=self.words(f"document {row.id}") + row.text)

    def query(self, row: Query) -> Query:
        """Put words before a question."""
        documents = self.relevant.get(row.id) if self.shared else None
        return row._replace(text=self.words(f"document {documents[0]}" if documents else f"query {row.id}") + row.text)
