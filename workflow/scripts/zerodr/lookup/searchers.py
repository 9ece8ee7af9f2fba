"""Answer one query by BM25 or by embeddings, with the scores and the order that the bench's runs have."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.record import BlameInputs, record_path
from zerodr.artifacts.trec import order_rows
from zerodr.collections.access import corpus_ids, corpus_size
from zerodr.config.base import validate
from zerodr.encoders.folder.attention import Attention, scores_alone
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.errors import ArtifactError
from zerodr.lexical.folder import Hits, lower_ties, read_ids
from zerodr.lexical.light import LightIndex
from zerodr.lexical.search import Search, SearchSettings, open_index
from zerodr.lookup.documents import Documents, IdRows
from zerodr.lookup.sources import (
    FEEDBACK,
    FUSION,
    LEXICAL,
    Source,
    load_function,
    query_encoders,
    refuse_other_inputs,
)
from zerodr.retrieval.embed import document_texts
from zerodr.retrieval.feedback import AugmentSettings, Retrieved, augment
from zerodr.retrieval.fuse import FuseSettings, padded_deviation
from zerodr.retrieval.single import SingleSearch
from zerodr.retrieval.vectors import Vectors

THREADS = 2
LARGEST_LOADED = 8 << 30  # bytes of embeddings that are copied to memory; larger ones stay in their file
CHARACTERS = 300  # of a document that the page shows


@dataclass(frozen=True)
class Ranked:
    """The first documents for a query.

    Attributes:
        ids: of the documents, best first.
        scores: of these.
        read: documents that a memory added to the query, as rows of the page: id, text, attention, memory.
        notice: a sentence about the query, such as that it was cut.
    """

    ids: list[str]
    scores: list[float]
    read: list[dict[str, Any]] = field(default_factory=list)
    notice: str = ""


class QuerySearcher(Protocol):
    """Finds documents for a text."""

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first `depth` documents; `options` are those of the method, as the page sends them."""


class Queries(Protocol):
    """Embeds queries."""

    def encode(self, text: str, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the vector [dimension] float32, and fields of the answer."""


class Held(NamedTuple):
    """What is searched and is no file: vectors by dense method, indexes by lexical method."""

    vectors: dict[str, CorpusVectors]
    words: dict[str, LexicalSearcher]


class Opened:
    """Searchers of one or more sources, which share models, vectors, and the last ranking of the same query.

    Args:
        held: what is searched in place of the sources' files; None: these.
        explains: answers hold the documents that were read with the query.
        models: encoders of queries that are loaded already.
    """

    def __init__(
        self, held: Held | None = None, explains: bool = True, models: dict[str, Queries] | None = None
    ) -> None:
        self.held, self.explains, self.models = held, explains, {} if models is None else models
        self._searchers: dict[str, QuerySearcher] = {}
        self._corpora: dict[str, CorpusVectors] = {}

    def searcher(self, source: Source) -> QuerySearcher:
        """Return what answers for a source; load what it needs at the first call."""
        return _once(self._searchers, str(source), lambda: Remembering(self._open(source)))

    def queries(self, source: Source) -> Queries:
        """Return what embeds queries for a dense source.

        Raises:
            ArtifactError: files of its model are damaged.
            ModelError: it can't be loaded.
        """
        if source.encoder == FEEDBACK:
            return FeedbackQueries(source, self)
        address = query_encoders()[source.encoder].queries
        facts = source.collection, source.encoder, source.inputs, source.params
        recorded = [path for path in source.inputs["model"] if record_path(path).exists()]
        with BlameInputs(recorded):
            return _once(self.models, str(facts), lambda: load_function(address)(source))

    def corpus(self, source: Source) -> CorpusVectors:
        """Return the vectors that a dense source searches."""
        if self.held:
            return self.held.vectors[source.name if source.encoder != FEEDBACK else source.halves[0].name]
        return _once(self._corpora, f"{source.collection} {source.index}", lambda: CorpusVectors.open(source))

    def _open(self, source: Source) -> QuerySearcher:
        if source.kind == LEXICAL and self.held:
            return self.held.words[source.name]
        if source.kind == LEXICAL:
            return LexicalSearcher.open(source) if source.index else LightSearcher(source)
        if source.kind == FUSION:
            return FusedSearcher(source.name, source.params, [self.searcher(half) for half in source.halves])
        return DenseSearcher(self.corpus(source), self.queries(source))


Made = TypeVar("Made")


def _once(made: dict[str, Made], key: str, make: Callable[[], Made]) -> Made:
    if key not in made:
        made[key] = make()
    return made[key]


def open_source(source: Source) -> QuerySearcher:
    """Load what a source needs to answer."""
    return Opened().searcher(source)


class Remembering:
    """A searcher that keeps its last ranking: a fusion's halves may ask one twice for the same query."""

    def __init__(self, searcher: QuerySearcher) -> None:
        self._searcher = searcher
        self._last: tuple[tuple[str, int, str], Ranked] | None = None

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first documents, or return them again."""
        key, last = (text, depth, repr(options)), self._last
        if last is None or last[0] != key:
            self._last = last = key, self._searcher.search(text, depth, options)  # in one step, for other threads
        return last[1]


class LexicalSearcher:
    """BM25 over an index.

    Args:
        search: finds hits of texts.
        ids: of the documents by internal number.
        settings: of the stage that ranks. Equal scores are lowered as in its runs, and at its depth, where documents of
            equal scores may be cut.
        lock: held while it searches; None: threads may search together.
    """

    def __init__(self, search: Search, ids: pa.Array, settings: SearchSettings, lock: Lock | None = None) -> None:
        self._search, self._ids, self._depth = search, ids, settings.depth
        self._lowers = settings.ties == "as_anserini"
        self._lock = lock or nullcontext()

    @classmethod
    def open(cls, source: Source) -> LexicalSearcher:
        """Open the index of a source.

        Raises:
            ArtifactError: it is of other documents than its collection has now.
        """
        refuse_other_inputs(source)
        folder = Path(source.index[0]).parent
        settings = validate(SearchSettings, source.params, source.name)
        search = open_index(folder, settings, THREADS)
        return cls(search, read_ids(folder), settings, None if settings.backend == "bm25s" else Lock())

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first documents that hold a word of the text."""
        if not text.strip():
            return Ranked([], [])
        with self._lock:
            (hits,) = self._search([text], max(depth, self._depth))
        return _ordered(self._ids, hits, depth, self._lowers)


def _ordered(ids: pa.Array, hits: Hits, depth: int, lowers: bool = True) -> Ranked:
    """Name the first documents of hits, in the order of a run."""
    scores = lower_ties(hits.scores) if lowers else hits.scores
    documents = ids.take(pa.array(hits.documents, pa.int64()))
    order = order_rows(np.zeros(len(scores), np.int64), scores, documents)[:depth]
    return Ranked(documents.take(pa.array(order)).to_pylist(), scores[order].tolist())


class LightSearcher:
    """BM25 over a collection that has no index: words are counted when it is loaded.

    Args:
        source: its params name the language.
    """

    def __init__(self, source: Source) -> None:
        folder, language = Path(source.collection).parent, source.params["language"]
        ids, texts = corpus_ids(folder), [text for _, text in document_texts(folder, 0, corpus_size(folder), " ")]
        order = pc.array_sort_indices(ids)  # of equal scores the lower id comes first, as in an index
        self._index = LightIndex.build((texts[row] for row in order.to_pylist()), language=language)
        self._ids = ids.take(order)

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first documents that hold a word of the text."""
        (hits,) = self._index.search_texts([text], depth, THREADS)
        return _ordered(self._ids, hits, depth)


class FusedSearcher:
    """Two searchers whose rankings are fused as the stage `fuse_runs` does.

    Args:
        name: of the method.
        params: of the stage.
        halves: they are searched to the depth of the runs.
    """

    def __init__(self, name: str, params: dict[str, Any], halves: Sequence[QuerySearcher]) -> None:
        self._settings, self._halves = validate(FuseSettings, params, name), halves

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first documents by the sum of both terms."""
        deepest = min(self._settings.depth, self._settings.entries or self._settings.depth)  # what is below has no term
        answers = [half.search(text, deepest, options) for half in self._halves]
        total: dict[str, float] = {}
        for answer, other, weight, zero in zip(
            answers, reversed(answers), self._settings.weights, self._settings.unfound_is_zero, strict=True
        ):
            terms = self._terms(answer.scores, weight, len(other.scores[: self._settings.entries]) if zero else 0)
            for name, term in zip(answer.ids, terms.tolist(), strict=False):
                total[name] = total.get(name, 0.0) + term
        # Of equal scores the greater id comes first; Python compares texts as their UTF-8 bytes compare.
        ranked = sorted(((float(np.float32(term)), name) for name, term in total.items()), reverse=True)[:depth]
        notice = "; ".join(dict.fromkeys(answer.notice for answer in answers if answer.notice))
        read = [row for answer in answers for row in answer.read]
        return Ranked([name for _, name in ranked], [score for score, _ in ranked], read, notice)

    def _terms(self, scores: list[float], weight: float, others: int) -> np.ndarray:
        """Compute one ranking's terms as `run_scores` does, for one query without a frame.

        Args:
            scores: of the ranking, highest first.
            weight: of the ranking.
            others: entries of the other ranking, where a document that this one lacks scores 0; else 0.
        """
        settings = self._settings
        score = np.array(scores[: settings.entries], np.float32).astype(np.float64)
        if settings.fusion == "reciprocal_rank":
            return weight / (settings.rank_constant + np.arange(len(score)) + 1)
        if settings.fusion == "standard_score" and others > len(score) and score[:1].any():
            return weight * score / padded_deviation(len(score), score.mean(), score.std(), others - len(score))
        if not len(score) or score[0] == score[-1]:
            return np.full(len(score), weight * (settings.fusion != "standard_score"))
        span = score.std() if settings.fusion == "standard_score" else score[0] - score[-1]
        return weight * (score - score[-1]) / span


class PlainQueries:
    """Queries as a model embeds them alone.

    Args:
        source: whose input `model` is the model's manifest.
    """

    def __init__(self, source: Source) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        folder = Path(source.inputs["model"][0]).parent
        self.encoder = load_encoder(folder, source.params.get("precision", "fp32"), side="query")
        contract = self.encoder.contract
        wanted = source.params.get("query_tokens") or contract.tokens("query")
        self.tokens, self.prefix = min(wanted, contract.max_tokens), contract.prefix("query")
        self._lock = Lock()
        self._last: tuple[str, tuple[np.ndarray, dict[str, Any]]] | None = None

    def encode(self, text: str, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """Embed the text; one that is longer than the model reads is cut, which the answer says."""
        last = self._last
        if last is None or last[0] != text:
            self._last = last = text, self._encode(text)  # feedback asks twice: for its memory, and for itself
        return last[1]

    def _encode(self, text: str) -> tuple[np.ndarray, dict[str, Any]]:
        with self._lock:
            tokens = self.encoder.tokenize([text], self.prefix, self.tokens)
            vector = self.encoder.encode_batch([tokens[0]])[0]
            is_cut = len(tokens[0]) >= self.tokens and self.encoder.cuts(text, self.prefix, self.tokens)
        cut = f"the model reads the first {self.tokens} tokens" if is_cut else ""
        return vector, {"notice": cut}


class CorpusVectors:
    """Vectors of all documents, ready to search.

    Args:
        ids: of the documents.
        shards: their vectors, in order.
    """

    def __init__(self, ids: pa.Array, shards: Sequence[Vectors]) -> None:
        self.ids, self.shards, self.rows = ids, list(shards), IdRows(ids)
        in_memory = not any(shard.mapped for shard in self.shards)
        self.search = SingleSearch(self.shards, ids, THREADS, coded=in_memory)

    @classmethod
    def open(cls, source: Source) -> CorpusVectors:
        """Open the vectors of a source, in memory where they are not too large.

        Raises:
            ArtifactError: they are not of all documents, or of other weights or documents than are there now.
        """
        refuse_other_inputs(source)
        ids = corpus_ids(Path(source.collection).parent)
        shards = [Vectors.open(Path(path)) for path in source.index]
        rows = sum(shard.rows for shard in shards)
        if rows != len(ids):
            raise ArtifactError(source.index[0], f"expected {len(ids)} vectors, found {rows}", AGAIN)
        whole = sum(shard.array.nbytes for shard in shards) <= LARGEST_LOADED
        return cls(ids, [Vectors(np.array(shard.array)) for shard in shards] if whole else shards)


class DenseSearcher:
    """Exact search in the vectors of all documents.

    Args:
        corpus: the vectors.
        queries: embeds what is asked.
    """

    def __init__(self, corpus: CorpusVectors, queries: Queries) -> None:
        self._corpus, self._queries = corpus, queries

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first documents by inner product."""
        if not text.strip():
            return Ranked([], [])
        vector, fields = self._queries.encode(text, options)
        rows, scores = self._corpus.search.best(vector, depth)
        return Ranked(self._corpus.ids.take(pa.array(rows)).to_pylist(), scores.tolist(), **fields)


class FeedbackQueries:
    """Queries to which the first documents of another ranking are added.

    Args:
        source: whose halves are the bi-encoder without feedback and the method that finds documents.
        opened: shares what these need.
    """

    def __init__(self, source: Source, opened: Opened) -> None:
        plain, memory = source.halves
        self._settings = validate(AugmentSettings, source.params, source.name)
        learned = source.inputs.get("attention")
        self._attention = Attention.load(Path(learned[0]).parent) if learned else scores_alone(self._settings)
        self._queries, self._memory = opened.queries(plain), opened.searcher(memory)
        self._corpus = opened.corpus(source)
        self._documents = Documents(Path(source.collection).parent) if opened.explains else None

    def encode(self, text: str, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """Embed the text, add documents that the memory finds for it, and tell the attention of each."""
        vector, fields = self._queries.encode(text, options)
        answer: Ranked = self._memory.search(text, self._settings.documents, options)
        names = answer.ids
        if not names:
            return vector, fields
        rows = np.array([self._corpus.rows.find(name) for name in names], np.int64)
        found = [Retrieved(rows, np.array(answer.scores, np.float32))]
        (augmented,), (shares,) = augment(vector[None], self._corpus.shards, found, self._attention)
        if self._documents is None:
            return augmented, fields
        texts = self._documents.texts(names)
        read = [
            {"id": name, "memory": self._settings.memory, "text": body[:CHARACTERS], "attention": float(share)}
            for name, (_, body), share in zip(names, texts, shares, strict=True)
        ]
        return augmented, fields | {"read": read}
