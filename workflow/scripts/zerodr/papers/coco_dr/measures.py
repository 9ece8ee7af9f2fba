"""Stages `measure_clusters` and `measure_space`: losses by query cluster, and how held-out documents lie in the space.

iDRO is meant to help the clusters that a model serves worst (COCO-DR section 4.2). `measure_clusters` computes losses
on queries that the recipe did not learn from, by cluster. `measure_space` computes contrastive loss, alignment and
uniformity, where two spans of a document are a pair (COCO-DR sections 4.1 and 5.4). Its documents are those that
every pretraining stage with this seed holds out, so no model of the DAG has learned from them.
"""

import json
import logging
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import Field

from zerodr.artifacts.record import read_state, write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import CORPUS_SCHEMA, GROUPS, joined_texts, read_qrels, read_texts, split_queries
from zerodr.config.base import Settings, validate
from zerodr.config.pretraining import PretrainSettings
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.pretraining.condenser import HeadedEncoder
from zerodr.errors import CollectionError
from zerodr.papers.coco_dr.cluster_queries import CENTROIDS, STATISTICS, group_names, read_vectors
from zerodr.training.data.batches import WASTE
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.dev import embed_texts
from zerodr.training.loop.speed import speed_up
from zerodr.training.pretraining.passages import (
    Passages,
    sizes_path,
    span_folders,
    spans_of,
    split_documents,
    write_passages,
)
from zerodr.training.pretraining.span_forward import SpanForward, evaluate_spans
from zerodr.training.pretraining.views import ViewMaker

log = logging.getLogger("zerodr")
MOST = 12_000  # queries
BLOCK = 1024  # queries at a time
MEASURES = ("contrastive", "alignment", "uniformity")


class ClusterLossSettings(Settings):
    """Params of rule measure_clusters."""

    split: str
    """Split of the source that queries are of."""
    title_join: str | None = None
    """Text between title and text; None leaves titles out."""
    inverse_temperature: float = Field(gt=0)
    """Factor on similarities, as in training."""


def measure_clusters(stage: Stage) -> None:
    """Inputs `model`, `source`, `clusters`, `queries`; output `losses` (query, cluster, loss).

    `queries` are vectors of the split's queries, made by the model whose vectors were clustered: each is of the nearest
    cluster, or of the group that the source gives it. Of more than MOST judged queries the same ones are always taken.

    Raises:
        CollectionError: no query has a relevant document in the corpus.
    """
    settings = validate(ClusterLossSettings, stage.params, stage.spec.name())
    source = stage.path("source")
    where = f"{source.name}/{settings.split}"
    queries = split_queries(source, settings.split)
    vectors = read_vectors(stage.path("queries"), queries["id"].tolist(), where)
    facts = json.loads((stage.path("clusters") / STATISTICS).read_text(encoding="utf-8"))
    if facts.get("given"):
        names = group_names(source / GROUPS, queries["id"].tolist())
        queries["cluster"] = np.searchsorted(facts["groups"], names).astype(np.int32)
        queries = queries[np.isin(names, facts["groups"])]  # a group without training queries has no weight
    else:
        queries["cluster"] = nearest(vectors, stage.path("clusters"))
    qrels = read_qrels(source, settings.split)
    texts = read_texts(source, set(qrels.loc[qrels["grade"] > 0, "document"]))
    relevant = qrels[(qrels["grade"] > 0) & qrels["document"].isin(texts)].groupby("query")["document"].agg(list)
    asked = queries[queries["id"].isin(relevant.index)]
    if len(asked) > MOST:
        asked = asked.iloc[np.sort(np.random.default_rng(0).permutation(len(asked))[:MOST])]
    if asked.empty:
        problem = "no query has a relevant document in the corpus"
        raise CollectionError(where, problem, "add judgements of its documents")
    torch.set_num_threads(stage.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = BiEncoder.load(stage.path("model")).to(device)
    speed_up(model, device, "fp32")
    pool = sorted(set().union(*relevant[asked["id"]]))
    titled = pa.record_batch([pool, *zip(*(texts[name] for name in pool), strict=True)], schema=CORPUS_SCHEMA)
    documents = joined_texts(titled, settings.title_join).to_pylist()
    column = {name: number for number, name in enumerate(pool)}
    positives = [[column[name] for name in relevant[query]] for query in asked["id"]]
    losses = query_losses(model, asked["text"].tolist(), documents, positives, settings.inverse_temperature, device)
    frame = pd.DataFrame({"query": asked["id"], "cluster": asked["cluster"], "loss": losses})
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), stage.output("losses"))
    means = frame.groupby("cluster")["loss"].mean()
    stage.metric("loss", float(np.mean(losses)))
    stage.metric("worst_cluster_loss", float(means.max()))
    by_cluster = f"{np.mean(losses):.4f}; by cluster {means.min():.4f} to {means.max():.4f}"
    counts = f"{len(frame)} queries of {where} in {len(means)} clusters, {len(pool)} documents"
    log.info("%s: loss %s", counts, by_cluster)


def nearest(vectors: np.ndarray, clusters: Path) -> np.ndarray:
    """Find the nearest centroid of each vector as `cluster_queries` does, (N,) int32.

    Args:
        vectors: (N, D) float32.
        clusters: a folder that it made.
    """
    centroids = np.load(clusters / CENTROIDS, allow_pickle=False)
    nearness = vectors @ centroids.T
    if json.loads((clusters / STATISTICS).read_text(encoding="utf-8"))["metric"] != "cosine":
        nearness -= np.square(centroids).sum(1) / 2  # the largest is of the smallest distance
    return nearness.argmax(1).astype(np.int32)


def query_losses(
    model: BiEncoder,
    queries: list[str],
    documents: list[str],
    positives: list[list[int]],
    inverse_temperature: float,
    device: str,
) -> np.ndarray:
    """Compute -log softmax of each query's first relevant document among the documents that are no other of its own.

    Args:
        queries: texts (Q,).
        documents: texts (P,).
        positives: for each query the numbers of its relevant documents, one at least.

    Returns:
        losses (Q,), float64, in nats.
    """
    asked = embed_texts(model, queries, "query", device, Group())
    vectors = embed_texts(model, documents, "document", device, Group())
    losses = np.empty(len(queries))
    for start in range(0, len(queries), BLOCK):
        scores = model.score(asked[start : start + BLOCK], vectors).double() * inverse_temperature
        for row, (first, *others) in enumerate(positives[start : start + BLOCK]):
            scores[row, others] = -torch.inf
            losses[start + row] = float(torch.logsumexp(scores[row], 0) - scores[row, first])
    return losses


class SpaceSettings(Settings):
    """Params of rule measure_space."""

    model: str
    """`<method>@<stage>`."""
    documents: int = Field(ge=2)
    """Held-out documents, at most a tenth of the corpus."""
    max_tokens: int = Field(ge=3)
    """Longest span."""
    similarity: Literal["dot", "cosine"] | None = None
    """How vectors are compared in the contrastive loss. None: by inner product."""
    inverse_temperature: float | None = Field(None, gt=0)
    """Factor on similarities. None: 1."""


def measure_space(stage: Stage) -> None:
    """Inputs `model`, `spans` (a folder of cut_spans); output `measures` (JSON).

    Raises:
        CollectionError: fewer than two documents can be held out.
    """
    settings = validate(SpaceSettings, stage.params, stage.spec.name())
    file = stage.state / "passages.arrow"
    folders = span_folders([stage.path("spans")])
    (corpus,) = folders
    if read_state(sizes_path(file)) is None:
        write_passages(file, {corpus: spans_of(folders[corpus])})
    passages = Passages(file)
    _, dev = split_documents(passages, settings.documents, stage.seed)
    count = len(dev.get(corpus, ()))
    if count < 2:
        problem = f"has {len(passages)} documents of two spans, of which {count} can be held out, expected at least 2"
        raise CollectionError(corpus, problem, "leave it out of the item's collections")
    torch.set_num_threads(stage.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    measures = measure(BiEncoder.load(stage.path("model")), passages, dev, settings, stage.seed, device)
    facts = {"model": settings.model, "collection": corpus, "documents": count, "seed": stage.seed}
    write_json(stage.output("measures"), facts | measures)
    stage.numbers(measures)
    values = ", ".join(f"{name} {value:.4f}" for name, value in measures.items())
    log.info("%s on %d documents of %s: %s", settings.model, count, corpus, values)


def measure(
    encoder: BiEncoder, passages: Passages, dev: dict[str, np.ndarray], settings: SpaceSettings, seed: int, device: str
) -> dict[str, float]:
    """Measure held-out documents."""
    model = HeadedEncoder(encoder, predicts=False).to(device)
    speed_up(model, device, "fp32")
    rules = PretrainSettings(
        name="ict",
        max_tokens=min(settings.max_tokens, encoder.contract.max_tokens),
        similarity=settings.similarity,
        inverse_temperature=settings.inverse_temperature,
    )  # spans as they are
    maker = ViewMaker(encoder, rules, passages, True, [seed], WASTE[torch.device(device).type])
    measured = evaluate_spans(SpanForward(model, passages, device, maker=maker), dev, seed, Group())
    return {name: measured[name] for name in MEASURES}
