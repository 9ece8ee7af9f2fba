"""Stage that embeds queries with documents of memories, and `measure_latency`, which times a query's components.

The main model's vectors of queries with these documents search the target (`embed_fused_queries`). `measure_latency`
(MoMA table 3) times one query at a time, but for the search of the target, which takes all queries in one batch as the
paper's does. The search of the mixture is not in it: its documents are read from the rankings.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from pydantic import Field

from zerodr.artifacts.progress import Progress, log_waiting
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import corpus_ids, split_queries
from zerodr.config.base import validate
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.inference.token_store import TOKENS
from zerodr.errors import NonFiniteEmbedding
from zerodr.lexical.search import SearchSettings, open_index
from zerodr.papers.moma.augmented_encoder import AugmentedEncoder
from zerodr.papers.moma.folders import augmenter_of
from zerodr.papers.moma.fused_vectors import QueryVectors, StateCache
from zerodr.papers.moma.grounding import Grounding, ground
from zerodr.papers.moma.joined_encoder import load_fusing, query_vectors
from zerodr.retrieval.batching import Ahead
from zerodr.retrieval.candidates import id_ranks
from zerodr.retrieval.embed import QuerySettings, document_texts
from zerodr.retrieval.exact import search_exact
from zerodr.retrieval.store import EmbeddingStore
from zerodr.retrieval.vectors import Vectors
from zerodr.training.data.tokens import SharedTokens

WINDOW = 256  # queries whose documents are gathered together
CHECKPOINT_QUERIES = 1 << 17  # queries after which the cache is emptied: a resumed stage gives the same bits
WARM = 2  # queries before those that are timed


class FusedQuerySettings(QuerySettings):
    """Params of rule embed_fused_queries."""

    joins: dict[str, str | None]
    """Text that joins title and text, by memory. None: text alone."""
    documents: int = Field(ge=1)
    """K: documents of a query."""
    document_limit: int = Field(ge=2)
    """Longest of them."""
    exclude_positives: bool = False
    """A query does not get documents that are judged relevant to it (training queries, where training does so)."""
    cache_mib: int = Field(2048, ge=0)
    """Memory for encoder states of documents; those that were used longest ago go first."""


def embed_fused_queries(stage: Stage) -> None:
    """Inputs `collection`, `model`, `rankings` of the mixture, `memories`; output `embeddings`, as embed_queries.

    Raises:
        NonFiniteEmbedding: names the first query whose vector is not finite.
        ArtifactError: a query has no ranking, or a document is in no memory.
    """
    settings = validate(FusedQuerySettings, stage.params, stage.spec.name())
    asked = split_queries(stage.path("collection"), settings.split)
    judged = (stage.path("collection"), settings.split, settings.collection) if settings.exclude_positives else None
    grounding = ground(stage, strings(asked["id"]), settings.documents, settings.joins, judged)
    model = load_fusing(stage.path("model"), settings.precision, settings.documents, settings.document_limit)
    limit = min(settings.query_tokens or model.contract.tokens("query"), model.contract.max_tokens)
    model.contract = model.contract.model_copy(update={"query_tokens": limit})
    torch.set_num_threads(stage.threads)
    key = {
        "part": CHECKPOINT_QUERIES,
        "batch_tokens": settings.batch_tokens,
        "cache_mib": settings.cache_mib,
        "device": next(model.parameters()).device.type,
        "torch": torch.__version__,
    }
    store = EmbeddingStore(stage.state, len(asked), model.contract.dimension, key)
    resumed, started, shared = store.finished, time.monotonic(), SharedTokens(TOKENS)
    progress = Progress(f"embed fused {settings.collection}/{settings.split}", len(asked), "queries", resumed)
    ahead = Ahead(_windows(model, shared, asked["text"], grounding, resumed))
    windows = iter(ahead)
    for first in range(resumed, len(asked), CHECKPOINT_QUERIES):
        cache = StateCache(settings.cache_mib)
        chunk = asked.iloc[first : first + CHECKPOINT_QUERIES]
        with store.window(len(chunk)) as vectors:
            fuser = query_vectors(model, cache, settings.batch_tokens)
            for window in islice(windows, -(-len(chunk) // WINDOW)):
                _fill(vectors, fuser, window, first)
                progress.add(len(window.queries))
            bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise NonFiniteEmbedding(
                f"query {chunk['id'].iloc[int(bad[0])]}", "the model gave NaN or infinity", "use precision: fp32"
            )
        for name, count in (("states_found", cache.hits), ("states_made", cache.misses)):
            store.totals[name] = store.totals.get(name, 0) + count
        store.save(first + len(chunk), 0)
    progress.finish()
    shared.close()
    share = ahead.waited / max(time.monotonic() - started, 1e-9)
    log_waiting(f"embed fused {settings.collection}/{settings.split}", share)
    store.publish(stage.output("embeddings"))
    facts = {"documents": settings.documents, "resumed_at": resumed, "waited_for_data": round(share, 4)}
    stage.note(query_tokens=limit, **facts, **store.totals)
    stage.metric("queries_per_second", (len(asked) - resumed) / max(time.monotonic() - started, 1e-9))


@dataclass(frozen=True)
class Window:
    """Consecutive queries from row `first` on: their token ids, keys of their documents, and tokens by key."""

    first: int
    queries: Sequence[np.ndarray]
    keys: list[list[str]]
    documents: dict[str, np.ndarray]


def _windows(
    model: AugmentedEncoder, shared: SharedTokens, texts: pd.Series, grounding: Grounding, start: int
) -> Iterator[Window]:
    """Tokenise windows of queries with their documents; no window reaches over a checkpoint."""
    for saved in range(start, len(texts), CHECKPOINT_QUERIES):
        end = min(saved + CHECKPOINT_QUERIES, len(texts))
        for first in range(saved, end, WINDOW):
            rows = np.arange(first, min(first + WINDOW, end))
            queries = shared.of(model.tokenizer, model.call("query"), texts.iloc[rows].tolist())
            lists = [grounding.of(int(row)) for row in rows]
            distinct = np.unique(np.concatenate([*lists, np.zeros(0, np.int32)]))
            taken = pa.array(distinct)
            tokens = shared.of(model.tokenizer, model.augmentation_call(), grounding.texts.take(taken).to_pylist())
            names = dict(zip(distinct.tolist(), grounding.documents.take(taken).to_pylist(), strict=True))
            keys = [[names[number] for number in numbers.tolist()] for numbers in lists]
            yield Window(first, queries, keys, dict(zip(names.values(), tokens, strict=True)))


def _fill(vectors: np.ndarray, fuser: QueryVectors, window: Window, start: int) -> None:
    """Vectors of a window's queries, in rows from `start` of the stage on."""

    def tokens_of(wanted: list[str]) -> list[np.ndarray]:
        return [window.documents[key] for key in wanted]

    first = window.first - start
    vectors[first : first + len(window.queries)] = fuser.vectors_of_tokens(window.queries, window.keys, tokens_of)


class LatencySettings(FusedQuerySettings):
    """Params of rule measure_latency."""

    shards: dict[str, int]
    """Memories in their order, with the number of their files of vectors."""
    separate: bool = False
    """The model has an augmenter of its own; else it is its own."""
    lexical: SearchSettings
    """BM25 over the same collection."""
    queries: int = Field(32, ge=1)
    """Queries that are timed, at equal distances."""
    passages: int = Field(64, ge=1)
    """Documents that are timed: the first of the collection."""
    depth: int = Field(100, ge=1)
    """Documents of a ranking."""


def measure_latency(stage: Stage) -> None:
    """Read inputs `collection`, `model`, `rankings`, `memories`, `corpus` and `memory_vectors`, `index` (BM25).

    Write output `latency`: medians in milliseconds by component, with the device.
    """
    settings = validate(LatencySettings, stage.params, stage.spec.name())
    torch.set_num_threads(stage.threads)
    asked = split_queries(stage.path("collection"), settings.split)
    asked = asked.iloc[:: max(1, len(asked) // (settings.queries + WARM))].iloc[: settings.queries + WARM]
    grounding = ground(stage, strings(asked["id"]), settings.documents, settings.joins)
    model = load_fusing(stage.path("model"), settings.precision, settings.documents, settings.document_limit)
    queries = asked["text"].tolist()
    keys, texts_of = _documents(grounding)
    plain = query_vectors(model, None, settings.batch_tokens)
    cached = query_vectors(model, StateCache(settings.cache_mib), settings.batch_tokens)
    cached.vectors(queries, keys, texts_of)
    search = open_index(stage.path("index"), settings.lexical, stage.threads)
    numbers = range(len(queries))
    augmenter = load_encoder(augmenter_of(stage.path("model"), settings.separate), settings.precision, side="query")
    asking = [
        augmenter.tokenize([q], augmenter.contract.prefix("query"), augmenter.contract.tokens("query")) for q in queries
    ]
    asked_vectors = np.concatenate([augmenter.encode_batch([tokens[0]]) for tokens in asking])
    target, memories = stage.path("collection"), stage.folders("memories")
    of_file = [memories[name] for name, count in settings.shards.items() for _ in range(count)]
    folder_of = dict(zip(stage.paths("memory_vectors"), of_file, strict=True))
    times = {
        "augmenter_query": _each(numbers, lambda n: augmenter.encode_batch([asking[n][0]])),
        "memory_search": _search(folder_of, asked_vectors, settings, stage.threads) / len(queries),
        "query_without_documents": _each(numbers, lambda n: plain.vectors([queries[n]], [[]], texts_of)),
        "query": _each(numbers, lambda n: plain.vectors([queries[n]], [keys[n]], texts_of)),
        "query_with_cached_documents": _each(numbers, lambda n: cached.vectors([queries[n]], [keys[n]], texts_of)),
        "bm25": _each(numbers, lambda n: search([queries[n]], settings.depth)),
        "search": _search(
            dict.fromkeys(stage.paths("corpus"), target),
            cached.vectors(queries, keys, texts_of),
            settings,
            stage.threads,
        )
        / len(queries),
        "document": _passages(stage, settings),
    }
    facts = {"device": next(model.parameters()).device.type, "threads": stage.threads, "queries": len(queries) - WARM}
    write_json(stage.output("latency"), {"milliseconds": times} | facts)
    stage.numbers({f"{name}_milliseconds": value for name, value in times.items()})


def _documents(grounding: Grounding) -> tuple[list[list[str]], Callable[[list[str]], list[str]]]:
    """Keys of each query's documents, and a function that gives their texts."""
    contents = dict(zip(grounding.documents.to_pylist(), grounding.texts.to_pylist(), strict=True))
    keys = [grounding.ids(row) for row in range(len(grounding))]
    return keys, lambda wanted: [contents[key] for key in wanted]


def _each(numbers: range, work: Callable[[int], Any]) -> float:
    """Median of the milliseconds of each number, but for the first WARM."""
    taken = [_milliseconds(lambda n=n: work(n)) for n in numbers]  # type: ignore[misc]
    return statistics.median(taken[WARM:] or taken)


def _milliseconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - started)


def _search(files: dict[Path, Path], vectors: np.ndarray, settings: LatencySettings, threads: int) -> float:
    """Milliseconds of an exact search of embeddings for all queries together; `files`: with their collections."""
    total, starts = 0.0, dict.fromkeys(files.values(), 0)
    for path, collection in files.items():
        corpus, start = Vectors.open(path), starts[collection]
        ranks = id_ranks(corpus_ids(collection)[start : start + corpus.rows])
        starts[collection] += corpus.rows
        search = partial(search_exact, Vectors(vectors), corpus, ranks, settings.depth, None, threads)
        list(search())
        total += _milliseconds(lambda run=search: list(run()))  # type: ignore[misc]
    return total


def _passages(stage: Stage, settings: LatencySettings) -> float:
    """Milliseconds of a document, several in a batch."""
    encoder = load_encoder(stage.path("model"), settings.precision, side="document")
    texts = [text for _, text in document_texts(stage.path("collection"), 0, settings.passages, settings.title_join)]
    tokens = encoder.tokenize(texts, encoder.contract.prefix("document"), encoder.contract.tokens("document"))
    rows = [tokens[row] for row in range(len(tokens))]
    encoder.encode_batch(rows)
    return _milliseconds(lambda: encoder.encode_batch(rows)) / len(rows)
