"""Items of papers: their settings, and the numbers that their tables tell."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from tests.unit.paper_helpers import Told, scores, told

from zerodr.config.base import canonical_json
from zerodr.config.load import load_bench
from zerodr.config.papers import KINDS, item_of, read_paper
from zerodr.errors import ArtifactError, ConfigError
from zerodr.evaluation.significance import mean_interval
from zerodr.plan import Plan, paths
from zerodr.plan.items import find_item, item_collections, items_of, read_item
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


@pytest.mark.parametrize("more", [{"measure": "recall_20"}, {"beside": ["P_5", "recall_20"]}])
def test_a_measure_that_no_evaluation_computes_is_refused_when_an_item_is_planned(root, more):
    written = METHODS | {"title": "x", "methods": ["dpr"], "baseline": "bm25-flat"} | more
    if "measure" in more:
        written["kind"] = "claim"
    item, words = item_of(written, "x"), {"measures": ["map", "P_5"]}
    with pytest.raises(ConfigError, match=r"measure recall_20: is computed only .*measures=\[map,P_5,recall_20\]"):
        read_item(Plan(load_bench(root, words)), item, ["nfcorpus"])
    assert read_item(Plan(load_bench(root, {"measures": ["map", "P_5", "recall_20"]})), item, ["nfcorpus"]).ranked


@pytest.mark.parametrize("kind", ["claim", "methods"])
def test_methods_are_not_compared_by_what_is_not_better_where_it_is_more(kind):
    written = {"kind": kind, "title": "x", "methods": ["ours"], "baseline": "bm25"}
    with pytest.raises(ConfigError, match="hole_pair_10 compares no methods"):
        item_of(written | {"measure": "hole_pair_10"}, "x")


def test_a_measure_below_the_end_of_rankings_is_refused_in_items_too(root):
    plan = Plan(load_bench(root))
    shallow = plan.protocol("standard").model_copy(update={"depth": 100})
    plan.bench.protocols["standard"] = shallow
    written = {"kind": "claim", "title": "x", "methods": ["dpr"], "baseline": "bm25-flat", "measure": "recall_1000"}
    with pytest.raises(ConfigError, match="recall_1000: looks for documents below rank 100, .*of protocol standard"):
        read_item(plan, item_of(written, "x"), ["nfcorpus"])


def test_a_control_is_no_method_of_its_own_claim():
    """Its tests against itself counted in Holm's correction: p .03 of another method became .06."""
    written = {"kind": "claim", "title": "x", "methods": ["ours", "bm25"], "baseline": "bm25"}
    with pytest.raises(ConfigError, match="bm25 is the control"):
        item_of(written, "x")
    assert item_of(written | {"controls": {"bm25": "ours"}, "methods": ["bm25"]}, "x").control("bm25") == "ours"


@pytest.mark.parametrize(("name", "why"), [("splade-pp-ed", "published numbers"), ("cross-encoder", "pairs of texts")])
def test_an_item_that_compares_what_ranks_nothing_is_refused_by_its_name(root, name, why):
    item = item_of({"kind": "claim", "title": "x", "methods": [name], "baseline": "dpr"}, "x")
    with pytest.raises(ConfigError, match=f"lab: mine: method '{name}': .*{why}"):
        read_item(Plan(load_bench(root)), item, ["nfcorpus"], "lab: mine")
