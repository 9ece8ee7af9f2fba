"""Stage `hold_out_items`: take titles and sentences out of documents, as queries whose document is known.

A document without its title, or without one sentence, is searched with what was taken out: a proxy for judgements. So
a word match with the query itself is impossible, for embeddings as for BM25. Only what occurs once in the corpus is
taken, and copies of a title in the text go with it. Each document loses one thing at most. A language model, where
there is one, writes questions about documents that lose nothing.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import (
    CORPUS_SCHEMA,
    ROW_GROUP,
    corpus_size,
    read_corpus,
    read_queries,
    write_generated_queries,
)
from zerodr.config.base import Settings, validate
from zerodr.config.generation import WriterSettings
from zerodr.config.params import SENTENCES, TITLES
from zerodr.errors import CollectionError
from zerodr.mining.cut import IDEOGRAPHS, WORD, sentences_of
from zerodr.mining.written import QUESTIONS, lots_of, write

KINDS = (TITLES, SENTENCES)
LETTER = rf"[^\W{IDEOGRAPHS}]"  # of writing with spaces


class HoldOutSettings(Settings):
    """Settings of `hold_out_items`."""

    name: str
    """Name of the proxy collection."""
    split: str
    """Name of the queries as a split."""
    count: int = Field(ge=1)
    """Upper limit of queries of each kind."""
    share: float = Field(0.2, gt=0, le=0.5)
    """Upper limit of documents that lose something of a kind, as a share of all."""
    words: tuple[int, int] = (6, 40)
    """Fewest and most words of a sentence."""
    title_words: tuple[int, int] = (2, 40)
    """Fewest and most words of a title."""
    words_left: int = Field(20, ge=1)
    """Fewest words that a document keeps."""
    questions: int = Field(0, ge=0)
    """Questions that a language model writes."""
    writer: WriterSettings | None = None
    """The language model."""
    title_join: str | None = None
    """Text that joins a document's title and text for it. None: text alone."""


class KnownItem(NamedTuple):
    """A known item: its kind and text, and title and text of its document without it."""

    kind: str
    query: str
    title: str
    text: str


class Earlier(NamedTuple):
    """Texts that models have learned from.

    Attributes:
        items: known items by the key of their document.
        keys: of all documents.
        texts: their titles and sentences, `folded`.
    """

    items: dict[str, KnownItem]
    keys: frozenset[str]
    texts: frozenset[int]

    def allows(self, key: str, item: KnownItem) -> bool:
        """True for an earlier item, and for one of a document that is new and whose words no earlier one had."""
        if key in self.keys:
            return self.items.get(key) == item
        return folded(item.query) not in self.texts


class SeenTexts(NamedTuple):
    """Counts of each title and each sentence of a corpus, letters folded and words alone."""

    titles: Counter[int]
    sentences: Counter[int]


def hold_out_items(stage: Stage) -> None:
    """Read input `collection`; write a collection with the same documents, less what became queries.

    With an input `earlier`, such a collection that models have learned from, what these have read is no query.

    Raises:
        CollectionError: no document can lose anything.
    """
    settings = validate(HoldOutSettings, stage.params, stage.spec.name())
    source, folder = stage.path("collection"), stage.output("collection")
    earlier = read_earlier(stage.path("earlier")) if "earlier" in stage.spec.inputs else None
    items = choose(source, settings, stage.seed, earlier)
    known = [(item.kind, key, item.query) for key, item in items.items()]
    if settings.questions and settings.writer:
        asked = write(stage, settings.questions, settings.writer, settings.title_join, avoid=items)
        known += [(QUESTIONS, one.document, one.text) for one in asked]
    counts = Counter(kind for kind, _, _ in known)
    if not known:
        problem = "has no title or sentence that could be held out: its texts are short, alike or untitled"
        writer = "install the model that asks questions about English texts (docs/own-corpus.md, The judge)"
        raise CollectionError(
            source.name, problem, f"add judgements (qrels/test.tsv) to compare methods with, or {writer}"
        )
    write_generated_queries(folder, settings.split, [(f"{kind}-{key}", text, key) for kind, key, text in known])
    write_documents(source, items, folder / "corpus.parquet")
    facts = {"collection": settings.name, "kind": "proxy", "documents": corpus_size(source), "queries": len(known)}
    write_json(folder / "audit.json", facts | {"held_out": dict(counts)})
    for kind in (*KINDS, *([QUESTIONS] if settings.questions else [])):
        stage.metric(f"queries_{kind}", counts[kind])
    stage.note(audit=facts)


def read_earlier(folder: Path) -> Earlier:
    """Read a collection that this stage wrote."""
    queries = read_queries(folder)
    asked = {}
    for name, query in zip(queries["id"].to_pylist(), queries["text"].to_pylist(), strict=True):
        kind, _, key = name.partition("-")
        if kind in KINDS:
            asked[key] = kind, query
    items, keys, texts = dict[str, KnownItem](), list[str](), list[int]()
    for block in read_corpus(folder):
        for key, title, text in zip(*(column.to_pylist() for column in block.columns), strict=True):
            keys.append(key)
            texts += [folded(title or ""), *map(folded, sentences_of(text or ""))]
            if key in asked:
                items[key] = KnownItem(*asked[key], title or "", text or "")
    return Earlier(items, frozenset(keys), frozenset(texts))


def choose(source: Path, settings: HoldOutSettings, seed: int, earlier: Earlier | None = None) -> dict[str, KnownItem]:
    """Choose known items by document id. The choice depends on the seed and the documents, not on their order."""
    size, seen = corpus_size(source), count_texts(source)
    most = max(1, min(settings.count, int(settings.share * size)))
    lots, row, drawn = lots_of(source, "hold out", seed), 0, list[tuple[int, str, str, str]]()
    for block in read_corpus(source):
        columns = [column.to_pylist() for column in block.columns]
        drawn += zip(lots[row : row + len(block)].tolist(), *columns, strict=True)
        row += len(block)
    left, items = dict.fromkeys(KINDS, most), dict[str, KnownItem]()
    for number, (_, key, title, text) in enumerate(sorted(drawn)):
        if not any(left.values()):
            break
        for kind in KINDS if number % 2 else KINDS[::-1]:
            item = held_out(kind, title or "", text or "", settings, seen, random.Random(f"{seed} {key}"))
            if item is None or earlier is not None and not earlier.allows(key, item):
                continue
            if left[kind]:
                left[kind] -= 1
                items[key] = item
                break
    return items


def count_texts(source: Path) -> SeenTexts:
    """Count the titles and sentences of a corpus."""
    seen = SeenTexts(Counter(), Counter())
    progress = Progress(f"hold out items of {source.name}", corpus_size(source), "documents")
    for block in read_corpus(source, columns=("title", "text")):
        for title, text in zip(*(column.to_pylist() for column in block.columns), strict=True):
            seen.titles[folded(title or "")] += 1
            seen.sentences.update({folded(one) for one in sentences_of(text or "")})
        progress.add(len(block))
    progress.finish()
    return seen


def folded(text: str) -> int:
    """Return a number that is equal for texts with the same words, whatever their letters' case."""
    return hash(tuple(WORD.findall(text.casefold())))


def held_out(
    kind: str, title: str, text: str, settings: HoldOutSettings, seen: SeenTexts, draw: random.Random
) -> KnownItem | None:
    """Take a title or a drawn sentence out of a document; None where it has none that can go."""
    if kind == TITLES:
        short, long = settings.title_words
        rest = without(title, text)
        usable = short <= len(WORD.findall(title)) <= long and seen.titles[folded(title)] == 1
        item = KnownItem(TITLES, " ".join(title.split()), "", rest)
    else:
        short, long = settings.words
        fitting = [one for one in sentences_of(text) if short <= len(WORD.findall(one)) <= long]
        alone = [one for one in fitting if seen.sentences[folded(one)] == 1 and folded(one) != folded(title)]
        usable = bool(alone)
        chosen = draw.choice(alone) if alone else ""
        item = KnownItem(SENTENCES, chosen, title, without(chosen, text))
        usable = usable and item.text != text
    return item if usable and len(WORD.findall(item.text)) >= settings.words_left else None


def without(piece: str, text: str) -> str:
    """Take all copies of a piece out of a text, whatever their case, white space and punctuation.

    >>> without("Do not run: it slips.", "Wet? Do not run; it  SLIPS! Walk.")
    'Wet?  ! Walk.'
    """
    if not piece.split():
        return text
    text = re.sub(r"\s+".join(map(re.escape, piece.split())), " ", text, flags=re.I)
    if words := WORD.findall(piece):
        again = r"[\W_]*".join(map(re.escape, words))
        text = re.sub(rf"(?<!{LETTER}){again}(?!{LETTER})", " ", text, flags=re.I)
    return text.strip()


def write_documents(source: Path, items: dict[str, KnownItem], path: Path) -> None:
    """Write the corpus, in its order, with the documents of known items as they are without them."""
    with pq.ParquetWriter(path, CORPUS_SCHEMA, compression="zstd") as writer:
        for block in read_corpus(source):
            ids, titles, texts = (column.to_pylist() for column in block.columns)
            for row, key in enumerate(ids):
                if key in items:
                    titles[row], texts[row] = items[key].title, items[key].text
            writer.write_table(pa.table([ids, titles, texts], schema=CORPUS_SCHEMA), row_group_size=ROW_GROUP)
