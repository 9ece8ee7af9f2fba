"""The stage that evaluates one run, on a small collection on disk."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.page_helpers import make_evaluated

from zerodr.artifacts.stage import Stage, StageSpec, temporary_output
from zerodr.artifacts.trec import CUT, total_order, write_run
from zerodr.config.measures import FIRST, MEASURES, Measure, label_of
from zerodr.config.papers import item_of
from zerodr.errors import ArtifactError, CollectionError, ConfigError, ProtocolError
from zerodr.evaluation.evaluate import COUNTS, IDENTITY, evaluate_run, read_measures
from zerodr.evaluation.findings import WORDS, count_excluded, read_findings

QRELS = [("q1", "a", 2), ("q1", "b", 0), ("q2", "b", 1), ("q3", "a", -1), ("q4", "q4", 1), ("gone", "a", 1)]
RUN = [("q1", "a", 2.0), ("q1", "c", 1.0), ("q2", "c", 3.0), ("q2", "b", 2.5), ("q3", "a", 1.0)]
PARAMS = {
    "model": "m",
    "collection": "toy",
    "language": "en",
    "split": "test",
    "protocol": "standard",
    "depth": 10,
    "exclude_self": False,
    "bootstrap_samples": 50,
}


def stage_of(folder: Path, run: list[tuple], **changes: object) -> Stage:
    collection = folder / "toy"
    collection.mkdir(exist_ok=True)
    queries = [f"q{i}" for i in range(1, 6)]
    pq.write_table(pa.table({"id": queries, "text": ["text"] * 5}), collection / "queries.parquet")
    frame = pd.DataFrame(QRELS, columns=["query-id", "corpus-id", "score"])
    frame.to_csv(collection / "qrels.test.tsv", sep="\t", index=False)
    rows = pd.DataFrame(run, columns=["query", "document", "score"]).astype({"score": np.float32})
    write_run(folder / "run.trec.gz", total_order(rows), "m")
    inputs = {"run": str(folder / "run.trec.gz"), "collection": str(collection / "manifest.json")}
    outputs = {"summary": str(folder / "s.tsv"), "per_query": str(folder / "p.parquet")}
    spec = StageSpec("evaluate_run", 1, {}, inputs, outputs, PARAMS | changes, 13)
    return Stage(spec, folder)


def outputs_of(stage: Stage) -> tuple[Path, Path]:
    return tuple(temporary_output(stage.spec.outputs[name]) for name in ("summary", "per_query"))


def test_summary_and_per_query_identify_themselves_and_agree(tmp_path):
    stage = stage_of(tmp_path, RUN)
    evaluate_run(stage)
    summary_path, per_query_path = outputs_of(stage)
    summary = pd.read_csv(summary_path, sep="\t").set_index("metric")
    by_query = pq.read_table(per_query_path).to_pandas()
    assert list(summary.index) == [*FIRST, *COUNTS]
    assert list(by_query.columns) == [*IDENTITY, "query", "results", "positives", *FIRST]
    assert by_query["query"].tolist() == ["q1", "q2", "q4"]
    assert by_query["results"].tolist() == [2, 2, 0]
    for name in FIRST:
        assert summary.loc[name, "value"] == pytest.approx(by_query[name].mean(), abs=5e-7)
        assert summary.loc[name, "low"] <= summary.loc[name, "value"] + 1e-6
        assert summary.loc[name, "high"] >= summary.loc[name, "value"] - 1e-6
    assert summary.loc["ndcg_cut_10", "value"] == pytest.approx((1 + 1 / np.log2(3)) / 3, abs=1e-6)
    for frame in (summary, by_query):
        assert frame[IDENTITY].drop_duplicates().to_numpy().tolist() == [["m", "toy", "test", "standard", 10, False]]


def test_counts_of_special_queries(tmp_path):
    stage = stage_of(tmp_path, RUN)
    evaluate_run(stage)
    summary = pd.read_csv(outputs_of(stage)[0], sep="\t").set_index("metric")
    assert summary.loc[COUNTS, "value"].tolist() == [3, 1, 1, 1]
    assert (summary["queries"] == 3).all()


def test_findings_of_the_audits_are_rows_of_the_summary(tmp_path):
    stage = stage_of(tmp_path, RUN)
    split = {"queries": 5, "judgements": 6, "dropped": 4, "lost_queries": 2, "queries_with_positive": 3}
    split |= {"repeated": 3, "conflicting": 1, "identical_documents": 2, "equal_documents": 4, "equal_queries": 3}
    (tmp_path / "toy/audit.json").write_text(json.dumps({"documents": 9, "empty_documents": {"count": 1}}))
    (tmp_path / "toy/judgements").mkdir()
    (tmp_path / "toy/judgements/audit.json").write_text(json.dumps({"splits": {"test": split}}))
    evaluate_run(stage)
    rows = pd.read_csv(outputs_of(stage)[0], sep="\t").set_index("metric").loc[list(WORDS)[:5]]
    assert rows["value"].tolist() == [4, 2, 1, 2, 1] and rows["queries"].tolist() == [10, 5, 13, 13, 9]
    findings = read_findings(tmp_path / "toy", "test", exclude_self=False)
    assert findings["n_identical_documents"] == (2, 5) and findings["n_equal_documents"] == (4, 9)
    assert findings["n_equal_queries"] == (3, 5)
    assert "n_identical_documents" not in read_findings(tmp_path / "toy", "test", exclude_self=True)


def test_relevant_documents_that_the_search_leaves_out_are_counted():
    qrels = pd.DataFrame({"query": ["1", "2", "3"], "document": ["1", "2", "1"], "grade": [1, 0, 2]})
    assert count_excluded(qrels, exclude_self=True) == {"n_own_relevant": (1, 2)} and "n_own_relevant" in WORDS
    assert count_excluded(qrels, exclude_self=False) == count_excluded(qrels[1:], exclude_self=True) == {}


def test_queries_without_a_positive_alone_are_refused(tmp_path):
    stage = stage_of(tmp_path, RUN)
    (tmp_path / "toy/qrels.test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t0\n")
    with pytest.raises(CollectionError, match="none of 1 judged queries has a document with a grade above 0"):
        evaluate_run(Stage(dataclasses.replace(stage.spec, params=PARAMS | {"every_query": True}), tmp_path))


def test_doubts_about_an_imported_file_are_rows_after_the_counts(tmp_path):
    stage = stage_of(tmp_path, RUN)
    lines = [
        "q1 Q0 a 2 2.0 t",
        "q1 Q0 c 1 1.0 t",
        "q2 Q0 c 2 3.0 t",
        "q2 Q0 b 1 2.5 t",
        "other Q0 b 1 2.5 t",
        "other Q0 c 2 2.5 t",
    ]
    (tmp_path / "theirs.trec").write_text("\n".join(lines))
    stage.spec.inputs["file"] = str(tmp_path / "theirs.trec")
    for documents in (2, 3):
        pq.write_table(pa.table({"id": ["a", "b", "c"][:documents]}), tmp_path / "toy/corpus.parquet")
        evaluate_run(stage)
        summary = pd.read_csv(outputs_of(stage)[0], sep="\t").set_index("metric")
        cut = [CUT] if documents == 3 else []
        assert list(summary.index) == [*FIRST, *COUNTS, "n_rank_contradicts", *cut]
    assert summary.loc["n_rank_contradicts", ["value", "queries"]].tolist() == [2, 2]
    assert summary.loc[CUT, ["value", "queries"]].tolist() == [2, 2]


def test_every_number_becomes_a_metric_that_mlflow_accepts(tmp_path):
    stage = stage_of(tmp_path, RUN)
    evaluate_run(stage)
    assert [metric["name"] for metric in stage.metrics] == [*FIRST, *COUNTS]
    assert not any("@" in metric["name"] for metric in stage.metrics)
    assert all(isinstance(metric["value"], float) for metric in stage.metrics)


def test_equal_inputs_give_equal_bytes(tmp_path):
    bytes_of = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        stage = stage_of(tmp_path / name, RUN)
        evaluate_run(stage)
        bytes_of.append([path.read_bytes() for path in outputs_of(stage)])
    assert bytes_of[0] == bytes_of[1]


def test_an_own_document_in_the_run_is_refused_when_the_protocol_excludes_it(tmp_path):
    run = [*RUN, ("q4", "q4", 1.0)]
    evaluate_run(stage_of(tmp_path, run))
    with pytest.raises(
        ProtocolError,
        match="m/toy/standard: exclude_self is true, but 1 queries retrieved the document with their id .q4",
    ):
        evaluate_run(stage_of(tmp_path, run, exclude_self=True))


def test_a_ranking_deeper_than_the_protocol_is_refused(tmp_path):
    with pytest.raises(ProtocolError, match="2 documents, expected 1 at most"):
        evaluate_run(stage_of(tmp_path, RUN, depth=1))


def test_queries_of_another_split_are_refused(tmp_path):
    with pytest.raises(ProtocolError, match="q5"):
        evaluate_run(stage_of(tmp_path, [*RUN, ("q5", "a", 1.0)]))


def test_an_unknown_split_and_an_unknown_setting_are_refused(tmp_path):
    with pytest.raises(CollectionError, match="no judgements for this split .available: test"):
        evaluate_run(stage_of(tmp_path, RUN, split="dev"))
    with pytest.raises(ConfigError, match="unknown key 'detph'.*depth"):
        evaluate_run(stage_of(tmp_path, RUN, detph=3))


def test_a_file_that_is_no_run_is_refused(tmp_path):
    stage = stage_of(tmp_path, RUN)
    (tmp_path / "run.trec.gz").write_bytes(b"not a run")
    with pytest.raises(ArtifactError, match="is no TREC run"):
        evaluate_run(stage)


# ---- a measure that was added ----------------------------------------------------------------------------------
def test_an_added_measure_is_a_setting_of_evaluations_and_of_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = make_evaluated(tmp_path)
    where = SimpleNamespace(model="dense", collection="toy", protocol="standard")
    rules = {"evaluate_run": where, "compare_runs": None, "build_table": None, "merge_run": where}
    before = {rule: plan.settings(rule)(words) for rule, words in rules.items()}
    assert "measures" not in json.loads(before["evaluate_run"])["settings"], "today's list leaves identities alone"
    monkeypatch.setitem(MEASURES, "recall_20", Measure("R@20"))
    after = {rule: plan.settings(rule)(words) for rule, words in rules.items()}
    assert [rule for rule in rules if before[rule] != after[rule]] == ["evaluate_run"]
    assert json.loads(after["evaluate_run"])["settings"]["measures"] == ["recall_20"]


def test_an_added_measure_is_computed_after_the_others_and_shown(tmp_path, monkeypatch):
    old, new = stage_of(tmp_path, RUN), stage_of(tmp_path, RUN, measures=["recall_20"])
    evaluate_run(old)
    before = [path.read_bytes() for path in outputs_of(old)]
    with pytest.raises(ArtifactError, match="has no measure recal_20.*did you mean recall_100"):
        read_measures(outputs_of(old)[1], "recal_20")
    monkeypatch.setitem(MEASURES, "recall_20", Measure("R@20"))
    with pytest.raises(ArtifactError, match="has no measure recall_20.*older than this measure"):
        read_measures(outputs_of(old)[1], "recall_20")
    evaluate_run(new)
    summary = pd.read_csv(outputs_of(new)[0], sep="\t").set_index("metric")
    assert list(summary.index) == [*FIRST, "recall_20", *COUNTS]
    assert read_measures(outputs_of(new)[1], "recall_20")["recall_20"].tolist() == [1.0, 1.0, 0.0]
    assert summary.loc["recall_20", "value"] == pytest.approx(2 / 3)
    item = {"kind": "methods", "title": "x", "methods": ["m"], "baseline": "m", "beside": ["recall_20"]}
    assert item_of(item, "x").beside == ("recall_20",)
    assert label_of("recall_20") == "R@20"
    evaluate_run(old)
    assert [path.read_bytes() for path in outputs_of(old)] == before, "an evaluation computes what its settings name"
