"""Losses on held-out queries by cluster: the stage, what is planned, and the item that compares methods."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.unit.paper_helpers import drawn, told
from tests.unit.training_helpers import QUERIES, lay_out, seal

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.load import load_bench
from zerodr.config.papers import item_of
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.mining.dev import held_out
from zerodr.papers.coco_dr.report_clusters import worst_cluster
from zerodr.plan import Plan, paths
from zerodr.plan.items import read_item
from zerodr.training.data.examples import load_examples

ITEM = {"kind": "worst_cluster", "methods": ["ours"], "baseline": "plain"}
BOTH = ["plain", "ours"]
SEEDS = [{"seed": seed, "names": dict(zip(BOTH, BOTH, strict=True)), "drawing": BOTH} for seed in (13, 14)]
LOSSES = {
    (13, "plain"): [1.0, 3.0, 5.0, 7.0],  # clusters 0, 0, 4, 4: means 2 and 6
    (13, "ours"): [4.0, 4.0, 4.0, 4.0],
    (14, "plain"): [2.0, 2.0, 1.0, 1.0],
    (14, "ours"): [1.0, 1.0, 2.0, 4.0],
}


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {"scale": "lab", "seeds": "14,15", "collections": "scifact"}))


def file_of(folder, seed: int, method: str, losses: list[float]):
    path = folder / f"{method}-{seed}.parquet"
    columns = {"query": [f"q{number}" for number in range(4)], "cluster": [0, 0, 4, 4], "loss": losses}
    pq.write_table(pa.table(columns), path)
    return path


def compared(folder, losses=LOSSES, seeds=SEEDS):
    inputs = {"losses": [file_of(folder, *key, values) for key, values in losses.items()]}
    stage, settings = told(ITEM, inputs, folder, methods=tuple(BOTH), values=tuple(seeds))
    return worst_cluster(stage, settings, item_of(settings.item, "x"))


# ---- the stage -------------------------------------------------------------------------------------------------
@pytest.fixture
def project(tmp_path, monkeypatch):
    lay_out(tmp_path)
    clusters = tmp_path / "results/clusters"
    clusters.mkdir()
    numbers = pa.array([i % 3 for i in range(QUERIES)], pa.int32())
    pq.write_table(
        pa.table({"query": [f"q{i}" for i in range(QUERIES)], "cluster": numbers}), clusters / "clusters.parquet"
    )
    seal(clusters)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measured(**changes) -> pd.DataFrame:
    params = {"split": "train", "title_join": " ", "dev_queries": 4, "inverse_temperature": 2.0} | changes
    inputs = {"model": "init", "source": "source", "mined": "mined", "clusters": "clusters"}
    inputs = {name: f"results/{folder}/manifest.json" for name, folder in inputs.items()}
    output = {"losses": "results/losses.parquet"}
    run_spec(StageSpec("measure_clusters", 1, {"model": "tiny", "stage": "ep1"}, inputs, output, params, 13, 1))
    return pq.read_table("results/losses.parquet").to_pandas()


def test_losses_are_of_the_queries_that_training_holds_out(project):
    frame = measured()
    assert set(frame["query"]) == held_out([f"q{i}" for i in range(QUERIES)], 4, 13) and len(frame) == 4
    assert frame["cluster"].tolist() == [int(query[1:]) % 3 for query in frame["query"]]
    examples = load_examples(project / "results/mined", project / "results/source", " ")
    model = BiEncoder.load(project / "results/init").eval()

    def vector(text: str, side: str) -> np.ndarray:
        return model.encode(model.pad(model.tokenize([text], side)), side).detach().double().numpy()[0]

    rows = pc.index_in(pa.array(frame["query"]), value_set=examples.queries).to_pylist()
    for row, told_of in zip(rows, frame.itertuples(), strict=True):
        numbers = np.r_[examples.positives[row][0], examples.negatives[row]]
        query = vector(examples.texts_of_queries(np.array([row]))[0], "query")
        scores = 2 * np.array([vector(text, "document") @ query for text in examples.texts_of_documents(numbers)])
        assert told_of.loss == pytest.approx(np.log(np.exp(scores - scores[0]).sum()), abs=1e-4)
        assert told_of.reciprocal_rank == pytest.approx(1 / (1 + (scores[1:] > scores[0]).sum()))


def test_held_out_queries_that_were_not_mined_are_an_error(project):
    kept = [f"q{i}" for i in range(QUERIES) if f"q{i}" not in held_out([f"q{i}" for i in range(QUERIES)], 4, 13)]
    table = pq.read_table("results/mined/mined.parquet")
    pq.write_table(table.filter(pc.is_in(table["query"], pa.array(kept))), "results/mined/mined.parquet")
    seal(project / "results/mined")
    with pytest.raises(CollectionError, match="none of the 4 held-out queries has a positive and a negative"):
        measured()


# ---- the plan --------------------------------------------------------------------------------------------------
def test_every_seed_is_measured_with_its_own_model_and_clusters(plan):
    files = plan.inputs("build_item")(SimpleNamespace(paper="lab", item="idro-clusters"))["losses"]
    ends = ("", "-seed14", "-seed15")
    names = [f"coco-dr{end}{variant}" for end in ends for variant in ("+erm", "+tau0.3", "+balanced", "+alpha-only")]
    assert files == [paths.held_out_clusters(name, "shared", "ep1") for name in names]
    wc = SimpleNamespace(model="coco-dr-seed14+erm", scope="shared", stage="ep1")
    assert plan.inputs("measure_clusters")(wc)["clusters"] == paths.clusters("coco-dr-seed14", "shared", "ep1")
    asked = json.loads(plan.settings("measure_clusters")(wc))
    assert asked["seed"] == 14 and asked["settings"]["inverse_temperature"] == 20.0


def test_a_method_without_clusters_has_no_worst_one(root):
    item = item_of(
        {"kind": "worst_cluster", "title": "x", "methods": ["coco-dr+no-idro"], "baseline": "coco-dr+erm"}, "x"
    )
    with pytest.raises(ConfigError, match=r"coco-dr\+no-idro.*has no query clusters"):
        read_item(Plan(load_bench(root, {"scale": "lab"})), item, [])


# ---- the item --------------------------------------------------------------------------------------------------
def test_the_worst_cluster_is_each_methods_own(tmp_path):
    made = compared(tmp_path)
    rows = made.frame.set_index(["method", "measure"])
    assert rows.loc[("plain", "all"), "loss"] == pytest.approx((4 + 1.5) / 2)
    assert rows.loc[("plain", "worst"), "loss"] == pytest.approx((6 + 2) / 2)
    worst = rows.loc[("ours", "worst")]
    assert worst[["difference_seed13", "difference_seed14"]].tolist() == pytest.approx([-2, 1])
    assert worst["difference"] == pytest.approx(-0.5) and worst["difference_low"] < -0.5 < worst["difference_high"]
    assert rows.loc[("ours", "all"), "difference"] == pytest.approx(0.25)
    assert made.shown[0] == ["", "all held-out queries", "the cluster with the largest loss"]
    assert [row[0] for row in made.shown[1]] == ["Plain", "Ours", "difference", "95 %", "seed 13", "seed 14"]
    assert "4 queries of s that training holds out, in 2 clusters" in made.notes[0]


def test_losses_of_other_clusters_are_refused(tmp_path):
    files = [file_of(tmp_path, *key, values) for key, values in LOSSES.items()]
    table = pq.read_table(files[1])
    pq.write_table(table.set_column(1, "cluster", pa.array([0, 4, 4, 4])), files[1])
    stage, settings = told(ITEM, {"losses": files}, tmp_path, methods=tuple(BOTH), values=tuple(SEEDS))
    with pytest.raises(ArtifactError, match="of other queries or clusters"):
        worst_cluster(stage, settings, item_of(settings.item, "x"))


def test_a_figure_is_drawn(tmp_path):
    inputs = {"losses": [file_of(tmp_path, *key, values) for key, values in LOSSES.items()]}
    drawn(tmp_path, inputs, ITEM, methods=tuple(BOTH), values=tuple(SEEDS))
