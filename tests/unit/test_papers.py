"""Items of papers: their settings, and the numbers that their tables tell."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.paper_helpers import Told, scores, told

from zerodr.config.base import canonical_json
from zerodr.config.load import load_bench
from zerodr.config.papers import KINDS, item_of, read_paper
from zerodr.errors import ArtifactError, ConfigError
from zerodr.evaluation.significance import mean_interval
from zerodr.papers.coco_dr import report as item_queries
from zerodr.plan import Plan, paths
from zerodr.plan.items import find_item, item_collections, items_of
from zerodr.reporting import item_tables, items
from zerodr.reporting.claims import claim
from zerodr.reporting.item_inputs import METRIC, correlation, gain
from zerodr.reporting.panels import panels, wrapped

GOLD = {"bm25": [0.2, 0.4, 0.6, 0.8], "ours": [0.4, 0.6, 0.6, 0.9]}


METHODS = {"kind": "methods", "methods": ["ours", "bm25"], "baseline": "bm25"}


def test_methods_are_tested_against_the_baseline(tmp_path):
    files = [scores(tmp_path, name, "a", values) for name, values in GOLD.items()]
    stage, settings = told(METHODS, {"per_query": files}, tmp_path)
    made = item_tables.methods(stage, settings, item_of(settings.item, "x"))
    ours = made.frame.set_index("method").loc["ours"]
    assert ours["difference"] == pytest.approx(0.125)
    assert ours["p_t"] == 0.25  # three wins and a tie: two of eight signs; t = 2.611 alone would say .0796
    assert ours["p_t_holm"] == ours["p_t"] and np.isnan(made.frame.set_index("method").loc["bm25", "p_t_holm"])
    assert made.shown[1][0] == ["Ours", "0.6250", "0.6250"]


def test_forums_of_one_column_count_as_one_in_the_mean(tmp_path, root):
    gains = {"a": 0.1, "b": 0.2, "c": 0.6}
    files = [scores(tmp_path, "bm25", name, [0.2] * 4) for name in gains]
    files += [scores(tmp_path, "ours", name, [0.2 + gain] * 4) for name, gain in gains.items()]
    seeds = ({"seed": 13, "names": {"ours": "ours", "bm25": "bm25"}, "drawing": []},)
    for item, build in ((METHODS, item_tables.methods), (METHODS | {"kind": "claim", "methods": ["ours"]}, claim)):
        stage, settings = told(item, {"per_query": files}, tmp_path, collections=(*gains,), values=seeds)
        settings = settings.model_copy(update={"aggregates": {"a": "forums", "b": "forums"}})
        made = build(stage, settings, item_of(settings.item, "x"))
        (row,) = [line for line in made.shown[1] if line[0] == "Ours"]
        assert row[-1] == "0.5750"  # (.35 + .8) / 2
        assert "mean: the 2 collections of forums count as one, by their mean" in made.notes
    assert made.frame.set_index("collection").loc["mean", "difference"] == pytest.approx((0.15 + 0.6) / 2)
    plan = Plan(load_bench(root, {"scale": "paper"}))
    planned = json.loads(plan.settings("build_item")(SimpleNamespace(paper="coco-dr", item="table1")))["settings"]
    assert len(planned["aggregates"]) == 12 and {*planned["aggregates"].values()} == {"cqadupstack"}


def test_the_files_of_an_item_agree_and_are_the_same_twice(tmp_path):
    files = [scores(tmp_path, name, "a", values) for name, values in GOLD.items()]
    stage, settings = told(METHODS, {"per_query": files}, tmp_path)
    items.build_item(stage)
    first = {name: (tmp_path / name).read_bytes() for name in ("table", "markdown", "html")}
    items.build_item(stage)
    assert first == {name: (tmp_path / name).read_bytes() for name in first}
    frame = pd.read_csv(tmp_path / "table", sep="\t", comment="#")
    assert frame[METRIC].tolist() == [0.625, 0.5]
    assert b"A title" in first["html"] and b"0.6250" in first["markdown"]
    stage.inputs["table"] = [tmp_path / "table"]
    item_tables.plot_item(stage)
    picture = (tmp_path / "svg").read_bytes()
    item_tables.plot_item(stage)
    assert picture == (tmp_path / "svg").read_bytes() and (tmp_path / "png").stat().st_size > 5000


def test_a_figure_is_below_its_own_table_in_the_order_of_the_items(tmp_path):
    names = ["table1", "figure4", "table2"]
    for name in names:
        (tmp_path / f"{name}.md").write_text(f"## {name}\n")
    files = {"tables": [tmp_path / f"{name}.md" for name in names], "figures": [tmp_path / "figure4.svg"]}
    written = {"label": "Paper", "items": {name: name == "figure4" for name in names}, "scale": "mini"}
    written["left_out"] = [("results/p/table3.html", "Another")]
    items.build_paper(Told(files, tmp_path, json.loads(canonical_json(written))))
    page = (tmp_path / "html").read_text()
    places = [page.index(text) for text in ("<h2>table1", "<h2>figure4", 'src="figure4.svg"', "<h2>table2")]
    assert places == sorted(places)
    assert "Not on this page at scale mini" in page and "results/p/table3.html" in page


def test_texts_of_a_figure_fit_its_width():
    figure, _ = panels(1)
    title = "Source and target in the space of ANCE (the right half of the paper's figure)"
    drawn = figure.suptitle(wrapped(figure, title, 10), fontsize=10)
    assert drawn.get_window_extent().width <= figure.bbox.width and drawn.get_text().split() == title.split()


def test_gains_need_the_same_queries():
    one, other = pd.Series([0.5, 0.5], ["q1", "q2"]), pd.Series([0.5, 0.5], ["q1", "q3"])
    with pytest.raises(ArtifactError, match="different queries"):
        gain(one, other, 10, 0)


def test_a_measure_after_a_stage_has_the_interval_of_its_evaluation(tmp_path):
    few, many = [0.2, 0.4, 0.6, 0.8], np.random.default_rng(0).uniform(size=60)
    files = [scores(tmp_path, "ours@ep0", name, list(values)) for name, values in (("a", few), ("b", many))]
    item = {"kind": "episodes", "methods": ["ours"]}
    stage, settings = told(item, {"per_query": files}, tmp_path, collections=("a", "b"), methods=("ours@ep0",))
    made = item_tables.episodes(stage, settings, item_of(settings.item, "x")).frame
    low, high = mean_interval(many[:, None], 200, 13, 0.0)
    spans = made[[f"{METRIC}_low", f"{METRIC}_high"]].to_numpy().tolist()
    assert spans == [[0.0, 1.0], [low[0], high[0]]], "four queries leave all of a measure's range open"


def test_correlation_tells_its_points():
    assert correlation([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], "x") == (
        "x: Spearman +0.80 over 4 collections (p 0.33)"  # 8 of 24 orders are as far from 0
    )
    assert correlation([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], "x").endswith("(p 0.083)")  # 2 of 24: never 0
    assert "fewer than 3" in correlation([1.0, 2.0], [1.0, 2.0], "x")


def test_similarity_is_sorted_by_likeness(tmp_path):
    files = [scores(tmp_path, name, where, values) for name, values in GOLD.items() for where in "ab"]
    facts = []
    for where, value in (("a", 0.1), ("b", 0.3)):
        path = tmp_path / f"{where}.json"
        likeness = {"corpus": value, "queries": value, "query_types": value}
        path.write_text(json.dumps({"collection": where, "similarity": likeness}))
        facts.append(path)
    item = {"kind": "similarity", "methods": ["ours"], "baseline": "bm25"}
    stage, settings = told(item, {"per_query": files, "statistics": facts}, tmp_path, collections=("a", "b"))
    made = item_tables.similarity(stage, settings, item_of(settings.item, "x"))
    assert made.frame["collection"].tolist() == ["b", "a"]
    assert made.frame["gain.ours"].tolist() == pytest.approx([0.125, 0.125])


def test_forums_of_one_column_are_one_point_of_a_correlation(tmp_path):
    rows = {"a": (0.1, 0.1), "b": (0.2, 0.2), "c": (0.3, 0.3), "d": (0.4, 0.05), "e": (0.5, 0.02)}
    files = [scores(tmp_path, "bm25", where, [0.2] * 4) for where in rows]
    files += [scores(tmp_path, "ours", where, [0.2 + gain] * 4) for where, (_, gain) in rows.items()]
    facts = []
    for where, (value, _) in rows.items():
        facts.append(tmp_path / f"{where}.json")
        likeness = dict.fromkeys(("corpus", "queries", "query_types"), value)
        facts[-1].write_text(json.dumps({"collection": where, "similarity": likeness}))
    item = {"kind": "similarity", "methods": ["ours"], "baseline": "bm25"}
    stage, settings = told(item, {"per_query": files, "statistics": facts}, tmp_path, collections=(*rows,))
    settings = settings.model_copy(update={"aggregates": dict.fromkeys("abc", "forums")})
    made = item_tables.similarity(stage, settings, item_of(settings.item, "x"))
    assert "similarity of documents and gain of Ours: Spearman -1.00 over 3 collections (p 0.33)" in made.notes
    assert made.notes[-1] == "correlations: the 3 collections of forums count as one, by their mean"
    assert len(made.frame) == 5


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
        "clusters": [folder / "clusters"],
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label: P\nitems: {t: {kind: method, title: x}}", "did you mean methods"),
        (
            "label: P\nitems: {t: {kind: methods, title: x, baseline: b, methods: [a], colour: 3}}",
            "unknown key 'colour'",
        ),
        ("label: P\nitems: {all: {kind: methods, title: x, baseline: b, methods: [a]}}", "can't be 'all'"),
        ("items: {}", "'label' is missing"),
        (
            "label: P\nitems: {t: {kind: claim, title: x, baseline: b, methods: [a, c], controls: {c: d}, "
            "pooled: true}}",
            "with one control",
        ),
        (
            "label: X\nreference: x.tsv\nitems:\n  one: {kind: sizes, title: X, methods: [dpr]}\n",
            "give one the key `published`",
        ),
    ],
)
def test_mistakes_in_a_paper_are_named(tmp_path, text, message):
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ConfigError, match="config/papers/p.yaml") as error:
        read_paper(tmp_path / "p.yaml")
    assert message in str(error.value)


def test_every_kind_is_made_and_all_but_texts_are_drawn():
    assert set(KINDS) == set(items.tables())
    texts = {
        "neighbours",
        "nearest_queries",
        "parameters",
        "module_losses",
        "settings",
        "statistics",
        "cases",
        "latency",
        "hours",
        "memories",
        "mixtures",
    }
    assert set(item_tables.figures()) == set(KINDS) - texts


def test_items_apart_are_not_on_the_page(root):
    plan = Plan(load_bench(root, {}))
    assert "table3" in plan.bench.papers["modir"].items and "table3" not in items_of(plan, "modir")
    assert not any("table3" in path for path in plan.inputs("build_paper")(SimpleNamespace(paper="modir"))["figures"])
    told = json.loads(plan.settings("build_paper")(SimpleNamespace(paper="modir")))["settings"]
    assert "table3" not in told["items"] and "results/modir/table3.html" in str(told["left_out"])


def test_an_item_says_which_collections_stand_in_for_its_papers(root):
    plan = Plan(load_bench(root, {"collections": ("nfcorpus",), "source": "squad-v1.1"}))
    remarks = {}
    for name in ("table1", "table2"):
        told = json.loads(plan.settings("build_item")(SimpleNamespace(paper="berm", item=name)))["settings"]
        remarks[name] = told["remarks"][0]
    assert remarks["table1"] == "without 13 of the 14 collections of the paper's item"
    assert remarks["table2"] == "NFCorpus: in place of the collections of the paper's item"


def test_items_on_other_columns_are_on_the_page_of_scale_paper_alone(root):
    small, large = (items_of(Plan(load_bench(root, {"scale": scale})), "ddr") for scale in ("lab", "paper"))
    assert {"table4-lotte", "table4-zh"} <= set(large) - set(small) and "table4" in small


def test_items_of_the_papers_plan_what_they_read(root):
    plan = Plan(load_bench(root, {"collections": ("scifact",), "source": "nfcorpus"}))
    for name in items_of(plan, "coco-dr"):
        assert plan.inputs("build_item")(SimpleNamespace(paper="coco-dr", item=name))
    inputs = plan.inputs("build_item")(SimpleNamespace(paper="coco-dr", item="figure5b"))
    assert paths.space("coco-dr@init", "shared", "scifact") in inputs["spaces"]
    with pytest.raises(ConfigError, match="figure5a"):
        find_item(plan, "coco-dr", "figur5a")


def test_a_space_is_measured_on_what_pretraining_holds_out(root):
    plan = Plan(load_bench(root, {"scale": "lab"}))
    wc = SimpleNamespace(model="coco-dr@coco", collection="scifact")
    told = json.loads(plan.settings("measure_space")(wc))["settings"]
    assert told["documents"] == plan.chains.trained("coco-dr").chain["coco"].training.dev_queries == 200


def test_the_source_is_no_target(root):
    plan = Plan(load_bench(root, {"collections": ("nfcorpus",), "source": "nfcorpus"}))
    with pytest.raises(ConfigError, match="source is no target"):
        item_collections(plan, "coco-dr", "table2")
