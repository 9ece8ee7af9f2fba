"""Stages `embed_memory`, `embed_memory_queries` and `embed_fused_queries`: vectors of models with augmented queries.

The augmenter's vectors of memories and queries find augmentation documents; the main model's vectors of queries with
these documents search the target.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from pydantic import Field

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import split_queries
from zerodr.collections.grounding import read_grounding
from zerodr.collections.memories import MemoryTexts
from zerodr.config.base import validate
from zerodr.encoders.components import augmenter_of
from zerodr.encoders.fusing import Fuser
from zerodr.encoders.fusion import FusionContract, FusionEncoder
from zerodr.encoders.state_cache import StateCache
from zerodr.errors import NonFiniteEmbedding
from zerodr.mining.labels import banned_documents
from zerodr.retrieval.embed import QuerySettings, embed_corpus_with, embed_queries_with

WINDOW = 256  # queries whose documents are gathered together


class FusedQuerySettings(QuerySettings):
    """Params of rule embed_fused_queries."""

    joins: dict[str, str | None]
    """What stands between title and text, by memory. None: text alone."""
    documents: int = Field(ge=1)
    """K: documents of a query."""
    document_limit: int = Field(ge=2)
    """Longest of them."""
    exclude_positives: bool = False
    """A query does not get documents that are judged relevant to it (training queries, where training does so)."""
    cache_mib: int = Field(2048, ge=0)
    """Memory for encoder states of documents; those that were used longest ago go first."""


def embed_memory(stage: Stage) -> None:
    """Inputs `collection` (the memory), `model` (with an augmenter); output `embeddings`, rows of one shard."""
    embed_corpus_with(stage, augmenter_of(stage.path("model"), True))


def embed_memory_queries(stage: Stage) -> None:
    """Inputs `collection`, `model` (with an augmenter); output `embeddings`, by which augmentation is searched."""
    embed_queries_with(stage, augmenter_of(stage.path("model"), True))


def embed_fused_queries(stage: Stage) -> None:
    """Inputs `collection`, `model`, `rankings` of the mixture, `memories`; output `embeddings`, as embed_queries.

    Raises:
        NonFiniteEmbedding: names the first query whose vector is not finite.
        ArtifactError: a query has no ranking, or a document stands in no memory.
    """
    settings = validate(FusedQuerySettings, stage.params, stage.spec.name())
    asked = split_queries(stage.path("collection"), settings.split)
    texts = MemoryTexts({path.parent.name: path.parent for path in stage.paths("memories")}, settings.joins)
    banned = None
    if settings.exclude_positives:
        banned = banned_documents(stage.path("collection"), settings.split, settings.collection)
    grounding = read_grounding(stage.path("rankings"), strings(asked["id"]), settings.documents, texts, banned)
    model = FusionEncoder.load(stage.path("model"), settings.precision)
    model.fusion = FusionContract(documents=settings.documents, document_tokens=settings.document_limit)
    limit = min(settings.query_tokens or model.contract.tokens("query"), model.contract.max_tokens)
    model.contract = model.contract.model_copy(update={"query_tokens": limit})
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(stage.threads)
    cache = StateCache(settings.cache_mib)
    fuser = Fuser(model, cache, settings.batch_tokens)
    places = {key: place for place, key in enumerate(grounding.documents.to_pylist())}
    made = np.empty((len(asked), model.contract.dimension), np.float32)
    progress = Progress(f"embed fused {settings.collection}/{settings.split}", len(asked), "queries")
    started = time.monotonic()
    for start in range(0, len(asked), WINDOW):
        rows = range(start, min(start + WINDOW, len(asked)))
        keys = [grounding.ids(row) for row in rows]
        queries = asked["text"].iloc[start : start + WINDOW].tolist()
        made[start : start + len(rows)] = fuser.vectors(
            queries, keys, lambda wanted: grounding.texts.take([places[key] for key in wanted]).to_pylist()
        )
        progress.add(len(rows))
    progress.finish()
    bad = np.flatnonzero(~np.isfinite(made).all(axis=1))
    if len(bad):
        raise NonFiniteEmbedding(f"query {asked['id'].iloc[int(bad[0])]}", "the model gave NaN or infinity",
                                 "use precision: fp32")  # fmt: skip
    with open(stage.output("embeddings"), "wb") as stream:
        np.save(stream, made)
    stage.note(states_found=cache.hits, states_made=cache.misses, query_tokens=limit, documents=settings.documents)
    stage.metric("queries_per_second", len(asked) / max(time.monotonic() - started, 1e-9))
