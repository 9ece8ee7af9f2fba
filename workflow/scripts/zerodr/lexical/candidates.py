"""Run stage `rank_bm25`: candidates of a split's queries, or of a sample of them, by BM25 without Java, for mining."""

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
from zerodr.collections.samples import RankingSettings, ranked_queries
from zerodr.config.base import validate
from zerodr.errors import ArtifactError
from zerodr.lexical.folder import read_about, read_ids, report_hits
from zerodr.lexical.light import LightIndex

BATCH = 1024
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
    about = _check_index(folder, collection)
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
        for first in range(0, len(queries), BATCH):
            texts = queries["text"].iloc[first : first + BATCH].tolist()
            documents, scores, counts = index.search(texts, settings.depth, threads)
            hits = np.arange(documents.shape[1]) < counts[:, None]
            ranked = ids.take(pa.array(documents[hits]))
            writer.write(Rankings(names[first : first + BATCH], counts.astype(np.int64), ranked, scores[hits]))
            without += int((counts == 0).sum())
            progress.add(len(texts))
    progress.finish()
    return without


def _check_index(folder: Path, collection: Path) -> dict[str, object]:
    about, step = read_about(folder), "run the target index_bm25 of this collection again"
    if about.get("backend") != BACKEND:
        raise ArtifactError(folder, f"is an index of backend {about.get('backend')}, expected {BACKEND}", step)
    indexed, expected = about["documents"] + about["blank_documents"], corpus_size(collection)
    if indexed != expected:
        raise ArtifactError(folder, f"is of a corpus of {indexed} documents, {collection.name} has {expected}", step)
    return about
