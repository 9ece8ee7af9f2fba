"""Items that look for the source's queries that are nearest to a collection's (COCO-DR figure 5c, table 4).

The source's queries are those of its evaluated split, which training has not seen.
"""

import textwrap
from pathlib import Path

import numpy as np
import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import split_queries
from zerodr.config.item import Item
from zerodr.errors import ArtifactError
from zerodr.papers.coco_dr.items import NearestClustersItem, NeighboursItem
from zerodr.papers.coco_dr.report_clusters import draw_worst_cluster, worst_cluster
from zerodr.papers.coco_dr.report_spaces import draw_against, draw_spaces, pretraining_gain, spaces
from zerodr.reporting.item_inputs import Gain, ItemParams, ItemTable, Report, correlation, gain, read_scores

CENTROIDS = "centroids.npy"
SHOWN = 160  # characters of a text in the printed table; the tsv has all


def nearest_clusters(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """For each collection the cluster with the highest mean inner product, and gains on both sides."""
    assert isinstance(item, NearestClustersItem)
    centroids = np.load(stage.path("clusters") / CENTROIDS, allow_pickle=False)
    queries, vectors = _queries(stage, settings)
    scores = read_scores([*stage.paths("per_query"), *stage.paths("source_per_query")])
    source = _differences(scores, item, settings.source, queries[settings.source])
    owner = _nearest_centroid(vectors[settings.source], centroids)
    rows = []
    for name in settings.collections:
        nearness = (vectors[name] @ centroids.T).mean(0)
        nearness[np.bincount(owner, minlength=len(centroids)) == 0] = -np.inf  # no source query to tell a gain on
        cluster = int(nearness.argmax())
        near = source[owner == cluster]
        there = gain(near, near * 0, settings.bootstrap_samples, stage.seed)
        here = gain(scores[item.method, name], scores[item.baseline, name], settings.bootstrap_samples, stage.seed)
        rows.append(
            {
                "collection": name,
                "cluster": cluster,
                "source_queries": len(near),
                **there.columns("source_gain"),
                **here.columns("gain"),
            }
        )
    frame = pd.DataFrame(rows)
    method, baseline = settings.methods[item.method], settings.methods[item.baseline]
    both = int(((frame["source_gain"] > 0) == (frame["gain"] > 0)).sum())
    notes = [
        f"clusters of {method}'s stage {item.stage}; nearest by the mean inner product of a collection's "
        f"queries with its centroid; gains: nDCG@10 of {method} minus that of {baseline}, on the cluster's "
        f"queries of {settings.source}/{settings.splits[settings.source]} and on the collection",
        f"gains have one sign on both sides for {both} of {len(frame)} collections",
        correlation(frame["source_gain"], frame["gain"], "gains of clusters and of collections"),
    ]
    header = ["", "cluster", "its source queries", "gain there", "gain on the collection"]
    shown = [
        [
            settings.collections[row["collection"]],
            str(row["cluster"]),
            str(row["source_queries"]),
            str(Gain.of(row, "source_gain")),
            str(Gain.of(row, "gain")),
        ]
        for _, row in frame.iterrows()
    ]
    return ItemTable(frame, notes, (header, shown))


def neighbours(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Queries with the largest gains and losses, their nearest source queries, and gains on these."""
    assert isinstance(item, NeighboursItem)
    queries, vectors = _queries(stage, settings)
    scores = read_scores([*stage.paths("per_query"), *stage.paths("source_per_query")])
    asked = queries[settings.source]
    source, rows = _differences(scores, item, settings.source, asked), []
    for name in settings.collections:
        gains = _differences(scores, item, name, queries[name])
        order = np.argsort(-gains.to_numpy(), kind="stable")
        for position in dict.fromkeys([*order[: item.examples], *order[-item.examples :]]):
            near = np.argsort(-(vectors[settings.source] @ vectors[name][position]), kind="stable")[: item.neighbours]
            rows += [
                {
                    "collection": name,
                    "query": queries[name]["text"].iloc[position],
                    "gain": float(gains.iloc[position]),
                    "source_query": asked["text"].iloc[at],
                    "source_gain": float(source.iloc[at]),
                }
                for at in near
            ]
    frame = pd.DataFrame(rows)
    notes = [
        f"the {item.examples} queries of each collection with the largest gains of "
        f"{settings.methods[item.method]} over {settings.methods[item.baseline]} in nDCG@10, and as many with the "
        f"largest losses, with the nearest queries of {settings.source}/{settings.splits[settings.source]} by the "
        "method's own vectors: chosen examples, no evidence"
    ]
    shown = [
        [
            settings.collections[row.collection],
            _shortened(row.query),
            f"{row.gain:+.4f}",
            _shortened(row.source_query),
            f"{row.source_gain:+.4f}",
        ]
        for row in frame.itertuples()
    ]
    return ItemTable(frame, notes, (["", "query", "gain", "source query", "gain there"], shown))


def _shortened(text: str) -> str:
    return textwrap.shorten(text, SHOWN, placeholder=" ...")


def _queries(stage: Stage, settings: ItemParams) -> tuple[dict[str, pd.DataFrame], dict[str, np.ndarray]]:
    """Queries and their vectors by collection, the source among them."""
    texts, vectors = {}, {}
    for manifest, file in zip(stage.paths("collections"), stage.paths("queries"), strict=True):
        name = manifest.parent.name
        texts[name] = split_queries(manifest.parent, settings.splits[name])
        vectors[name] = _vectors(file, len(texts[name]), name)
    return texts, vectors


def _vectors(file: Path, count: int, name: str) -> np.ndarray:
    vectors = np.load(file, allow_pickle=False).astype(np.float32)
    if len(vectors) != count:
        raise ArtifactError(file, f"holds {len(vectors)} vectors, {name} has {count} queries", "embed them again")
    return vectors


def _differences(
    scores: dict, item: NearestClustersItem | NeighboursItem, name: str, queries: pd.DataFrame
) -> pd.Series:
    """Gain of each query, in the order of its vectors."""
    differences = (scores[item.method, name] - scores[item.baseline, name]).reindex(queries["id"])
    if differences.isna().any():
        raise ArtifactError(
            f"metrics of {item.method} on {name}",
            f"lack {int(differences.isna().sum())} of its "
            f"{len(queries)} queries, the first is {differences.index[differences.isna()][0]}",
            "evaluate it again",
        )
    return differences


def _nearest_centroid(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Euclidean, as the clusters were made."""
    return (np.square(centroids).sum(1) - 2 * vectors @ centroids.T).argmin(1)


REPORT = Report(
    {
        "spaces": spaces,
        "pretraining_gain": pretraining_gain,
        "nearest_clusters": nearest_clusters,
        "neighbours": neighbours,
        "worst_cluster": worst_cluster,
    },
    {
        "spaces": draw_spaces,
        "pretraining_gain": draw_against("reduction", "part of the contrastive loss that the pretraining takes off"),
        "nearest_clusters": draw_against("source_gain", "gain in nDCG@10 on the nearest source cluster"),
        "worst_cluster": draw_worst_cluster,
    },
)
