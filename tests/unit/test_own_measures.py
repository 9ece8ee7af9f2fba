"""Measures by name, those of the user's own folder, and imports of its scaffolds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from tests.unit.config_helpers import project
from tests.unit.test_evaluate import RUN, stage_of

from zerodr.config.custom import check_planned, code_digest, load_code
from zerodr.config.load import load_bench
from zerodr.config.measures import label_of
from zerodr.errors import ConfigError
from zerodr.evaluation import evaluate
from zerodr.evaluation.evaluate import evaluate_run
from zerodr.evaluation.judged import judge
from zerodr.evaluation.metrics import measure
from zerodr.operations.scaffold import write_new
from zerodr.plan import Plan

__all__ = ["project"]


def test_measures_of_trec_eval_without_a_cutoff_need_no_line(project):
    run = pd.DataFrame({"query": ["q", "q"], "document": ["b", "a"], "score": [2.0, 1.0]})
    qrels = pd.DataFrame({"query": ["q", "q"], "document": ["a", "c"], "grade": [1, 2]})
    row = measure(judge(run, qrels, ["q"]), ["Rprec", "bpref", "recip_rank", "ndcg", "ndcg_cut_10"]).loc["q"]
    assert row[["Rprec", "bpref", "recip_rank"]].tolist() == [0.5, 0.5, 0.5] and row["ndcg"] == row["ndcg_cut_10"]
    assert label_of("Rprec") == "R-precision"


def test_measures_by_name_and_of_ones_own_evaluate_again_and_train_nothing(project):
    write_new("measure", "best_grade")
    words = {"measures": ["ndcg_cut_20", "recall_20", "best_grade_10"]}
    plain, chosen = (Plan(load_bench(project, config)) for config in ({}, words))
    job = SimpleNamespace(model="dpr", collection="scifact", protocol="standard")
    before, after = (json.loads(plan.settings("evaluate_run")(job))["settings"] for plan in (plain, chosen))
    assert after.pop("measures") == ["recall_20", "best_grade_10"]
    assert after.pop("code") == code_digest("measures.py", "best_grade")
    assert after == before
    assert json.loads(chosen.settings("compare_runs")(job))["settings"]["metric"] == "ndcg_cut_20"
    assert label_of("best_grade_10") == "best_grade@10" and label_of("recall_20") == "R@20"
    run = pd.DataFrame({"query": ["q", "q"], "document": ["b", "a"], "score": [2.0, 1.0]})
    qrels = pd.DataFrame({"query": ["q", "q"], "document": ["a", "c"], "grade": [1, 2]})
    values = measure(judge(run, qrels, ["q"]), ["best_grade_10", "recall_20"]).loc["q"]
    assert values.to_dict() == {"best_grade_10": 0.5, "recall_20": 0.5}


@pytest.mark.parametrize("first", ["from torch import Tensor", "", "import torch as t, torch"])
def test_a_scaffold_brings_the_imports_that_a_file_lacks(project, first):
    losses, measures = Path("config/my/losses.py"), Path("config/my/measures.py")
    losses.parent.mkdir(exist_ok=True)
    losses.write_text(f"{first}\n\n\ndef mine(scores):\n    return scores.mean()")
    measures.write_text("def none(run, cut):\n    return run.results * 0\n")
    before = code_digest("losses.py", "mine")
    write_new("objective", "Smooth")
    write_new("loss", "hinge")
    write_new("measure", "best_grade")
    assert code_digest("losses.py", "mine") == before
    assert load_code("losses.py", "mine") and load_code("losses.py", "Smooth") and load_code("losses.py", "hinge")
    assert load_code("measures.py", "none") and load_code("measures.py", "best_grade")
    assert losses.read_text().count("import Tensor\n") == 1


def test_a_table_of_some_collections_leaves_the_papers_pages_of_the_whole_as_they_are(project):
    for words, name in (({}, "published"), ({"collections": "scifact"}, "published-scifact")):
        plan = Plan(load_bench(project, words))
        papers = plan.inputs("build_table")(SimpleNamespace(selection=plan.selection))["papers"]
        assert len(papers) == 5 and all(path.endswith(f"/{name}.tsv") for path in papers)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("7 * np.ones(1)", "returned 7"),
        ("np.ones(3)", r"returned an array of shape \[3\], expected \[1\]"),
        ("None", r"returned an array of shape \[\], expected \[1\]"),
        ("np.array([np.nan])", "returned nan"),
        ("'much'", "returned str, no numbers"),
    ],
)
def test_a_measure_of_ones_own_returns_a_share_for_each_query(project, returned, told):
    write_new("measure", "wrong")
    path = Path("config/my/measures.py")
    path.write_text(f"import numpy as np\n\n\ndef wrong(run, k):\n    return {returned}\n")
    run = pd.DataFrame({"query": ["q"], "document": ["b"], "score": [2.0]})
    qrels = pd.DataFrame({"query": ["q"], "document": ["a"], "grade": [1]})
    with pytest.raises(ConfigError, match=rf"measure wrong_10: {told}"):
        measure(judge(run, qrels, ["q"]), ["wrong_10"])


def test_a_measure_of_ones_own_changes_no_other_and_a_series_is_read_by_its_ids(project):
    write_new("measure", "mine")
    path = Path("config/my/measures.py")
    queries = ["q2", "q10"]
    run = pd.DataFrame({"query": queries, "document": ["a", "b"], "score": [2.0, 1.0]})
    qrels = pd.DataFrame({"query": queries, "document": ["a", "c"], "grade": [1, 1]})
    path.write_text("import pandas as pd\n\n\ndef mine(run, k):\n    return pd.Series({'q10': 0.25, 'q2': 0.75})\n")
    assert measure(judge(run, qrels, queries), ["mine_10"])["mine_10"].tolist() == [0.75, 0.25]
    path.write_text("import pandas as pd\n\n\ndef mine(run, k):\n    return pd.Series({'q1': 0.25})\n")
    with pytest.raises(ConfigError, match="measure mine_10: returned a Series with index 'q1'"):
        measure(judge(run, qrels, queries), ["mine_10"])
    path.write_text("def mine(run, k):\n    run.grade[:] = 0\n    return run.grade\n")
    with pytest.raises(ValueError, match="read-only"):
        measure(judge(run, qrels, queries), ["mine_10"])


@pytest.mark.parametrize("takes", ["run", "run, cut, more", "run, cut, *, more"])
def test_a_measure_of_ones_own_takes_a_run_and_a_cutoff(project, takes):
    write_new("measure", "mine")
    path = Path("config/my/measures.py")
    path.write_text(f"def mine({takes}):\n    return run.rank\n")
    with pytest.raises(ConfigError, match=r"mine of measures.py takes a judged run and a cutoff: def mine\(run, cut\)"):
        load_bench(project, {"measures": "mine_10"})
    path.write_text("def mine(run, k=10, more=1):\n    return run.rank\n")
    load_bench(project, {"measures": "mine_10"})


def test_a_measure_that_changed_since_its_job_was_planned_is_not_computed(project):
    write_new("measure", "best_grade")
    plan = Plan(load_bench(project, {"measures": ["best_grade_10"]}))
    job = SimpleNamespace(model="dpr", collection="scifact", protocol="standard")
    planned = json.loads(plan.settings("evaluate_run")(job))["settings"]["code"]
    check_planned("measures.py", planned, "best_grade")
    file = Path("config/my/measures.py")
    file.write_text(f"{file.read_text()}    # a remark is no other code\n")
    check_planned("measures.py", planned, "best_grade")
    file.write_text(file.read_text().replace("return ", "return 0.5 * "))
    with pytest.raises(ConfigError, match="best_grade: has changed since this job was planned: run again"):
        check_planned("measures.py", planned, "best_grade")


def test_a_measure_that_changes_while_its_job_reads_the_run_is_not_computed(project, monkeypatch):
    write_new("measure", "best_grade")
    stage = stage_of(project, RUN, measures=["best_grade_10"], code=code_digest("measures.py", "best_grade"))
    evaluate_run(stage)
    assert "def best_grade" in stage.notes["custom_code"]
    file, read = Path("config/my/measures.py"), evaluate.read_run
    changed = file.read_text().replace("return ", "return 0.5 * ")
    monkeypatch.setattr(evaluate, "read_run", lambda path: (file.write_text(changed), read(path))[1])
    with pytest.raises(ConfigError, match="best_grade: has changed since this job was planned: run again"):
        evaluate_run(stage)
