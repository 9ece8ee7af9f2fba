"""Items of COCO-DR: pretraining's gain, nearest clusters and nearest source queries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.paper_helpers import scores, told

from zerodr.config.papers import item_of
from zerodr.errors import ArtifactError
from zerodr.papers.coco_dr import report as item_queries

GOLD = {"bm25": [0.2, 0.4, 0.6, 0.8], "ours": [0.4, 0.6, 0.6, 0.9]}


def space(folder: Path, model: str, collection: str, loss: float) -> Path:
    path = folder / f"{model}.{collection}.json"
    path.write_text(
        json.dumps(
            {
                "model": model,
                "collection": collection,
                "documents": 9,
                "contrastive": loss,
                "alignment": 0.5,
                "uniformity": -2.0,
            }
        )
    )
    return path


def test_pretraining_gain_sets_loss_beside_retrieval(tmp_path):
    files = [scores(tmp_path, name, "a", values) for name, values in GOLD.items()]
    found = [space(tmp_path, "x@init", "a", 4.0), space(tmp_path, "x@coco", "a", 1.0)]
    item = {"kind": "pretraining_gain", "models": ["x@init", "x@coco"], "methods": ["bm25", "ours"]}
    stage, settings = told(item, {"per_query": files, "spaces": found}, tmp_path)
    made = item_queries.pretraining_gain(stage, settings, item_of(settings.item, "x"))
    row = made.frame.iloc[0]
    assert row["reduction"] == pytest.approx(0.75) and row["gain"] == pytest.approx(0.125)


def collection(folder: Path, name: str, texts: list[str]) -> Path:
    place = folder / name
    place.mkdir()
    ids = [f"q{number}" for number in range(len(texts))]
    pq.write_table(pa.table({"id": ids, "text": texts}), place / "queries.parquet")
    lines = "".join(f"{query}\td\t1\n" for query in ids)
    (place / "qrels.test.tsv").write_text("query\tdocument\tgrade\n" + lines)
    return place / "manifest.json"


def query_inputs(folder: Path) -> dict[str, list[Path]]:
    """Targets at (1, 0); of the source's four queries two lie there and gain .3, two at (0, 1) and lose .1."""
    vectors = {"a": [[1.0, 0.0]] * 4, "s": [[1.0, 0.1], [0.9, 0.0], [0.0, 1.0], [0.1, 1.0]]}
    files = {}
    for name, rows in vectors.items():
        files[name] = folder / f"{name}.npy"
        np.save(files[name], np.array(rows, np.float32))
    (folder / "clusters").mkdir()
    np.save(folder / "clusters" / "centroids.npy", np.array([[0.0, 1.0], [1.0, 0.0], [5.0, 5.0]], np.float32))
    return {
        "queries": [files["a"], files["s"]],
        "collections": [collection(folder, "a", list("wxyz")), collection(folder, "s", list("klmn"))],
        "per_query": [scores(folder, name, "a", values) for name, values in GOLD.items()],
        "source_per_query": [
            scores(folder, "ours", "s", [0.8, 0.8, 0.4, 0.4]),
            scores(folder, "bm25", "s", [0.5, 0.5, 0.5, 0.5]),
        ],
        "clusters": [folder / "clusters/manifest.json"],
    }


def cluster_losses(folder: Path) -> dict[str, list[Path]]:
    losses = {"ours": [0.2, 0.4, 0.9], "bm25": [0.5, 0.6, 0.1]}
    files = [folder / f"{name}.losses.parquet" for name in losses]
    for path, values in zip(files, losses.values(), strict=True):
        rows = {"query": ["t0", "t1", "t2"], "cluster": pa.array([1, 1, 0], pa.int32()), "loss": values}
        pq.write_table(pa.table(rows), path)
    return {"losses": files}


def test_the_nearest_cluster_has_source_queries(tmp_path):
    item = {"kind": "nearest_clusters", "method": "ours", "baseline": "bm25", "stage": "ep1"}
    stage, settings = told(item, query_inputs(tmp_path) | cluster_losses(tmp_path), tmp_path)
    made = item_queries.nearest_clusters(stage, settings, item_of(settings.item, "x"))
    row = made.frame.iloc[0]
    assert (row["cluster"], row["source_queries"]) == (1, 2), "the third centroid is nearer, but has no source query"
    assert row["source_gain"] == pytest.approx(0.3) and row["gain"] == pytest.approx(0.125)
    assert any("one sign on both sides for 1 of 1" in note for note in made.notes)


def test_the_nearest_cluster_gains_on_its_training_queries(tmp_path):
    """COCO-DR figure 5c: the fall of the training loss, and how many of BEIR's nearest clusters have one."""
    inputs = query_inputs(tmp_path) | cluster_losses(tmp_path)
    item = {"kind": "nearest_clusters", "method": "ours", "baseline": "bm25", "stage": "ep1"}
    stage, settings = told(item, inputs, tmp_path)
    made = item_queries.nearest_clusters(stage, settings, item_of(settings.item, "x"))
    row = made.frame.iloc[0]
    assert (row["cluster"], row["training_queries"], row["loss_fall"]) == (1, 2, pytest.approx(0.25))
    assert any("positive for 1 of 1 collections" in note for note in made.notes)
    assert made.measured == {}, "the paper counts among 18"
    item_queries.REPORT.figures["nearest_clusters"](made.frame, settings)
    pq.write_table(pa.table({"query": ["x"], "cluster": pa.array([1], pa.int32()), "loss": [1.0]}), inputs["losses"][0])
    with pytest.raises(ArtifactError, match="are of other queries or clusters"):
        item_queries.nearest_clusters(stage, settings, item_of(settings.item, "x"))


def test_nearest_clusters_are_those_of_each_seed(tmp_path):
    """The second seed's clusters lie the other way around, its training gains nothing on the collection."""
    first = query_inputs(tmp_path) | cluster_losses(tmp_path)
    second = tmp_path / "second"
    second.mkdir()
    np.save(second / "centroids.npy", np.array([[1.0, 0.0], [0.0, 1.0]], np.float32))
    np.save(second / "s.npy", np.array([[1.0, 0.0]] + [[0.0, 1.0]] * 3, np.float32))
    losses = [second / "after.parquet", second / "before.parquet"]
    for path, values in zip(losses, ([0.9, 0.5], [0.5, 0.5]), strict=True):
        pq.write_table(pa.table({"query": ["t0", "t1"], "cluster": pa.array([0, 1], pa.int32()), "loss": values}), path)
    gains = [
        scores(second, "ours-seed14", "s", [0.9, 0.5, 0.5, 0.5]),
        scores(second, "bm25-seed14", "s", [0.5] * 4),
    ]
    ranked = [scores(second, f"{name}-seed14", "a", GOLD["bm25"]) for name in ("ours", "bm25")]
    first["clusters"] += [second / "manifest.json"]
    first["losses"] += losses
    first["queries"] += [first["queries"][0], second / "s.npy"]
    first["per_query"] += ranked
    first["source_per_query"] += gains
    item = {"kind": "nearest_clusters", "method": "ours", "baseline": "bm25", "stage": "ep1"}
    names = {"ours": "ours-seed14", "bm25": "bm25-seed14"}
    values = [{"seed": 13, "names": {name: name for name in names}}, {"seed": 14, "names": names}]
    stage, settings = told(item, first, tmp_path)
    settings = settings.model_copy(update={"values": tuple(values)})
    made = item_queries.nearest_clusters(stage, settings, item_of(settings.item, "x"))
    assert made.frame[["seed", "cluster", "source_queries"]].to_numpy().tolist() == [[13, 1, 2], [14, 0, 1]]
    assert made.frame["source_gain"].tolist() == pytest.approx([0.3, 0.4])
    assert made.frame["gain"].tolist() == pytest.approx([0.125, 0.0])
    assert made.frame["others_gain"].tolist() == pytest.approx([-0.1, 0.0])
    (row,) = made.shown[1]
    assert "+0.3500 [+0.3000, +0.4000]" in row and "1, 0" in row
    assert any("one sign on both sides for 1, 0 of 1" in note for note in made.notes)
    np.save(second / "centroids.npy", np.array([[1.0, 0.0]], np.float32))  # every source query is in the nearest one
    for path in losses:
        table = pq.read_table(path)
        pq.write_table(table.set_column(1, "cluster", pa.array([0, 0], pa.int32())), path)
    alone = item_queries.nearest_clusters(stage, settings, item_of(settings.item, "x"))
    assert any(note.endswith("], there are none") for note in alone.notes)
    item_queries.REPORT.figures["nearest_clusters"](made.frame, settings)


def test_neighbours_are_the_nearest_source_queries(tmp_path):
    item = {"kind": "neighbours", "method": "ours", "baseline": "bm25", "examples": 1, "neighbours": 2}
    stage, settings = told(item, query_inputs(tmp_path), tmp_path)
    frame = item_queries.neighbours(stage, settings, item_of(settings.item, "x")).frame
    assert frame["query"].tolist() == ["w", "w", "y", "y"], "gains .2 and 0"
    assert frame["source_query"].tolist() == ["k", "l"] * 2
    assert frame["source_gain"].tolist() == pytest.approx([0.3] * 4)


def test_queries_that_the_paper_shows_are_compared(tmp_path):
    """By their words; a query that is not there has no value."""
    cases = [["W?", "k"], ["not there", "m"]]
    item = {"kind": "neighbours", "method": "ours", "baseline": "bm25", "cases": cases}
    stage, settings = told(item, query_inputs(tmp_path), tmp_path)
    measured = item_queries.neighbours(stage, settings, item_of(settings.item, "x")).measured
    case = "ndcg_cut_10_gain_case"
    assert {key: round(float(value), 6) for key, value in measured.items()} == {
        ("ours", "s", f"{case}1"): 0.3,
        ("ours", "s", f"{case}2"): -0.1,
        ("ours", "a", f"{case}1"): 0.2,
    }


def test_collections_are_known_by_their_files_not_by_their_order(tmp_path):
    item = {"kind": "neighbours", "method": "ours", "baseline": "bm25", "examples": 1, "neighbours": 2}
    given = query_inputs(tmp_path)
    other = {key: files[::-1] if key in ("queries", "collections") else files for key, files in given.items()}
    found = []
    for files in (given, other):
        stage, settings = told(item, files, tmp_path)
        found.append(item_queries.neighbours(stage, settings, item_of(settings.item, "x")).frame)
    assert found[0].equals(found[1])


def test_a_query_without_metrics_is_an_error(tmp_path):
    item = {"kind": "neighbours", "method": "ours", "baseline": "bm25", "examples": 1, "neighbours": 2}
    files = query_inputs(tmp_path)
    table = pq.read_table(files["per_query"][0])
    pq.write_table(table.slice(1), files["per_query"][0])
    with pytest.raises(ArtifactError, match="lack 1 of its 4 queries, the first is q0"):
        stage, settings = told(item, files, tmp_path)
        item_queries.neighbours(stage, settings, item_of(settings.item, "x"))


@pytest.mark.parametrize("kind", ["neighbours", "nearest_clusters"])
def test_queries_without_a_positive_judgement_are_left_out(tmp_path, kind):
    """Evaluations leave them out, too: it was an error that names the first, 'evaluate it again'."""
    files = query_inputs(tmp_path) | cluster_losses(tmp_path)
    for name in ("a", "s"):
        qrels = tmp_path / name / "qrels.test.tsv"
        qrels.write_text(qrels.read_text().replace("q0\td\t1", "q0\td\t0"))
    for path in files["per_query"] + files["source_per_query"]:
        pq.write_table(pq.read_table(path).slice(1), path)
    item = {"kind": kind, "method": "ours", "baseline": "bm25"}
    item |= {"stage": "ep1"} if kind == "nearest_clusters" else {"examples": 1, "neighbours": 1}
    stage, settings = told(item, files, tmp_path)
    row = getattr(item_queries, kind)(stage, settings, item_of(settings.item, "x")).frame.iloc[0]
    if kind == "neighbours":
        assert (row["query"], row["source_query"]) == ("x", "l") and row["gain"] == pytest.approx(0.2)
    else:
        assert row["source_queries"] == 1 and row["source_gain"] == pytest.approx(0.3)
