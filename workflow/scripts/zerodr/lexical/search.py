"""Run stages `search_bm25` and `rank_bm25`: rank documents for the queries of a split, for evaluation and mining.

The settings of Anserini's BEIR regressions: a query is a bag of its terms, each as often as it occurs; `flat` searches
one field (title, space, text); `multifield` adds the BM25 scores of the fields `contents` (the text) and `title`,
weights 1.0 and 1.0, each with its document frequencies and mean length; k1 0.9, b 0.4; depth 1000. ArguAna and
Quora drop the document with the query's id (Anserini: `-removeQuery`); with it, ArguAna's nDCG@10 would be .2999
instead of .3970.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import Field

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings, total_order, write_run
from zerodr.collections.access import RankingSettings, SplitSettings, corpus_size, ranked_queries, split_queries
from zerodr.config.base import validate
from zerodr.config.methods import LexicalSettings
from zerodr.errors import ArtifactError
from zerodr.lexical.folder import LUCENE, Hits, lower_ties, read_about, read_ids, report_hits
from zerodr.lexical.light import LightIndex

TEXTS_AT_ONCE = 1024
BACKEND = "bm25s"


class RankSettings(RankingSettings):
    """Settings of `rank_bm25`."""

    k1: float = Field(0.9, ge=0)
    """Term frequency saturation."""
    b: float = Field(0.4, ge=0, le=1)
    """Length normalisation."""


def rank_bm25(stage: Stage) -> None:
    """Read inputs `index` (backend bm25s), `collection` and optional `sample`, write output `candidates`.

    Raises:
        ArtifactError: the index is of another backend or of a corpus of another size; the sample is of another split.
    """
    settings = validate(RankSettings, stage.params, stage.spec.name())
    folder, collection = stage.path("index"), stage.path("collection")
    about, step = read_about(folder), "run the target index_bm25 of this collection again"
    if about.get("backend") != BACKEND:
        raise ArtifactError(folder, f"is an index of backend {about.get('backend')}, expected {BACKEND}", step)
    indexed, expected = about["documents"] + about["blank_documents"], corpus_size(collection)
    if indexed != expected:
        raise ArtifactError(folder, f"is of a corpus of {indexed} documents, {collection.name} has {expected}", step)
    queries = ranked_queries(stage, split_queries(collection, settings.split))
    index = LightIndex.load(folder, settings.k1, settings.b)
    without = rank_queries(index, read_ids(folder), queries, settings, stage.output("candidates"), stage.threads)
    report_hits(stage, about, len(queries), without)


def rank_queries(
    index: LightIndex, ids: pa.Array, queries: pd.DataFrame, settings: RankSettings, path: Path, threads: int
) -> int:
    """Write the rankings of `queries` (columns `id`, `text`) in their order; return the number without hits.

    Scores are BM25's, unchanged. Equal scores are in order of document id, also at the last rank: the order in which
    `search_bm25` fills a run before it writes ties for trec_eval (`lower_ties`), which mining does not need.
    """
    progress = Progress(f"rank {settings.collection}/{settings.split}", len(queries), "queries")
    names, without = strings(queries["id"]), 0
    with RankingsWriter(path, settings.depth) as writer:
        for first in range(0, len(queries), TEXTS_AT_ONCE):
            texts = queries["text"].iloc[first : first + TEXTS_AT_ONCE].tolist()
            documents, scores, counts = index.search(texts, settings.depth, threads)
            hits = np.arange(documents.shape[1]) < counts[:, None]
            ranked = ids.take(pa.array(documents[hits]))
            writer.write(Rankings(names[first : first + TEXTS_AT_ONCE], counts.astype(np.int64), ranked, scores[hits]))
            without += int((counts == 0).sum())
            progress.add(len(texts))
    progress.finish()
    return without


BATCH = 256
Search = Callable[[Sequence[str], int], list[Hits]]


class SearchSettings(LexicalSettings, SplitSettings):
    """Settings that decide a ranking, in addition to the index."""

    language: str
    """Language of the texts; decides the analyzer."""
    ties: Literal["as_anserini", "as_trec_eval"] = "as_anserini"
    """Order of equal scores: `as_anserini`, lower ids first, as in published numbers; `as_trec_eval`, higher ids first,
    as all other methods here."""


def search_bm25(stage: Stage) -> None:
    """Read inputs `index` and `collection`, write output `run`."""
    settings = validate(SearchSettings, stage.params, stage.spec.rule)
    index, about = stage.path("index"), read_about(stage.path("index"))
    queries = split_queries(stage.path("collection"), settings.split)
    run = rank(open_index(index, settings, stage.threads), read_ids(index), queries, settings)
    write_run(stage.output("run"), run, stage.spec.wildcards.get("model", f"bm25-{settings.fields}"))
    report_hits(stage, about, len(queries), len(queries) - run["query"].nunique())


def open_index(folder: Path, settings: SearchSettings, threads: int) -> Search:
    """Return a function `(texts, depth) -> hits` over an index of `index_bm25`.

    Raises:
        ArtifactError: the index is of another backend, language or kind of fields.
    """
    about = read_about(folder)
    expected = {key: getattr(settings, key) for key in ("backend", "fields", "language")}
    built = {key: about.get(key) for key in expected}
    if built != expected:
        raise ArtifactError(folder, f"is an index of {built}, expected {expected}", "run the target index_bm25 again")
    if settings.backend == BACKEND:
        light = LightIndex.load(folder, settings.k1, settings.b)
        return lambda texts, depth: light.search_texts(texts, depth, threads)
    from zerodr.lexical.lucene import CONTENTS, TITLE, LuceneSearcher

    fields = (CONTENTS,) if settings.fields == "flat" else (CONTENTS, TITLE)
    searcher = LuceneSearcher(folder / LUCENE, settings.language, fields, settings.k1, settings.b)
    if settings.expansion == "rm3":
        feedback = settings.feedback_documents, settings.feedback_terms, settings.original_query_weight
        searcher.expand(*feedback, ascii_terms=settings.language == "en")
    return lambda texts, depth: searcher.search(texts, depth, threads)


def rank(search: Search, ids: pa.Array, queries: pd.DataFrame, settings: SearchSettings) -> pd.DataFrame:
    """Rank all queries; return a run in total order. Queries without hits have no rows.

    Of equal scores, lower ids fill the last rank. They also come first where `ties` is `as_anserini`; `lower_ties`
    writes that into the scores.

    Args:
        search: finds hits of texts.
        ids: document ids by internal number.
        queries: columns `id`, `text`.
        settings: `depth`, `exclude_self` and `ties`.
    """
    names, depth = ids.to_numpy(zero_copy_only=False), settings.depth + settings.exclude_self
    progress = Progress(f"search {settings.collection}/{settings.split}", len(queries), "queries")
    rankings = []
    for first in range(0, len(queries), BATCH):
        block = queries.iloc[first : first + BATCH]
        for query, hits in zip(block["id"], search(list(block["text"]), depth), strict=True):
            documents = names[hits.documents]
            scores = lower_ties(hits.scores) if settings.ties == "as_anserini" else hits.scores
            if settings.exclude_self:
                other = documents != query
                documents, scores = documents[other][: settings.depth], scores[other][: settings.depth]
            rankings.append((query, documents, scores))
        progress.add(len(block))
    progress.finish()
    return total_order(_frame(rankings))


def _frame(rankings: list[tuple[str, np.ndarray, np.ndarray]]) -> pd.DataFrame:
    queries, documents, scores = zip(*rankings, strict=True)
    query = np.repeat(np.array(queries, object), [len(ranked) for ranked in documents])
    score = np.concatenate(scores).astype(np.float32)
    return pd.DataFrame({"query": query, "document": np.concatenate(documents), "score": score})
