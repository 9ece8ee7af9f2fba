"""Rank by BM25 without Java: Lucene's formula and analysis over bm25s's sparse scores, searched by compiled loops.

bm25s (Lù 2024, arXiv:2407.03618) stores the score of every term in every document, so that a search only adds
columns. Here each float32 score is Lucene's to the bit: document lengths go through Lucene's one-byte code.
The score matrix has bm25s's layout; `zerodr.lexical.topk` chooses the best k, because bm25s leaves the order of equal
scores open.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zerodr.lexical.analysis import Analyzer, analyzer_of
from zerodr.lexical.folder import Hits, IndexedDocument, TermIndexSettings, read_about

FOLDER = "bm25s"


class Postings(NamedTuple):
    """Counts of terms in documents, by term.

    `ends` int64 [terms + 1], `documents` int32 and `counts` float32 [postings] (ascending within a term), `lengths`
    int32 [documents] in terms, `vocabulary` term -> row.
    """

    ends: np.ndarray
    documents: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray
    vocabulary: dict[str, int]


def fill_light(blocks: Iterator[list[IndexedDocument]], folder: Path, settings: TermIndexSettings) -> dict[str, str]:
    """Write the postings of blocks of documents to `folder/bm25s`; return version and analyzer."""
    analyze = analyzer_of(settings.language)
    postings = count_terms(analyze(document.flat()) for block in blocks for document in block)
    write_postings(folder, postings)
    return {"bm25s": version("bm25s"), "analyzer": f"{analyze.__module__}.{analyze.__name__}"}


def write_postings(folder: Path, postings: Postings) -> None:
    """Write `folder/bm25s`."""
    (folder / FOLDER).mkdir()
    for name in ARRAYS:
        np.save(folder / FOLDER / f"{name}.npy", getattr(postings, name), allow_pickle=False)
    (folder / FOLDER / "vocabulary.json").write_text(
        json.dumps(list(postings.vocabulary), ensure_ascii=False) + "\n", encoding="utf-8"
    )


def count_terms(texts: Iterable[Sequence[str]]) -> Postings:
    """Count the terms of analysed texts. Terms are numbered in code point order."""
    seen: dict[str, int] = {}
    rows, counts, sizes, lengths = [], [], [], []
    for terms in texts:
        tally = Counter(terms)
        rows.append(np.fromiter((seen.setdefault(term, len(seen)) for term in tally), np.int64, len(tally)))
        counts.append(np.fromiter(tally.values(), np.float32, len(tally)))
        sizes.append(len(tally))
        lengths.append(len(terms))
    # In code point order, a term's number does not depend on the text that it was first seen in.
    names = sorted(seen)
    number = np.empty(len(names), np.int64)
    number[[seen[name] for name in names]] = np.arange(len(names))
    row = number[np.concatenate(rows)] if rows else np.empty(0, np.int64)
    count = np.concatenate(counts) if counts else np.empty(0, np.float32)
    document = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    order = np.argsort(row, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(names)))]).astype(np.int64)
    return Postings(ends, document[order], count[order], np.array(lengths, np.int32), _numbered(names))


def join_postings(first: Postings, second: Postings, numbers: np.ndarray) -> Postings:
    """Join the postings of two sets of documents, as `count_terms` counts them together.

    Args:
        numbers: new number of each document of the first, then of the second; -1: it is left out.
    """
    both, shift = (first, second), (0, len(first.lengths))
    every = sorted(first.vocabulary.keys() | second.vocabulary.keys())
    row_of = _numbered(every)
    rows = [np.array([row_of[term] for term in one.vocabulary], np.int64) for one in both]
    row = np.concatenate([np.repeat(terms, np.diff(one.ends)) for terms, one in zip(rows, both, strict=True)])
    document = numbers[np.concatenate([one.documents + by for one, by in zip(both, shift, strict=True)])]
    count = np.concatenate([one.counts for one in both])
    order = np.lexsort((document, row))
    order = order[document[order] >= 0]
    sizes = np.bincount(row[order], minlength=len(every))
    ends = np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)
    lengths = np.zeros(int((numbers >= 0).sum()), np.int32)
    lengths[numbers[numbers >= 0]] = np.concatenate([one.lengths for one in both])[numbers >= 0]
    names = [term for term, size in zip(every, sizes.tolist(), strict=True) if size]
    return Postings(ends, document[order].astype(np.int32), count[order], lengths, _numbered(names))


def _numbered(names: list[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def coded_lengths(lengths: np.ndarray) -> np.ndarray:
    """Round lengths as Lucene stores them in one byte: exact to 39, then four significant bits above 24.

    (`SmallFloat.intToByte4` and back.)
    """
    above = np.maximum(np.asarray(lengths, np.int64) - 24, 0)
    bits = np.frexp(above.astype(np.float64))[1]
    shift = np.maximum(bits - 4, 0)
    return np.where(np.asarray(lengths) < 24, lengths, 24 + ((above >> shift) << shift)).astype(np.int64)


def term_scores(postings: Postings, k1: float, b: float) -> np.ndarray:
    """Compute BM25 of each posting, float32 [postings], with the operations and precision of Lucene's BM25Similarity.

    idf = ln(1 + (N - n + 0.5) / (n + 0.5)); score = idf - idf / (1 + tf / (k1 (1 - b + b length / mean length))), where
    N counts the documents that have a term at all.
    """
    one, filled = np.float32(1), max(int((postings.lengths > 0).sum()), 1)
    mean = np.float32(postings.lengths.sum(dtype=np.int64) / filled) or one
    share = np.float32(b) * coded_lengths(postings.lengths).astype(np.float32) / mean
    norm = np.float32(k1) * ((one - np.float32(b)) + share)
    inverse = one / norm if k1 else np.full(len(share), np.inf, np.float32)
    holders = np.diff(postings.ends)
    idf = np.log(1 + (filled - holders + 0.5) / (holders + 0.5)).astype(np.float32)
    # Lucene subtracts from the weight instead of multiplying by tf / (tf + norm): another formula rounds differently.
    weight = np.repeat(idf, holders)
    scores = weight - weight / (one + postings.counts * inverse.astype(np.float32)[postings.documents])
    return np.maximum(scores, np.finfo(np.float32).tiny)  # topk takes a sum of 0 for a document not yet reached


ARRAYS = Postings._fields[:4]


class LightIndex:
    """BM25 scores of all terms in all documents, ready to search.

    Args:
        postings: of the corpus.
        k1, b: of BM25.
        analyze: splits a text into terms.
    """

    def __init__(self, postings: Postings, k1: float = 0.9, b: float = 0.4, analyze: Analyzer | None = None) -> None:
        self.postings, self.k1, self.b = postings, k1, b
        self.analyze = analyze or analyzer_of("en")
        self.scores = term_scores(postings, k1, b)

    @classmethod
    def build(cls, texts: Iterable[str], k1: float = 0.9, b: float = 0.4, language: str = "en") -> LightIndex:
        """Index texts; their positions are the internal numbers."""
        analyze = analyzer_of(language)
        return cls(count_terms(map(analyze, texts)), k1, b, analyze)

    @classmethod
    def load(cls, folder: Path, k1: float = 0.9, b: float = 0.4) -> LightIndex:
        """Load the index in a folder that `index_bm25` wrote with backend bm25s."""
        language = read_about(folder)["language"]
        names = json.loads((folder / FOLDER / "vocabulary.json").read_text(encoding="utf-8"))
        arrays = ((name, np.load(folder / FOLDER / f"{name}.npy", allow_pickle=False)) for name in ARRAYS)
        return cls(Postings(**dict(arrays), vocabulary=_numbered(names)), k1, b, analyzer_of(language))

    def __len__(self) -> int:
        return len(self.postings.lengths)

    def search(self, texts: Sequence[str], depth: int, threads: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the best `depth` documents of each query; the interface for mining.

        Equal scores are in order of internal number, also at the last rank. A document without a query term is no
        hit.

        Returns:
            internal numbers int32 [queries, depth], scores float32 [queries, depth], and the count of hits int32
            [queries]; values beyond a count are unset.
        """
        from zerodr.lexical.topk import search_terms

        rows: list[int] = []
        boosts: list[int] = []
        sizes = [0]
        known = self.postings.vocabulary
        for text in texts:
            tally = Counter(known[term] for term in self.analyze(text) if term in known)
            rows.extend(tally)
            boosts.extend(tally.values())
            sizes.append(len(rows))
        terms = np.array(sizes, np.int64), np.array(rows, np.int64), np.array(boosts, np.float32)
        postings = self.postings.ends, self.postings.documents, self.scores
        return search_terms(*postings, *terms, len(self), depth, threads)

    def search_texts(self, texts: Sequence[str], depth: int, threads: int = 1) -> list[Hits]:
        """Search as `search` does; return one ranking a query."""
        documents, scores, counts = self.search(texts, depth, threads)
        return [Hits(documents[at, :count], scores[at, :count]) for at, count in enumerate(counts)]


def read_holders(folder: Path) -> tuple[dict[str, int], int]:
    """Read the number of documents of each term, and of all documents, from a folder of `index_bm25` (bm25s).

    Reads neither postings nor scores.
    """
    names = json.loads((folder / FOLDER / "vocabulary.json").read_text(encoding="utf-8"))
    ends = np.load(folder / FOLDER / "ends.npy", allow_pickle=False)
    documents = len(np.load(folder / FOLDER / "lengths.npy", mmap_mode="r", allow_pickle=False))
    return dict(zip(names, np.diff(ends).tolist(), strict=True)), documents
