"""Losses on judged queries by cluster: the stage, what is planned, and the item that compares methods."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tests.unit.paper_helpers import drawn, told
from tests.unit.training_helpers import QUERIES, lay_out, seal

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import read_qrels, read_texts, split_queries
from zerodr.config.load import load_bench
from zerodr.config.papers import item_of
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.papers.coco_dr import measures as module
from zerodr.papers.coco_dr.cluster_queries import cluster
from zerodr.papers.coco_dr.report_clusters import worst_cluster
from zerodr.papers.coco_dr.settings import ClusterSettings
from zerodr.plan import Plan, paths
from zerodr.plan.items import read_item

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
    clusters, generator = tmp_path / "results/clusters", np.random.default_rng(2)
    clusters.mkdir()
    np.save(clusters / "centroids.npy", generator.normal(size=(3, 8)).astype(np.float32))
    tell_metric(clusters, "l2")
    np.save(tmp_path / "results/queries.npy", generator.normal(size=(QUERIES, 8)).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tell_metric(clusters: Path, metric: str) -> None:
    (clusters / "statistics.json").write_text(json.dumps({"metric": metric}))
    seal(clusters)


def measured(**changes) -> pd.DataFrame:
    params = {"split": "train", "title_join": " ", "inverse_temperature": 2.0} | changes
    inputs = {name: f"results/{name}/manifest.json" for name in ("source", "clusters")}
    inputs |= {"model": "results/init/manifest.json", "queries": "results/queries.npy"}
    output = {"losses": "results/losses.parquet"}
    Path(output["losses"]).unlink(missing_ok=True)
    run_spec(StageSpec("measure_clusters", 2, {"model": "tiny", "stage": "ep1"}, inputs, output, params, None, 1))
    return pq.read_table("results/losses.parquet").to_pandas()


def test_a_loss_is_of_a_relevant_document_among_those_of_all_queries(project):
    frame = measured()
    source = project / "results/source"
    qrels = read_qrels(source, "train")
    relevant = qrels[qrels["grade"] > 0].groupby("query")["document"].agg(list)
    texts, asked = read_texts(source, set(sum(relevant, []))), split_queries(source, "train").set_index("id")["text"]
    assert frame["query"].tolist() == [f"q{i}" for i in range(QUERIES)] and len(texts) == QUERIES + 2
    model = BiEncoder.load(project / "results/init").eval()

    def vector(text: str, side: str) -> np.ndarray:
        return model.encode(model.pad(model.tokenize([text], side)), side).detach().double().numpy()[0]

    documents = {name: vector(" ".join(filter(None, text)), "document") for name, text in texts.items()}
    for row in frame.itertuples():
        first, *others = relevant[row.query]
        query = vector(asked[row.query], "query")
        scores = {name: 2 * query @ found for name, found in documents.items() if name not in others}
        assert row.loss == pytest.approx(np.logaddexp.reduce(list(scores.values())) - scores[first], abs=1e-4)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_a_query_is_of_the_cluster_that_clustering_puts_it_in(project, metric):
    vectors = np.load("results/queries.npy")
    made = cluster(vectors, ClusterSettings(count=3, metric=metric), 13)
    np.save("results/clusters/centroids.npy", made.centroids)
    tell_metric(project / "results/clusters", metric)
    assert measured()["cluster"].tolist() == made.assigned.tolist() and len(set(made.assigned)) == 3


def test_a_query_is_of_the_group_that_its_source_gives(project):
    clusters, source = project / "results/clusters", project / "results/source"
    (clusters / "statistics.json").write_text(json.dumps({"metric": "l2", "given": True, "groups": ["a", "c"]}))
    seal(clusters)
    lines = [f"q{number}\t{'abc'[number % 3]}" for number in range(QUERIES)]
    (source / "groups.tsv").write_text("\n".join(["query\tgroup", *lines]) + "\n")
    seal(source)
    frame = measured()
    numbers = frame["query"].str[1:].astype(int) % 3
    assert len(frame) == QUERIES * 2 // 3 and frame["cluster"].tolist() == (numbers == 2).astype(int).tolist()


def test_of_many_queries_the_same_are_always_taken(project, monkeypatch):
    whole = measured().set_index("query")
    monkeypatch.setattr(module, "MOST", 12)
    some, again = measured(), measured()
    assert len(some) == 12 and some.equals(again)
    assert some["cluster"].tolist() == whole.loc[some["query"], "cluster"].tolist()
    assert (some["loss"].to_numpy() < whole.loc[some["query"], "loss"].to_numpy()).all(), "among fewer documents"


def test_vectors_of_other_queries_are_an_error(project):
    np.save("results/queries.npy", np.zeros((3, 8), np.float32))
    with pytest.raises(ArtifactError, match="a row for each of the 48 queries of source/train"):
        measured()


def test_a_split_without_a_relevant_document_is_an_error(project):
    np.save("results/queries.npy", np.zeros((1, 8), np.float32))
    with pytest.raises(CollectionError, match="source/none: no query has a relevant document"):
        measured(split="none")


# ---- the plan --------------------------------------------------------------------------------------------------
def test_every_seed_is_measured_with_its_own_model_and_clusters(plan):
    files = plan.inputs("build_item")(SimpleNamespace(paper="lab", item="idro-clusters"))["losses"]
    ends = ("", "-seed14", "-seed15")
    names = [f"coco-dr{end}{variant}" for end in ends for variant in ("+erm", "+tau0.3", "+balanced", "+alpha-only")]
    assert files == [paths.cluster_losses(name, "shared", "ep1") for name in names]
    wc = SimpleNamespace(model="coco-dr-seed14+erm", scope="shared", stage="ep1")
    assert plan.inputs("measure_clusters")(wc)["clusters"] == paths.clusters("coco-dr-seed14", "shared", "ep1")
    asked = json.loads(plan.settings("measure_clusters")(wc))
    assert asked["settings"]["split"] == "dev" and asked["settings"]["inverse_temperature"] == 20.0


def test_nearest_clusters_are_of_every_seed(plan):
    """Each seed's clusters, both trainings' losses, queries by the model before, gains on the source: in one order."""
    files = plan.inputs("build_item")(SimpleNamespace(paper="coco-dr", item="figure5c"))
    seeds, variants = ("coco-dr", "coco-dr-seed14", "coco-dr-seed15"), ("", "+no-idro")
    assert files["clusters"] == [paths.clusters(seed, "shared", "ep1") for seed in seeds]
    pairs = [(f"{seed}@ep1", seed + variant) for seed in seeds for variant in variants]
    assert files["losses"] == [paths.training_losses(*pair) for pair in pairs]
    by_seed = np.array_split(files["queries"], 3)
    assert len(by_seed[0]) == len(files["collections"])
    assert [{name.split("/")[2] for name in of} for of in by_seed] == [{f"{seed}@ep0"} for seed in seeds]
    assert len(files["source_per_query"]) == 6


@pytest.fixture(scope="module")
def varied(root, tmp_path_factory):
    """The bench with COCO-DR that learns from the evaluated split, alone and after DPR on the other."""
    project = Path(shutil.copytree(root / "config", tmp_path_factory.mktemp("varied") / "config")).parent
    (project / "resources").symlink_to(root / "resources")
    on_dev = {"source_split": "dev"}
    file = project / "config/methods/coco-dr.yaml"
    recipe = yaml.safe_load(file.read_text())
    for variant, settings in {
        "dev": on_dev,
        "both": on_dev | {"encoder": {"init": "dpr/ep0", "revision": None}},
    }.items():
        recipe["variants"][variant] = {"label": variant, "scales": {"lab": {"settings": settings}}}
    file.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return Plan(load_bench(project, {"scale": "lab", "seeds": "14"}))


@pytest.mark.parametrize(
    ("method", "baseline", "message"),
    [
        ("coco-dr+no-idro", "coco-dr+erm", r"coco-dr\+no-idro@ep1: .*has no query clusters"),
        ("coco-dr+erm", "bm25-flat", "bm25-flat: it is not trained"),
        ("coco-dr+k10", "coco-dr+erm", r"coco-dr\+k10: its clusters are not those of coco-dr\+erm"),
        ("coco-dr+no-coco", "coco-dr+erm", r"coco-dr\+no-coco: its clusters"),
        ("coco-dr-seed14+erm", "coco-dr+erm", r"method coco-dr-seed14\+erm: has a seed of its own, 14"),
        ("coco-dr+dev", "coco-dr+erm", r"coco-dr\+dev: its clusters, queries, split are not those of coco-dr\+erm"),
        ("coco-dr+both", "coco-dr+erm", r"coco-dr\+both@ep1.*learned from queries of squad-v1.1/dev, train"),
    ],
)
def test_methods_that_can_not_be_compared_are_refused(varied, method, baseline, message):
    item = item_of({"kind": "worst_cluster", "title": "x", "methods": [method], "baseline": baseline}, "x")
    with pytest.raises(ConfigError, match=message):
        read_item(varied, item, [])


def test_clusters_of_a_stage_without_them_are_refused(plan):
    wc = SimpleNamespace(model="coco-dr+no-idro", scope="shared", stage="ep1")
    with pytest.raises(ConfigError, match=r"coco-dr\+no-idro@ep1.*has no query clusters"):
        plan.inputs("measure_clusters")(wc)


# ---- the item --------------------------------------------------------------------------------------------------
def test_the_worst_cluster_is_each_methods_own(tmp_path):
    made = compared(tmp_path)
    rows = made.frame.set_index(["method", "measure"])
    assert rows.loc[("plain", "all"), "loss"] == pytest.approx((4 + 1.5) / 2)
    assert rows.loc[("plain", "worst"), "loss"] == pytest.approx((6 + 2) / 2)
    worst = rows.loc[("ours", "worst")]
    assert worst[["difference_seed13", "difference_seed14"]].tolist() == pytest.approx([-2, 1])
    assert worst["difference"] == pytest.approx(-0.5) and worst["difference_low"] <= -0.5 <= worst["difference_high"]
    assert rows.loc[("ours", "all"), "difference"] == pytest.approx(0.25)
    assert made.shown[0] == ["", "all queries", "worst cluster"]
    assert [row[0] for row in made.shown[1]] == ["Plain", "Ours", "difference", "95 %", "seed 13", "seed 14"]
    assert "4 judged queries of s that no stage of these recipes learned from, in 2 clusters" in made.notes[0]


def test_a_cluster_that_is_worst_by_chance_does_not_count(tmp_path):
    """On one half cluster 0 is the worst and on the other 4: each is read on the half that did not choose it."""
    chance = {key: [9.0, 1.0, 1.0, 9.0] for key in LOSSES}
    rows = compared(tmp_path, chance).frame.set_index(["method", "measure"])
    assert rows.loc[("plain", "worst"), "loss"] == pytest.approx(1) and rows.loc[("plain", "all"), "loss"] == 5


def test_intervals_hold_the_truth_where_a_method_levels_clusters(tmp_path):
    """Eight clusters of 60 queries; the control is worse by .5 on one, the method by nothing: it gains .5."""
    generator, held = np.random.default_rng(3), 0
    queries, clusters = [f"q{i}" for i in range(480)], np.arange(480) % 8
    for run in range(20):
        shared, gained = generator.normal(0, 0.9, len(clusters)), generator.normal(0, 0.5, len(clusters))
        files = []
        for number in range(6):  # three seeds of both; what a query gains is much the same with each
            control = (gained + 0.5 * (clusters == 5)) * (number % 2 == 0)
            losses = 3 + shared + generator.normal(0, 0.2, len(clusters)) + control
            path = tmp_path / f"{run}-{number}.parquet"
            pq.write_table(pa.table({"query": queries, "cluster": clusters, "loss": losses}), path)
            files.append(path)
        seeds = [{**SEEDS[0], "seed": seed} for seed in (13, 14, 15)]
        stage, settings = told(ITEM, {"losses": files}, tmp_path, methods=tuple(BOTH), values=tuple(seeds))
        worst = worst_cluster(stage, settings, item_of(settings.item, "x")).frame.iloc[-1]
        held += worst["difference_low"] <= -0.5 <= worst["difference_high"]
    assert held >= 18


def test_an_interval_over_queries_is_no_narrower_for_more_seeds_that_agree(tmp_path):
    generator = np.random.default_rng(4)
    columns = {"query": [f"q{i}" for i in range(200)], "cluster": np.arange(200) % 4}
    for number, method in enumerate(BOTH):
        pq.write_table(pa.table(columns | {"loss": generator.normal(3 - number, 1, 200)}), tmp_path / method)
    widths = []
    for count in (1, 3):
        files = [tmp_path / method for _ in range(count) for method in BOTH]
        seeds = tuple({**SEEDS[0], "seed": 13 + number} for number in range(count))
        stage, settings = told(ITEM, {"losses": files}, tmp_path, methods=tuple(BOTH), values=seeds)
        frame = worst_cluster(stage, settings, item_of(settings.item, "x")).frame
        widths.append((frame["difference_high"] - frame["difference_low"]).tolist())
    assert widths[0] == pytest.approx(widths[1]) and min(widths[0][2:]) > 0.1


def test_queries_of_another_seed_are_refused(tmp_path):
    files = [file_of(tmp_path, *key, values) for key, values in LOSSES.items()]
    for path in files[2:]:
        table = pq.read_table(path)
        pq.write_table(table.set_column(0, "query", pa.array(["q0", "q1", "q2", "q9"])), path)
    stage, settings = told(ITEM, {"losses": files}, tmp_path, methods=tuple(BOTH), values=tuple(SEEDS))
    with pytest.raises(ArtifactError, match="of other queries for another seed"):
        worst_cluster(stage, settings, item_of(settings.item, "x"))


def test_losses_of_other_clusters_are_refused(tmp_path):
    files = [file_of(tmp_path, *key, values) for key, values in LOSSES.items()]
    table = pq.read_table(files[1])
    pq.write_table(table.set_column(1, "cluster", pa.array([0, 4, 4, 4])), files[1])
    stage, settings = told(ITEM, {"losses": files}, tmp_path, methods=tuple(BOTH), values=tuple(SEEDS))
    with pytest.raises(ArtifactError, match="of other queries or clusters"):
        worst_cluster(stage, settings, item_of(settings.item, "x"))


def test_clusters_of_one_query_each_have_no_worst_one(tmp_path):
    files = [tmp_path / f"{number}.parquet" for number in range(len(LOSSES))]
    for path in files:
        pq.write_table(pa.table({"query": ["a", "b"], "cluster": [0, 4], "loss": [1.0, 2.0]}), path)
    stage, settings = told(ITEM, {"losses": files}, tmp_path, methods=tuple(BOTH), values=tuple(SEEDS))
    with pytest.raises(ArtifactError, match=r"no cluster with two of 2 queries.*more judged queries"):
        worst_cluster(stage, settings, item_of(settings.item, "x"))


def test_a_figure_is_drawn(tmp_path):
    inputs = {"losses": [file_of(tmp_path, *key, values) for key, values in LOSSES.items()]}
    drawn(tmp_path, inputs, ITEM, methods=tuple(BOTH), values=tuple(SEEDS))
