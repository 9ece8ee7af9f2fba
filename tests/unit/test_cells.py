"""Values that papers print next to ours: what is shown where, what is ours of it, and the verdict."""

from __future__ import annotations

import importlib.util
import json
from types import SimpleNamespace

import pandas as pd
import pytest
from tests.unit.paper_helpers import scores, told

from zerodr.config.load import load_bench
from zerodr.errors import ArtifactError
from zerodr.plan import Plan
from zerodr.plan.published import find_item, item_collections
from zerodr.plan.reporting import remark_of
from zerodr.reporting import items
from zerodr.reporting.cells import CellParams, compare_cells, judge, number, read_cells, shown_cells, tolerance_of
from zerodr.reporting.published import cells_section, cells_tsv, title_of

CELLS = {"modir": 191, "moma": 593, "berm": 404, "coco-dr": 804, "ddr": 448}
HEADER = "item\trow\tcolumn\tmetric\tvalue\tnote\n"


@pytest.fixture(scope="module")
def plan(root) -> Plan:
    return Plan(load_bench(root, {"scale": "paper"}))


def params(plan: Plan, paper: str, item: str) -> dict:
    return json.loads(plan.settings("build_item")(SimpleNamespace(paper=paper, item=item)))["settings"]


@pytest.mark.parametrize("paper", CELLS)
def test_every_value_of_a_table_is_shown_by_an_item(root, plan, paper):
    cells = read_cells(root / plan.bench.papers[paper].reference)
    assert len(cells) == CELLS[paper]
    shown = pd.Index([])
    for item, written in plan.bench.papers[paper].items.items():
        if (told := params(plan, paper, item)["published"]) is not None:
            here = shown_cells(cells, CellParams.model_validate(told))
            assert len(here), f"{item} shows nothing"
            if told["cells"] is None and not written.repeats:
                assert not len(shown.intersection(here.index)), f"{item} repeats values of another item"
            shown = shown.union(here.index)
    left = set(cells.loc[cells.index.difference(shown), "item"])
    assert not left


def test_rows_that_a_paper_names_exist_in_its_tables(root, plan):
    for paper in filter(lambda paper: paper.reference, plan.bench.papers.values()):
        assert set(paper.rows) <= set(read_cells(root / paper.reference)["row"]), paper.label


def settings(**changed: object) -> CellParams:
    facts = {
        "table": "table1",
        "rows": [["Ours", "dense"], ["BM25", "bm25"]],
        "whole": True,
        "claims": [],
        "columns": ["a", "group"],
        "members": {"a": ["a"], "group": ["b", "c"]},
        "averages": {"avg": ["a", "group"]},
        "kinds": {"dense": "trained", "bm25": "lexical"},
        "baseline": "bm25",
        "protocol": "standard",
        "as_published": True,
    }
    return CellParams.model_validate(facts | changed)


def cell(row: str, column: str, value: str, metric: str = "ndcg_cut_10", note: str = "") -> pd.DataFrame:
    return pd.DataFrame([["table1", row, column, metric, value, note]], columns=HEADER.strip().split("\t"))


OURS = {("dense", name, "ndcg_cut_10"): value for name, value in (("a", 0.5), ("b", 0.2), ("c", 0.4))}
OURS |= {("bm25", "a", "ndcg_cut_10"): 0.4, ("bm25", "a", "hole_pair_10"): 0.331}


@pytest.mark.parametrize(
    ("one", "changed", "protocol", "ours", "verdict"),
    [
        (cell("Ours", "a", "0.509"), {}, "standard", 0.5, "OK"),
        (cell("Ours", "a", "0.520"), {}, "standard", 0.5, "OKish"),
        (cell("Ours", "a", "0.600"), {}, "standard", 0.5, "DRIFT"),
        (cell("Ours", "group", "0.301"), {}, "standard", 0.3, "OK"),
        (cell("Ours", "avg", "0.4"), {}, "standard", 0.4, "OK"),
        (cell("Ours", "avg", "0.4"), {"members": {"a": ["a"], "group": ["b", "d"]}}, "standard", None, "not run"),
        (cell("Ours", "a", "25.0", "ndcg_cut_10_gain", "percent of BM25"), {}, "standard", 25.0, "OK"),
        (cell("Ours", "a", "25.0", "ndcg_cut_10_gain", "percent of DPR"), {}, "standard", None, "not run"),
        (cell("BM25", "a", "33.0", "hole@10", "percent"), {}, "standard", 33.1, "OK"),
        (cell("BM25", "a", "0.403"), {}, "standard", 0.4, "OKish"),
        (cell("Ours", "a", "0.500"), {"as_published": False}, "standard", 0.5, "other budget"),
        (cell("BM25", "a", "0.400"), {"as_published": False}, "short", 0.4, "OK"),
        (cell("Ours", "a", "0.500"), {}, "short", 0.5, "other protocol"),
        (cell("ColBERT", "a", "0.500"), {}, "standard", None, "no method here"),
        (cell("Ours", "a", "0.500", "finetuning_times"), {}, "standard", None, "no measure here"),
        (cell("Ours", "b", "0.500", "recall_100"), {}, "standard", None, "not run"),
    ],
)
def test_verdicts(one, changed, protocol, ours, verdict):
    (found,) = compare_cells(one, OURS, settings(**changed), protocol, "A paper").to_dict("records")
    assert found["verdict"] == verdict
    assert found["ours"] == (None if ours is None else pytest.approx(ours))
    assert found["source"] == "A paper, table1" and found["published"] == one["value"].iloc[0]


@pytest.mark.parametrize(("ours", "verdict"), [(-0.02, "OK"), (0.004, "OK"), (0.0062, "OKish"), (0.02, "DRIFT")])
def test_below_an_upper_bound_all_is_well(ours, verdict):
    one = cell("Ours", "a", "0.5", "loss_of_accuracy", "percent; upper bound")
    (found,) = compare_cells(one, {("dense", "a", "loss_of_accuracy"): ours}, settings(), "standard", "x").to_dict(
        "records"
    )
    assert (found["ours"], found["verdict"]) == (pytest.approx(100 * ours), verdict)


def test_what_a_paper_leaves_open_is_shown_and_not_judged():
    doubts = {"a": {"read_as": ["a", "b"], "remark": "which one is not said"}}
    found = compare_cells(cell("Ours", "a", "0.500"), OURS, settings(doubts=doubts), "standard", "A paper")
    assert found[["column", "verdict"]].to_numpy().tolist() == [["a", "open"], ["b", "open"]]
    assert "which one is not said" in cells_section(found)
    doubts = {"unnamed": {"read_as": ["ndcg_cut_10"], "remark": "no measure is named"}}
    found = compare_cells(cell("Ours", "a", "0.5", "unnamed"), OURS, settings(doubts=doubts), "standard", "A paper")
    assert found[["metric", "ours", "verdict"]].to_numpy().tolist() == [["ndcg_cut_10", 0.5, "open"]]


def test_settings_and_data_are_compared_without_a_method():
    ours = {
        ("Batch", "", "hyperparameter"): 16.0,
        ("Optimizer", "", "hyperparameter"): "adamw",
        ("", "a", "queries"): 5.0,
    }
    batch, optimizer = (
        cell(row, "setting", value, "hyperparameter") for row, value in (("Batch", "16"), ("Optimizer", "AdamW"))
    )
    for one in (batch, optimizer, cell("A", "a", "5", "queries")):
        assert compare_cells(one, ours, settings(), "standard", "A paper")["verdict"].tolist() == ["OK"]
    other = compare_cells(cell("A", "a", "6", "queries"), ours, settings(), "standard", "A paper")
    assert other["verdict"].tolist() == ["DRIFT"] and other["tolerance"].tolist() == [0.0]


def test_likeness_to_another_source_is_not_judged():
    one = cell("MS MARCO", "a", "0.2367", "query_intent_similarity")
    ours = {("", "a", "query_intent_similarity"): 0.24}
    for as_published, verdict in ((True, "OK"), (False, "other source")):
        found = compare_cells(one, ours, settings(as_published=as_published), "standard", "A paper")
        assert found["verdict"].tolist() == [verdict]


def test_tables_of_collections_have_a_row_a_collection():
    ours = {("", name, "queries"): 5.0 for name in "abc"} | {("", "a", "query_words"): 3.03}
    cells = [cell(name.upper(), name, "5", "queries") for name in "abc"]
    found = compare_cells(pd.concat([*cells, cell("A", "a", "3.0", "query_words")]), ours, settings(), "standard", "P")
    assert found["tolerance"].tolist() == pytest.approx([0, 0, 0, 0.06])
    lines = cells_section(found).splitlines()
    assert [word.strip() for word in lines[4].strip("|").split("|")] == ["A", "5 (5) OK", "3.03 (3.0) OK"]


def test_values_have_the_digits_of_their_measure_and_columns_their_labels():
    ours = OURS | {("dense", "a", "hole_pair_10"): 0.331}
    cells = [cell("Ours", "a", "0.600"), cell("Ours", "a", "9.0", "ndcg_cut_10_gain", "percent of BM25")]
    cells.append(cell("Ours", "a", "40.0", "hole@10", "percent"))
    found = compare_cells(pd.concat(cells), ours, settings(), "standard", "P")
    text = cells_section(found, {"a": "Collection A"})
    assert text.count("Collection A") == 3 and "Hole@10 (pairs), in %" in text
    assert all(word in text for word in ("0.5000 (0.600)", "+25.0 (9.0)", "33.1 (40.0)"))


def test_an_item_shows_what_no_other_claims():
    cells = pd.concat(
        [cell("Ours", "a", "1"), cell("Ours", "avg", "2"), cell("BM25", "a", "3"), cell("BM25", "z", "4")]
    )
    rest = shown_cells(cells, settings(claims=[[["Ours"], ["a"], ["Ours"]]]))
    assert rest["value"].tolist() == ["3", "4"], "a mean belongs to the row"
    own = shown_cells(cells, settings(whole=False, claims=[[["Ours", "BM25"], ["a"], ["Ours", "BM25"]]]))
    assert own["value"].tolist() == ["1", "2", "3", "4"]
    other = shown_cells(cells, settings(whole=False, claims=[[["Ours", "BM25"], ["a"], []]]))
    assert other["value"].tolist() == ["1", "3"], "the item with the table's name has this row, and its mean"
    assert shown_cells(cells, settings(cells=["avg"]))["value"].tolist() == ["2"]


@pytest.mark.parametrize(
    ("text", "value"), [("0.654", 0.654), ("+5.3", 5.3), ("10k", 1e4), ("110M", 1.1e8), ("5e-6", 5e-6), ("N", None)]
)
def test_numbers_as_printed(text, value):
    assert number(text) == value


def test_the_page_of_items_in_docs_is_the_generated_one(root):
    script = root / "docs/pictures/items.py"
    spec = importlib.util.spec_from_file_location("items", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (root / "docs/papers/items.md").read_text() == module.page(root), "run: python docs/pictures/items.py"


def test_bad_reference_files_are_refused(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("item\trow\n")
    with pytest.raises(ArtifactError, match="has columns item, row"):
        read_cells(path)
    path.write_text(HEADER + "t\tr\tc\tm\t1\t\n" * 2)
    with pytest.raises(ArtifactError, match="t / r / c / m twice"):
        read_cells(path)


def test_tolerances_by_kind_of_row():
    assert [tolerance_of("ndcg_cut_10", kind, 0.5, False) for kind in ("lexical", "trained")] == [0.002, 0.01]
    assert tolerance_of("hole_pair_10", "lexical", 33.0, True) == 0.2
    assert tolerance_of("knn_source", "trained", 14.0, True) == pytest.approx(1.4)
    assert tolerance_of("documents", "data", 100.0, False) == 0.0
    assert judge({"open": False}, None, False, None) == "DRIFT"
    assert judge({"open": False, "other budget": True}, 0.0, True, 1.0) == "other budget"


def test_an_item_writes_both_next_to_each_other(tmp_path):
    files = [scores(tmp_path, name, "a", [0.4, 0.6]) for name in ("ours", "bm25")]
    (tmp_path / "paper.tsv").write_text(HEADER + "table1\tOurs\ta\tndcg_cut_10\t0.505\t\n")
    item = {"kind": "methods", "methods": ["ours", "bm25"], "baseline": "bm25"}
    inputs = {"per_query": files, "reference": [tmp_path / "paper.tsv"]}
    stage, _ = told(item, inputs, tmp_path)
    stage.params["published"] = settings(rows=[["Ours", "ours"]], kinds={"ours": "trained"}).model_dump(mode="json")
    items.build_item(stage)
    (line,) = pd.read_csv(tmp_path / "published", sep="\t", comment="#").to_dict("records")
    assert (line["ours"], line["published"], line["verdict"]) == (0.5, 0.505, "OK")
    assert "0.5000 (0.505) OK" in (tmp_path / "markdown").read_text()
    stage.params["published"]["table"] = "table9"
    with pytest.raises(ArtifactError, match="shows no value of table9"):
        items.build_item(stage)


def test_the_files_say_what_verdicts_mean():
    found = compare_cells(cell("ColBERT", "a", "0.5"), OURS, settings(), "standard", "A paper")
    assert "# no method here, 1 value: the value is shown alone" in cells_tsv(found)
    drifted = compare_cells(cell("BM25", "a", "0.1"), OURS, settings(), "standard", "A paper")
    assert "# DRIFT, 1 value: beyond 4 times the tolerance" in cells_tsv(drifted)


def test_items_have_their_own_collections_and_protocol_at_paper_alone(root, plan):
    assert item_collections(plan, "modir", "table2") == ["trec-covid", "webis-touche2020@v1"]
    assert find_item(plan, "ddr", "table2").protocol == "ddr-paper"
    mini = Plan(load_bench(root, {}))
    assert item_collections(mini, "modir", "table2") == [row.name for row in mini.columns]
    assert find_item(mini, "ddr", "table2").protocol == "standard"
    chosen = Plan(load_bench(root, {"scale": "paper", "collections": ("scifact",)}))
    assert item_collections(chosen, "modir", "table2") == ["scifact"]


def test_a_row_says_when_it_is_read_under_another_protocol_than_its_papers(root):
    remark = "read under protocol standard, its paper's is coco-dr-paper"
    assert remark in remark_of(Plan(load_bench(root, {})), "coco-dr+no-idro")
    assert "read under" not in remark_of(Plan(load_bench(root, {"protocol": "coco-dr-paper"})), "coco-dr")
    assert "read under" not in remark_of(Plan(load_bench(root, {})), "dpr")


def test_an_item_under_its_papers_protocol_has_no_such_footnote(plan):
    assert not any(
        "read under protocol coco-dr-paper, its paper's is coco" in r
        for r in params(plan, "coco-dr", "table2")["remarks"]
    )


def test_measures_are_headed_as_in_tables():
    names = ["ndcg_cut_10", "recall_1000_gain", "document_words", "ndcg_cut_100", "ndcg_cut_10_gain_case1"]
    titles = ["nDCG@10", "R@1000, gain in %", "document words", "nDCG@100", "nDCG@10 gain case1"]
    assert [title_of(name) for name in names] == titles
