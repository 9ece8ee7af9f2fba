"""Stage `measure_clusters`: compute a model's loss on held-out training queries, with the cluster of each.

The queries are those that the stage holds out; the plan sees to it that no stage before it learned from them. iDRO
is meant to help the clusters that a model serves worst (specs/coco-dr 4); their losses say whether it does.
"""

import logging

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import read_qrels
from zerodr.config.base import Settings, validate
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import CollectionError
from zerodr.mining.dev import held_out
from zerodr.papers.coco_dr.training import CLUSTERS, clusters_of
from zerodr.training.data.examples import Examples, load_examples
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.dev import embed_texts
from zerodr.training.loop.speed import speed_up

log = logging.getLogger("zerodr")


class ClusterLossSettings(Settings):
    """Params of rule measure_clusters."""

    split: str
    """Split of the source that queries are of."""
    title_join: str | None = None
    """Text between title and text; None leaves titles out."""
    dev_queries: int = Field(ge=1)
    """Queries that training holds out."""
    inverse_temperature: float = Field(gt=0)
    """Factor on similarities, as in training."""


def measure_clusters(stage: Stage) -> None:
    """Inputs `model`, `source`, `mined`, `clusters`; output `losses` (query, cluster, loss).

    Raises:
        CollectionError: no held-out query has a positive and a negative.
    """
    settings = validate(ClusterLossSettings, stage.params, stage.spec.name())
    source = stage.path("source")
    examples = load_examples(stage.path("mined"), source, settings.title_join)
    qrels = read_qrels(source, settings.split)
    judged = qrels.loc[qrels["grade"] > 0, "query"].tolist()
    dev = held_out(judged, settings.dev_queries, stage.seed)
    asked = np.array([query in dev for query in examples.queries.to_pylist()], bool)
    rows = np.flatnonzero(asked & (examples.positives.sizes > 0) & (examples.negatives.sizes > 0))
    if not len(rows):
        raise CollectionError(
            f"{source.name}/{settings.split}",
            f"none of the {len(dev)} held-out queries has a positive and a negative",
            "mine more negatives, or raise training.dev_queries",
        )
    torch.set_num_threads(stage.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = BiEncoder.load(stage.path("model")).to(device)
    speed_up(model, device, "fp32")
    losses = query_losses(model, examples, rows, settings.inverse_temperature, device)
    clusters = clusters_of(stage.path("clusters") / CLUSTERS, examples.queries)[rows]
    frame = pd.DataFrame({"query": examples.queries.take(rows).to_pylist(), "cluster": clusters, "loss": losses})
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), stage.output("losses"))
    means = frame.groupby("cluster")["loss"].mean()
    stage.metric("loss", float(np.mean(losses)))
    stage.metric("worst_cluster_loss", float(means.max()))
    log.info(
        "%d held-out queries of %d clusters: loss %.4f; by cluster %.4f to %.4f",
        len(frame),
        len(means),
        np.mean(losses),
        means.min(),
        means.max(),
    )


def query_losses(
    model: BiEncoder, examples: Examples, rows: np.ndarray, inverse_temperature: float, device: str
) -> np.ndarray:
    """Compute -log softmax of the first positive among it and all mined negatives.

    Args:
        rows: queries, (Q,).

    Returns:
        losses (Q,), float64, in nats.
    """
    documents = [np.r_[examples.positives[row][:1], examples.negatives[row]] for row in map(int, rows)]
    pool = np.unique(np.concatenate(documents))
    queries = embed_texts(model, examples.texts_of_queries(rows), "query", device, Group())
    vectors = embed_texts(model, examples.texts_of_documents(pool), "document", device, Group())
    losses = np.empty(len(rows))
    for position, numbers in enumerate(documents):
        candidates = vectors[torch.from_numpy(np.searchsorted(pool, numbers)).to(vectors.device)]
        scores = model.score(queries[position : position + 1], candidates)[0].double() * inverse_temperature
        losses[position] = float(torch.logsumexp(scores, 0) - scores[0])
    return losses
