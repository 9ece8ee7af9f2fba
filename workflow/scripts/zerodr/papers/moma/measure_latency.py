"""Stage `measure_latency`: milliseconds of a query and of a document by component (MoMA table 3).

One query at a time, but for the search of the target, which takes all queries in one batch as the paper's does. The
search of the mixture is not in it: its documents are read from the rankings.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import corpus_ids, split_queries
from zerodr.collections.memories import MemoryTexts
from zerodr.config.base import validate
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.lexical.search import SearchSettings, open_index
from zerodr.papers.moma.embed_fused import FusedQuerySettings
from zerodr.papers.moma.fused_vectors import Fuser
from zerodr.papers.moma.fusion_encoder import FusionContract, FusionEncoder
from zerodr.papers.moma.grounding import Grounding, read_grounding
from zerodr.papers.moma.state_cache import StateCache
from zerodr.retrieval.candidates import id_ranks
from zerodr.retrieval.embed import document_texts
from zerodr.retrieval.exact import search_exact
from zerodr.retrieval.vectors import Vectors

WARM = 2  # queries before those that are timed


class LatencySettings(FusedQuerySettings):
    """Params of rule measure_latency."""

    lexical: SearchSettings
    """BM25 over the same collection."""
    queries: int = Field(32, ge=1)
    """Queries that are timed, at equal distances."""
    passages: int = Field(64, ge=1)
    """Documents that are timed: the first of the collection."""
    depth: int = Field(100, ge=1)
    """Documents of a ranking."""


def measure_latency(stage: Stage) -> None:
    """Read inputs `collection`, `model`, `rankings`, `memories`, `corpus` (embeddings), `index` (BM25).

    Write output `latency`: medians in milliseconds by component, with the device.
    """
    settings = validate(LatencySettings, stage.params, stage.spec.name())
    torch.set_num_threads(stage.threads)
    asked = split_queries(stage.path("collection"), settings.split)
    asked = asked.iloc[:: max(1, len(asked) // (settings.queries + WARM))].iloc[: settings.queries + WARM]
    texts = MemoryTexts({path.parent.name: path.parent for path in stage.paths("memories")}, settings.joins)
    grounding = read_grounding(stage.path("rankings"), strings(asked["id"]), settings.documents, texts)
    model = _model(stage.path("model"), settings)
    queries = asked["text"].tolist()
    keys, texts_of = _documents(grounding)
    plain, cached = Fuser(model, None, settings.batch_tokens), Fuser(model, StateCache(settings.cache_mib))
    cached.vectors(queries, keys, texts_of)
    search = open_index(stage.path("index"), settings.lexical, stage.threads)
    numbers = range(len(queries))
    times = {
        "query_without_documents": _each(numbers, lambda n: plain.vectors([queries[n]], [[]], texts_of)),
        "query": _each(numbers, lambda n: plain.vectors([queries[n]], [keys[n]], texts_of)),
        "query_with_cached_documents": _each(numbers, lambda n: cached.vectors([queries[n]], [keys[n]], texts_of)),
        "bm25": _each(numbers, lambda n: search([queries[n]], settings.depth)),
        "search": _search(stage, cached.vectors(queries, keys, texts_of), settings) / len(queries),
        "document": _passages(stage, settings),
    }
    facts = {"device": next(model.parameters()).device.type, "threads": stage.threads, "queries": len(queries) - WARM}
    write_json(stage.output("latency"), {"milliseconds": times} | facts)
    for name, value in times.items():
        stage.metric(f"{name}_milliseconds", value)


def _model(folder: Path, settings: LatencySettings) -> FusionEncoder:
    model = FusionEncoder.load(folder, settings.precision)
    model.fusion = FusionContract(documents=settings.documents, document_tokens=settings.document_limit)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    return model


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


def _search(stage: Stage, vectors: np.ndarray, settings: LatencySettings) -> float:
    """Milliseconds of an exact search of the whole collection for all queries together."""
    ids, start, total = corpus_ids(stage.path("collection")), 0, 0.0
    for path in stage.paths("corpus"):
        corpus = Vectors.open(path)
        ranks = id_ranks(ids[start : start + corpus.rows])
        start += corpus.rows
        search = partial(search_exact, Vectors(vectors), corpus, ranks, settings.depth, None, stage.threads)
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
