"""Measure a collection against the source: lengths, weighted Jaccard similarity, query types.

weighted Jaccard (COCO-DR eq. 13, BERM table 1): sum_k min(S_k, T_k) / sum_k max(S_k, T_k) over the words k of two
normalised word frequency distributions. Query intent similarity is the same measure on the shares of nine query types
(COCO-DR appendix C.1).
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_size, read_queries, read_rows, split_queries
from zerodr.config.base import Settings, validate

log = logging.getLogger("zerodr")
CJK = ("zh", "ja", "ko")
FIRST_WORDS = ("what", "when", "who", "how", "where", "why", "which")
YES_NO_WORDS = frozenset(
    "is was are were do does did have has had should can could would am shall".split()
)  # the paper prints "small" for the last one
QUERY_TYPES = (*FIRST_WORDS, "yes/no", "declarative")
_WORD = re.compile(r"\w+")


class StatisticsSettings(Settings):
    """Settings of `measure_statistics`."""

    collection: str
    """The collection that is measured."""
    source: str
    """The collection with supervision."""
    evaluation_split: str = ""
    """Its queries are measured; empty: all queries."""
    language: str = "en"
    """Chinese, Japanese and Korean count characters and compare pairs of characters."""
    documents: int
    """Upper limit of documents that are read, evenly spread over the corpus."""


def measure_statistics(stage: Stage) -> None:
    """Read inputs `collection` and `source` (folder artifacts), write output `statistics` (JSON)."""
    settings = validate(StatisticsSettings, stage.params, stage.spec.rule)
    facts = compare(stage.path("collection"), stage.path("source"), settings)
    write_json(stage.output("statistics"), facts)
    for name in ("corpus", "queries", "query_types"):
        if facts["similarity"][name] is not None:
            stage.metric(f"similarity_{name}", facts["similarity"][name])
    log.info("%s", summary(facts))


def compare(folder: Path, source: Path, settings: StatisticsSettings) -> dict[str, Any]:
    """Describe the collection in `folder`, and its similarity with the one in `source`."""
    target = describe(folder, settings.evaluation_split, settings.language, settings.documents)
    other = describe(source, "", settings.language, settings.documents)
    return {
        "collection": settings.collection,
        "source": settings.source,
        "documents": target.documents,
        "queries": target.queries,
        "query_types": target.types,
        "similarity": {
            "corpus": weighted_jaccard(target.document_words, other.document_words),
            "queries": weighted_jaccard(target.query_words, other.query_words),
            "query_types": weighted_jaccard(Counter(target.types), Counter(other.types)),
        },
    }


class Description:
    """Word counts, lengths and query types of one collection."""

    def __init__(self, document_texts: Iterable[str], query_texts: Iterable[str], language: str) -> None:
        self.document_words: Counter[str] = Counter()
        self.query_words: Counter[str] = Counter()
        types: Counter[str] = Counter()
        self.documents = lengths(_counted(document_texts, self.document_words, language))
        typed = (types.update([query_type(text)]) or text for text in query_texts)
        self.queries = lengths(_counted(typed, self.query_words, language))
        self.types = {name: types[name] for name in QUERY_TYPES}


def describe(folder: Path, split: str, language: str, limit: int) -> Description:
    """Read at most `limit` documents and `limit` queries of a normalised collection."""
    return Description(sampled_documents(folder, limit), _query_texts(folder, split, limit), language)


def sampled_documents(folder: Path, limit: int) -> Iterator[str]:
    """Read title, blank, text of `min(limit, size)` documents: rows floor(i * size / limit)."""
    for batch in read_rows(folder, sample_rows(corpus_size(folder), limit)):
        yield from (f"{row['title']} {row['text']}" for row in batch.to_pylist())


def sample_rows(size: int, limit: int) -> np.ndarray:
    """Return `min(limit, size)` evenly spread rows, int64, ascending."""
    count = min(size, limit)
    return np.arange(count, dtype=np.int64) * size // max(count, 1)


def _query_texts(folder: Path, split: str, limit: int) -> list[str]:
    if split:
        texts = split_queries(folder, split)["text"].tolist()
    else:
        texts = read_queries(folder)["text"].to_pylist()
    return [texts[row] for row in sample_rows(len(texts), limit)]


def _counted(texts: Iterable[str], words: Counter[str], language: str) -> Iterator[int]:
    """Yield the length of each text, and add its words to `words`."""
    for text in texts:
        if language in CJK:
            characters = "".join(_WORD.findall(text))
            words.update(map("".join, zip(characters, characters[1:], strict=False)))
            yield len(characters)
        else:
            words.update(_WORD.findall(text.lower()))
            yield len(text.split())


def lengths(counts: Iterable[int]) -> dict[str, float | int | None]:
    """Summarise lengths by number, mean, median and 95th percentile: words between blanks, or CJK characters."""
    values = np.fromiter(counts, dtype=np.int64)
    if not len(values):
        return {"count": 0, "mean": None, "median": None, "p95": None}
    return {
        "count": len(values),
        "mean": round(float(values.mean()), 3),
        "median": float(np.median(values)),
        "p95": float(np.percentile(values, 95)),
    }


def weighted_jaccard(one: Counter[str], other: Counter[str]) -> float | None:
    """Compute the weighted Jaccard similarity of two frequency distributions, in [0, 1]; None when one is empty."""
    total_one, total_other = sum(one.values()), sum(other.values())
    if not total_one or not total_other:
        return None
    shared = sum(min(one[word] / total_one, other[word] / total_other) for word in sorted(one.keys() & other.keys()))
    return round(shared / (2.0 - shared), 6)  # both sum to 1, so sum of max = 2 - sum of min


def query_type(text: str) -> str:
    """Return one of the nine types, by the first word."""
    word = next((match.group() for match in _WORD.finditer(text.lower())), "")
    if word in FIRST_WORDS:
        return word
    return "yes/no" if word in YES_NO_WORDS else "declarative"


def summary(facts: dict[str, Any]) -> str:
    """Return one line for the log."""
    documents, queries, similarity = facts["documents"], facts["queries"], facts["similarity"]
    counts = [f"{facts['collection']}: {documents['count']} documents of {documents['mean']:.0f} words"]
    if queries["count"]:
        common = max(facts["query_types"], key=lambda name: facts["query_types"][name])
        counts.append(f"{queries['count']} queries of {queries['mean']:.0f} (most are {common})")
    shown = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in similarity.items() if value is not None]
    return ", ".join(counts) + f"; similarity with {facts['source']}: " + ", ".join(shown)
