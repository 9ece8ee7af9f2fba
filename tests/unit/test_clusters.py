"""Stage `cluster_queries`: files, determinism, statistics, empty clusters, and input that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.training_helpers import QUERIES, make_source

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.errors import ArtifactError, ConfigError, NonFiniteEmbedding, ZerodrError
from zerodr.papers.coco_dr.cluster_queries import Clusters, cluster
from zerodr.papers.coco_dr.settings import ClusterSettings

OUT = "results/clusters/ep1"
GIVEN = {"file": "groups.tsv", "count": 50, "iterations": 500, "restarts": 5}  # as a recipe writes its defaults


def blobs(count: int = QUERIES, kinds: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points around far centres, and which centre."""
    generator = np.random.default_rng(seed)
    kind = np.arange(count) % kinds
    centres = 20 * np.eye(kinds, 8)
    return (centres[kind] + generator.normal(size=(count, 8))).astype(np.float32), kind


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    make_source(tmp_path / "results/source")
    np.save(tmp_path / "results/queries.npy", blobs()[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(seed: int = 13, threads: int = 1, **changes: Any) -> Path:
    params = {"count": 4, "iterations": 20, "restarts": 2, "split": "train"} | changes
    groups = {"groups": changes["file"]} if "file" in changes else {}
    spec = StageSpec(
        "cluster_queries",
        1,
        {"stage": "ep1"},
        {"queries": "results/queries.npy", "collection": "results/source/manifest.json"} | groups,
        {"clusters": f"{OUT}/manifest.json"},
        params,
        seed,
        threads,
    )
    run_spec(spec)
    return Path(OUT)


def partition(assigned: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(assigned == number).tolist()) for number in np.unique(assigned)}


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_clusters_are_found_and_told(here, metric):
    folder = run(metric=metric)
    table = pq.read_table(folder / "clusters.parquet")
    assert table.schema.names == ["query", "cluster"] and str(table.schema.field("cluster").type) == "int32"
    assert table["query"].to_pylist() == [f"q{i}" for i in range(QUERIES)]
    assigned = table["cluster"].to_numpy()
    assert partition(assigned) == partition(blobs()[1])
    centroids = np.load(folder / "centroids.npy")
    assert centroids.shape == (4, 8) and centroids.dtype == np.float32
    points = blobs()[0]
    if metric == "cosine":
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
        np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, rtol=1e-5)
    facts = json.loads((folder / "statistics.json").read_text())
    assert facts["sizes"] == [QUERIES // 4] * 4 and facts["empty"] == 0 and facts["metric"] == metric
    assert facts["inertia"] == pytest.approx(((points - centroids[assigned]) ** 2).sum(1).mean(), rel=1e-3)
    assert facts["balance"] == pytest.approx(1.0) and facts["smallest"] == facts["largest"] == QUERIES // 4


def test_given_groups_are_the_clusters(here):
    """A training set's own groups in place of k-means, with their means as centroids."""
    points, kind = blobs()
    names = np.array(["law", "art", "sports", "art and law"])[kind]
    lines = [f"q{i}\t{name}\n" for i, name in enumerate(names)]
    Path("groups.tsv").write_text("query\tgroup\n" + "".join(lines) + "other\tlaw\n")
    folder = run(**GIVEN)
    assigned = pq.read_table(folder / "clusters.parquet")["cluster"].to_numpy()
    facts = json.loads((folder / "statistics.json").read_text())
    assert facts["groups"] == sorted(set(names)) and [facts["groups"][n] for n in assigned] == names.tolist()
    means = [points[names == name].mean(0) for name in facts["groups"]]
    np.testing.assert_allclose(np.load(folder / "centroids.npy"), means, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "is no table"),
        ("query\tgroup\nq0\ta\tb\tc\nq1\n", "is no table|lacks the group"),
        ("query\tgroup\nq0\ta\n", "lacks the group of .* the first is q1"),
        ("query\tgroup\nq0\ta\nq0\tb\n", "has query q0 twice"),
        ("id\tgroup\nq0\ta\n", "has columns id, group, expected query and group"),
        ("query\tgroup\n" + "".join(f"q{i}\ta\n" for i in range(QUERIES)), "has one group, a"),
    ],
)
def test_groups_that_cannot_be_given_are_named(here, text, match):
    Path("groups.tsv").write_text(text)
    with pytest.raises(ArtifactError, match=match):
        run(**GIVEN)


def test_given_groups_replace_k_means_of_a_scale_below():
    """`mini` has fewer clusters: a file on top needs no other key, and makes the same whatever the scale says."""
    assert ClusterSettings(file="groups.tsv", count=10) == ClusterSettings(file="groups.tsv")
    with pytest.raises(ValueError, match="cuont"):
        ClusterSettings(file="groups.tsv", cuont=10)
    assert "file" not in ClusterSettings().model_dump(), "what was made before stays"


@pytest.mark.parametrize("threads", [1, 2])
def test_equal_seeds_give_equal_bytes(here, threads):
    points = np.random.default_rng(1).normal(size=(QUERIES, 8)).astype(np.float32)
    np.save("results/queries.npy", points)
    files = ("clusters.parquet", "centroids.npy", "statistics.json")
    first = [(run(threads=threads) / name).read_bytes() for name in files]
    run(seed=14, threads=threads)
    other = [(Path(OUT) / name).read_bytes() for name in files]
    assert [(run(threads=threads) / name).read_bytes() for name in files] == first != other


def test_large_problems_are_deterministic_with_threads():
    points = np.random.default_rng(2).normal(size=(20000, 16)).astype(np.float32)
    chosen = ClusterSettings(count=20, iterations=4, restarts=1)
    made = [cluster(points, chosen, 3, 2) for _ in range(3)]
    assert all(np.array_equal(one.centroids, made[0].centroids) for one in made)
    assert all(np.array_equal(one.assigned, made[0].assigned) for one in made)


def test_a_sample_sees_fewer_points_but_all_are_assigned():
    points, kind = blobs(400)
    found = cluster(points, ClusterSettings(count=4, iterations=20, restarts=3, sample=20), 5)
    assert partition(found.assigned) == partition(kind)
    assert not np.array_equal(found.centroids, cluster(points, ClusterSettings(count=4, iterations=20), 5).centroids)


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(3, 40),
    clusters=st.integers(2, 6),
    seed=st.integers(0, 99),
    metric=st.sampled_from(["l2", "cosine"]),
)
def test_every_point_belongs_to_its_nearest_centroid(count, clusters, seed, metric):
    points = np.random.default_rng(seed).normal(size=(count, 5)).astype(np.float32)
    chosen = ClusterSettings(count=min(clusters, count), metric=metric, iterations=5, restarts=1)
    found = cluster(points, chosen, seed)
    if metric == "cosine":
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    distances = ((points[:, None] - found.centroids[None]) ** 2).sum(-1)
    assert (distances[np.arange(count), found.assigned] <= distances.min(1) + 1e-4).all()
    assert found.sizes.sum() == count and found.distances == pytest.approx(distances.min(1), abs=1e-3)


def test_a_cluster_that_empties_is_counted(here, caplog):
    points = np.zeros((QUERIES, 8), np.float32)
    points[: QUERIES // 2] = 1
    np.save("results/queries.npy", points)
    with caplog.at_level("WARNING", "zerodr"):
        facts = json.loads((run(count=5) / "statistics.json").read_text())
    assert facts["empty"] == 3 == facts["sizes"].count(0) and sum(facts["sizes"]) == QUERIES
    assert "3 of 5 clusters are empty" in caplog.text


def test_statistics_by_hand():
    found = Clusters(np.array([0, 0, 0, 2], np.int32), np.zeros((3, 1), np.float32), np.array([1.0, 2, 3, 2]))
    facts = found.facts()
    assert facts["inertia"] == 2.0 and facts["empty"] == 1 and facts["largest"] == 3 and facts["smallest"] == 0
    assert facts["balance"] == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)) / np.log(3))


@pytest.mark.parametrize(
    "changes, kind, said",
    [
        ({"count": QUERIES + 1}, ConfigError, f"{QUERIES + 1} clusters of the {QUERIES} queries of source/train"),
        ({"split": "other"}, ZerodrError, "no judgements for this split"),
        ({"metric": "dot"}, ConfigError, "metric"),
        ({"clusters": 3}, ConfigError, "unknown key"),
    ],
)
def test_bad_settings_are_refused(here, changes, kind, said):
    with pytest.raises(kind, match=said):
        run(**changes)
    assert not Path(OUT).exists()


def test_other_embeddings_are_refused(here):
    np.save("results/queries.npy", blobs(QUERIES - 1)[0])
    with pytest.raises(ArtifactError, match=rf"\({QUERIES - 1}, 8\), expected a row for each of the {QUERIES}"):
        run()
    points = blobs()[0]
    points[5, 2] = np.nan
    np.save("results/queries.npy", points)
    with pytest.raises(NonFiniteEmbedding, match="query q5 holds NaN"):
        run()
