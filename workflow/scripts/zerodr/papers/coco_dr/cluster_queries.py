"""Stage `cluster_queries`: compute K-means of a source's training queries by the embeddings of the current model.

Where groups are given (`clusters.file`, `clusters.given`), they are the clusters, each with the mean of its vectors as
its centroid.

COCO-DR clusters training queries anew at each episode, when it mines negatives (COCO-DR section 5.1). The released
code clusters by Euclidean distance; `cosine` clusters directions. Inner products are not offered: long centroids take
all points.
"""

import csv
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import GROUPS, split_queries
from zerodr.config.base import validate
from zerodr.errors import ArtifactError, ConfigError, NonFiniteEmbedding
from zerodr.papers.coco_dr.settings import ClusterSettings

log = logging.getLogger("zerodr")
CLUSTERS, CENTROIDS, STATISTICS = "clusters.parquet", "centroids.npy", "statistics.json"
SCHEMA = pa.schema([("query", pa.string()), ("cluster", pa.int32())])


class ClusterQueriesSettings(ClusterSettings):
    """Params of rule cluster_queries."""

    split: str
    """The source's split with training queries."""


@dataclass(frozen=True)
class Clusters:
    """Clusters of N points.

    Attributes:
        assigned: (N,) int32 nearest centroid of each point.
        centroids: (K, D) float32; of length 1 for cosine.
        distances: (N,) float64 squared Euclidean distances to it (cosine: of unit vectors).
    """

    assigned: np.ndarray
    centroids: np.ndarray
    distances: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Points of each cluster, (K,)."""
        return np.bincount(self.assigned, minlength=len(self.centroids))

    def facts(self) -> dict[str, Any]:
        """Sizes, inertia (mean squared distance), empty clusters, and balance: entropy of sizes over its maximum."""
        sizes = self.sizes
        shares = sizes[sizes > 0] / len(self.assigned)
        return {
            "queries": len(self.assigned),
            "clusters": len(sizes),
            "empty": int((sizes == 0).sum()),
            "smallest": int(sizes.min()),
            "largest": int(sizes.max()),
            "inertia": float(self.distances.mean()),
            "balance": float(-(shares * np.log(shares)).sum() / np.log(len(sizes))),
        }


def cluster_queries(stage: Stage) -> None:
    """Inputs `queries` (embeddings, rows as split_queries), `collection`, given `groups`; output `clusters`, a folder.

    The folder holds clusters.parquet (query, cluster), centroids.npy and statistics.json.

    Raises:
        ConfigError: more clusters than queries.
        ArtifactError: embeddings or groups of other queries.
        NonFiniteEmbedding: a query's vector holds NaN or infinity.
    """
    settings = validate(ClusterQueriesSettings, stage.params, stage.spec.name())
    file, source, folder = stage.path("queries"), stage.path("collection"), stage.output("clusters")
    queries = split_queries(source, settings.split)["id"].tolist()
    vectors = read_vectors(file, queries, f"{source.name}/{settings.split}")
    groups = source / GROUPS if settings.given else stage.path("groups") if settings.file is not None else None
    if groups is None and settings.count > len(queries):
        problem = (
            f"{settings.count} clusters of the {len(queries)} queries of {source.name}/{settings.split} can't be made"
        )
        raise ConfigError("clusters.count", problem, f"set it to at most {len(queries)}")
    if groups is not None:
        names, clusters = given(vectors, queries, groups)
    else:
        names, clusters = [], cluster(vectors, settings, stage.seed, stage.threads)
    table = pa.table([pa.array(queries, pa.string()), pa.array(clusters.assigned)], schema=SCHEMA)
    pq.write_table(table, folder / CLUSTERS, compression="zstd")
    np.save(folder / CENTROIDS, clusters.centroids, allow_pickle=False)
    facts = clusters.facts()
    statistics = facts | {"sizes": clusters.sizes.tolist(), "metric": settings.metric}
    statistics |= {"groups": names} if names else {}
    statistics |= {"given": True} if settings.given else {}
    write_json(folder / STATISTICS, statistics)
    stage.numbers(facts)
    stage.note(statistics=facts)
    if facts["empty"]:
        log.warning(
            "%s: %d of %d clusters are empty and form no group", stage.spec.name(), facts["empty"], settings.count
        )


def given(vectors: np.ndarray, queries: list[str], file: Path) -> tuple[list[str], Clusters]:
    """Read the groups of queries: their names, sorted, and the clusters that they are.

    Args:
        vectors: (N, D) float32.
        queries: ids (N,).
        file: columns `query` and `group`; queries that are none of these don't count.

    Raises:
        ArtifactError: no table, other columns, a query twice or without a group, or one group alone.
    """
    names, assigned = np.unique(group_names(file, queries), return_inverse=True)
    if len(names) < 2:
        raise ArtifactError(file, f"has one group, {names[0]}", "weights need two: leave clusters and groups out")
    centroids = np.stack([vectors[assigned == number].mean(0, dtype=np.float64) for number in range(len(names))])
    distances = np.square(vectors - centroids[assigned]).sum(1)
    return names.tolist(), Clusters(assigned.astype(np.int32), centroids.astype(np.float32), distances)


def group_names(file: Path, queries: list[str]) -> np.ndarray:
    """Read the group of each query, (N,) of names.

    Raises:
        ArtifactError: as `given`, but for one group alone.
    """
    step = "give each training query one group"
    try:
        table = pd.read_csv(file, sep="\t", dtype=str, keep_default_na=False, quoting=csv.QUOTE_NONE)
    except FileNotFoundError as error:
        problem = "is not there: the source comes without groups"
        raise ArtifactError(file, problem, "take a mixture or a ciphered collection, or clusters.file") from error
    except ValueError as error:  # empty, rows of other lengths, no UTF-8
        raise ArtifactError(file, f"is no table ({error})", step) from error
    if not {"query", "group"} <= set(table.columns):
        problem = f"has columns {', '.join(table.columns)}, expected query and group, separated by a tab"
        raise ArtifactError(file, problem, "write them into the first line")
    twice = table["query"][table["query"].duplicated()]
    if len(twice):
        raise ArtifactError(file, f"has query {twice.iloc[0]} twice", step)
    groups = table.set_index("query")["group"].reindex(queries)
    missing = groups.index[groups.isna() | (groups == "")]
    if len(missing):
        problem = f"lacks the group of {len(missing)} of {len(queries)} training queries, the first is {missing[0]}"
        raise ArtifactError(file, problem, step)
    return groups.to_numpy(str)


def cluster(vectors: np.ndarray, settings: ClusterSettings, seed: int, threads: int = 1) -> Clusters:
    """K-means by faiss; the same for equal vectors, seed and threads.

    Args:
        vectors: (N, D) float32, N at least the number of clusters.
    """
    import faiss

    faiss.omp_set_num_threads(threads)
    cosine = settings.metric == "cosine"
    points = np.array(vectors, np.float32, order="C")
    if cosine:
        faiss.normalize_L2(points)
    limit = len(points) if settings.sample is None else settings.sample
    kmeans = faiss.Kmeans(
        points.shape[1],
        settings.count,
        niter=settings.iterations,
        nredo=settings.restarts,
        seed=seed,
        spherical=cosine,
        min_points_per_centroid=1,  # by default faiss warns below 39, and draws 256 points a centroid
        max_points_per_centroid=limit,
    )
    kmeans.train(points)
    nearness, nearest = kmeans.index.search(points, 1)
    distances = nearness[:, 0].astype(np.float64)
    if cosine:
        distances = np.maximum(2 - 2 * distances, 0)
    return Clusters(nearest[:, 0].astype(np.int32), np.array(kmeans.centroids, np.float32), distances)


def read_vectors(file: Path, queries: list[str], where: str) -> np.ndarray:
    """Read the vectors of queries, (Q, D) float32.

    Raises:
        ArtifactError: they are of other queries.
        NonFiniteEmbedding: one holds NaN or infinity.
    """
    vectors = np.load(file, mmap_mode="r", allow_pickle=False)
    if vectors.ndim != 2 or len(vectors) != len(queries):
        problem = (
            f"holds an array of shape {vectors.shape}, expected a row for each of the {len(queries)} queries of {where}"
        )
        raise ArtifactError(file, problem, "embed this collection and split")
    wrong = np.flatnonzero(~np.isfinite(vectors).all(1))
    if len(wrong):
        problem = f"the vector of query {queries[int(wrong[0])]} holds NaN or infinity ({len(wrong)} queries do)"
        raise NonFiniteEmbedding(file, problem, "train the model anew with a lower rate")
    return vectors


def clusters_of(path: Path, queries: pa.Array) -> np.ndarray:
    """Cluster of each query, (N,) int32; a file of cluster_queries may hold others, too.

    Raises:
        ArtifactError: it lacks one.
    """
    table = pq.read_table(path, columns=["query", "cluster"])
    rows = pc.index_in(queries, value_set=table["query"].combine_chunks())
    if rows.null_count:
        first = queries.filter(pc.is_null(rows))[0]
        problem = f"lacks {rows.null_count} of the {len(queries)} mined queries, the first is {first}"
        raise ArtifactError(path, problem, "cluster the queries of this source and split")
    return table["cluster"].combine_chunks().take(rows).to_numpy().astype(np.int32)
