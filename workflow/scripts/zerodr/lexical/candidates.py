"""Stage `rank_bm25`: candidates of all queries of a split by BM25 without Java, for mining."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import Field

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import corpus_size, split_queries
from zerodr.config.base import Settings, validate
from zerodr.errors import ArtifactError
from zerodr.lexical.about import read_about
from zerodr.lexical.documents import read_ids
from zerodr.lexical.light import LightIndex

log = logging.getLogger("zerodr")
BATCH = 1024
BACKEND = "bm25s"


class RankSettings(Settings):
    """Settings of `rank_bm25`."""

    collection: str
    """Name of the collection."""
    split: str
    """Queries with a judgement in this split are ranked for."""
    depth: int = Field(ge=1)
    """Documents of a ranking."""
    k1: float = Field(0.9, ge=0)
    """Term frequency saturation."""
    b: float = Field(0.4, ge=0, le=1)
    """Length normalisation."""


def rank_bm25(stage: Stage) -> None:
    """Inputs `index` (backend bm25s) and `collection`; output `candidates`.

    Raises:
        ArtifactError: the index is of another backend or of a corpus of another size.
    """
    settings = validate(RankSettings, stage.params, stage.spec.name())
    folder, collection = stage.path("index"), stage.path("collection")
    about = _check_index(folder, collection)
    queries = split_queries(collection, settings.split)
    index = LightIndex.load(folder, settings.k1, settings.b)
    without = rank_queries(index, read_ids(folder), queries, settings, stage.output("candidates"), stage.threads)
    if without:
        log.warning("%d of %d queries have no hit", without, len(queries))
    stage.metric("queries", len(queries))
    stage.metric("queries_without_hits", without)
    stage.note(**{key: value for key, value in about.items() if not key.endswith("documents")})


def rank_queries(
    index: LightIndex, ids: pa.Array, queries: pd.DataFrame, settings: RankSettings, path: Path, threads: int
) -> int:
    """Write the rankings of `queries` (columns `id`, `text`) in their order; returns how many have no hit.

    Scores are BM25's own. Equal scores stand by document id ascending, also at the last place: the order in which
    `search_bm25` fills a run, before it writes ties for trec_eval (`lower_ties`), which mining does not need.
    """
    progress = Progress(f"rank {settings.collection}/{settings.split}", len(queries), "queries")
    names, without = strings(queries["id"]), 0
    with RankingsWriter(path, settings.depth) as writer:
        for first in range(0, len(queries), BATCH):
            texts = queries["text"].iloc[first : first + BATCH].tolist()
            documents, scores, counts = index.search(texts, settings.depth, threads)
            hits = np.arange(documents.shape[1]) < counts[:, None]
            found = ids.take(pa.array(documents[hits]))
            writer.write(Rankings(names[first : first + BATCH], counts.astype(np.int64), found, scores[hits]))
            without += int((counts == 0).sum())
            progress.add(len(texts))
    progress.finish()
    return without


def _check_index(folder: Path, collection: Path) -> dict[str, object]:
    about, again = read_about(folder), "make the target index_bm25 of this collection again"
    if about.get("backend") != BACKEND:
        raise ArtifactError(folder, f"is an index of backend {about.get('backend')}, expected {BACKEND}", again)
    found, expected = about["documents"] + about["blank_documents"], corpus_size(collection)
    if found != expected:
        raise ArtifactError(folder, f"is of a corpus of {found} documents, {collection.name} has {expected}", again)
    return about
