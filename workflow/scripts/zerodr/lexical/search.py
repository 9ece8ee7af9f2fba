"""Run stage `search_bm25`: rank the documents of a collection for the queries of one split.

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

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import total_order, write_run
from zerodr.collections.access import split_queries
from zerodr.collections.samples import SplitSettings
from zerodr.config.base import validate
from zerodr.config.methods import LexicalSettings
from zerodr.errors import ArtifactError
from zerodr.lexical.folder import LUCENE, Hits, lower_ties, read_about, read_ids, report_hits

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
    if settings.backend == "bm25s":
        from zerodr.lexical.light import LightIndex

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
