"""Answer one query by BM25 or by embeddings, with the scores and the order that the bench's runs have."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.trec import order_rows
from zerodr.collections.access import corpus_ids, corpus_size
from zerodr.config.base import validate
from zerodr.encoders.folder.attention import Attention, scores_alone
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.errors import ArtifactError
from zerodr.lexical.folder import Hits, lower_ties, read_ids
from zerodr.lexical.light import LightIndex
from zerodr.lexical.search import SearchSettings, open_index
from zerodr.lookup.documents import Documents
from zerodr.lookup.sources import FUSION, LEXICAL, Source, load_function, query_encoders
from zerodr.retrieval.candidates import Norms, id_ranks
from zerodr.retrieval.embed import document_texts
from zerodr.retrieval.exact import search_exact
from zerodr.retrieval.feedback import AugmentSettings, Retrieved, augment
from zerodr.retrieval.fuse import FuseSettings, fuse, run_scores
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


def open_source(source: Source) -> QuerySearcher:
    """Load what a source needs to answer."""
    if source.kind == LEXICAL:
        return LexicalSearcher(source) if source.index else LightSearcher(source)
    if source.kind == FUSION:
        return FusedSearcher(source)
    return DenseSearcher(source, load_function(query_encoders()[source.encoder].queries)(source))


class LexicalSearcher:
    """BM25 over the index of a source."""

    def __init__(self, source: Source) -> None:
        folder = Path(source.index[0]).parent
        settings = validate(SearchSettings, source.params, source.name)
        self._search, self._ids = open_index(folder, settings, THREADS), read_ids(folder)
        self._lock = Lock()

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first documents that hold a word of the text."""
        if not text.strip():
            return Ranked([], [])
        with self._lock:
            (hits,) = self._search([text], depth)
        return _ordered(self._ids, hits)


def _ordered(ids: pa.Array, hits: Hits) -> Ranked:
    """Name the documents of hits, in the order of a run."""
    scores = lower_ties(hits.scores)
    documents = ids.take(pa.array(hits.documents, pa.int64()))
    order = order_rows(np.zeros(len(scores), np.int64), scores, documents)
    return Ranked(documents.take(pa.array(order)).to_pylist(), scores[order].tolist())


class LightSearcher:
    """BM25 over a collection that has no index: words are counted when it is loaded.

    Args:
        source: its params name the language.
    """

    def __init__(self, source: Source) -> None:
        folder, language = Path(source.collection).parent, source.params["language"]
        texts = (text for _, text in document_texts(folder, 0, corpus_size(folder), " "))
        self._index = LightIndex.build(texts, language=language)
        self._ids = corpus_ids(folder)

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first documents that hold a word of the text."""
        (hits,) = self._index.search_texts([text], depth, THREADS)
        return _ordered(self._ids, hits)


class FusedSearcher:
    """Two searchers whose rankings are fused as the stage `fuse_runs` does.

    Args:
        source: whose halves are searched to the depth of the runs.
    """

    def __init__(self, source: Source) -> None:
        self._settings = validate(FuseSettings, source.params, source.name)
        self._halves = [open_source(half) for half in source.halves]

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first documents by the sum of both terms."""
        answers = [half.search(text, self._settings.depth, options) for half in self._halves]
        frames = [
            pd.DataFrame({"query": "", "document": a.ids, "score": np.array(a.scores, np.float32)}) for a in answers
        ]
        weights = self._settings.weights
        terms = [run_scores(frame, self._settings, weight) for frame, weight in zip(frames, weights, strict=True)]
        fused = fuse(terms[0], terms[1], pd.Series([""]), depth)
        notice = "; ".join(answer.notice for answer in answers if answer.notice)
        return Ranked(fused["document"].tolist(), fused["score"].tolist(), sum((a.read for a in answers), []), notice)


class PlainQueries:
    """Queries as a model embeds them alone, in the forward pass of transformers: a third of the time for one text.

    Args:
        source: whose input `model` is the model's manifest.
    """

    def __init__(self, source: Source) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        folder = Path(source.inputs["model"][0]).parent
        self.encoder = load_encoder(folder, source.params.get("precision", "fp32"), packed=False, side="query")
        contract = self.encoder.contract
        wanted = source.params.get("query_tokens") or contract.tokens("query")
        self.tokens, self.prefix = min(wanted, contract.max_tokens), contract.prefix("query")
        self._lock = Lock()

    def encode(self, text: str, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """Embed the text; one that is longer than the model reads is cut, which the answer says."""
        with self._lock:
            tokens = self.encoder.tokenize([text], self.prefix, self.tokens)
            vector = self.encoder.encode_batch([tokens[0]])[0]
        cut = f"the model reads the first {self.tokens} tokens" if len(tokens[0]) >= self.tokens else ""
        return vector, {"notice": cut}


class DenseSearcher:
    """Exact search in embeddings of all shards.

    Args:
        source: its index holds the embeddings of the shards, in order.
        queries: embeds what is asked.
    """

    def __init__(self, source: Source, queries: Queries) -> None:
        self.queries = queries
        self._ids = corpus_ids(Path(source.collection).parent)
        self._ranks = id_ranks(self._ids)
        shards = [Vectors.open(Path(path)) for path in source.index]
        rows = sum(shard.rows for shard in shards)
        if rows != len(self._ids):
            raise ArtifactError(source.index[0], f"expected {len(self._ids)} vectors, found {rows}", AGAIN)
        whole = sum(shard.array.nbytes for shard in shards) <= LARGEST_LOADED
        self._shards = [Vectors(np.array(shard.array)) if whole else shard for shard in shards]
        self._norms = [Norms(shard, str) for shard in self._shards]

    def search(self, text: str, depth: int, options: dict[str, Any]) -> Ranked:
        """Find the first documents by inner product."""
        if not text.strip():
            return Ranked([], [])
        vector, fields = self.queries.encode(text, options)
        rows, scores, first = [], [], 0
        for shard, norms in zip(self._shards, self._norms, strict=True):
            ranks = self._ranks[first : first + shard.rows]
            asked = Vectors(np.ascontiguousarray(vector[None], np.float32))
            for ranking in search_exact(asked, shard, ranks, depth, threads=THREADS, norms=norms):
                rows.append(ranking.rows.astype(np.int64) + first)
                scores.append(ranking.scores)
            first += shard.rows
        row, score = np.concatenate(rows), np.concatenate(scores)
        documents = self._ids.take(pa.array(row))
        order = order_rows(np.zeros(len(row), np.int64), score, documents)[:depth]
        return Ranked(documents.take(pa.array(order)).to_pylist(), score[order].tolist(), **fields)


class FeedbackQueries:
    """Queries to which the first documents of another ranking are added.

    Args:
        source: whose halves are the bi-encoder without feedback and the method that finds documents.
    """

    def __init__(self, source: Source) -> None:
        plain, memory = source.halves
        self._settings = validate(AugmentSettings, source.params, source.name)
        learned = source.inputs.get("attention")
        self._attention = Attention.load(Path(learned[0]).parent) if learned else scores_alone(self._settings)
        self._queries = load_function(query_encoders()[plain.encoder].queries)(plain)
        self._memory, self._depth = open_source(memory), memory.params["depth"]
        self._shards = [Vectors.open(Path(path)) for path in source.index]
        folder = Path(source.collection).parent
        self._ids, self._documents = corpus_ids(folder), Documents(folder)

    def encode(self, text: str, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """Embed the text, add documents that the memory finds for it, and tell the attention of each."""
        vector, fields = self._queries.encode(text, options)
        answer: Ranked = self._memory.search(text, self._depth, options)
        names = answer.ids[: self._settings.documents]
        if not names:
            return vector, fields
        scores = np.array(answer.scores[: len(names)], np.float32)
        rows = pc.index_in(pa.array(names, self._ids.type), self._ids).to_numpy().astype(np.int64)
        (augmented,), (shares,) = augment(vector[None], self._shards, [Retrieved(rows, scores)], self._attention)
        texts = self._documents.texts(names)
        read = [
            {"id": name, "memory": self._settings.memory, "text": body[:CHARACTERS], "attention": float(share)}
            for name, (_, body), share in zip(names, texts, shares, strict=True)
        ]
        return augmented, fields | {"read": read}
