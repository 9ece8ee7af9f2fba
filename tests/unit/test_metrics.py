"""Measures against trec_eval, hand-computed values and their definitions."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from zerodr.artifacts.trec import total_order
from zerodr.config.measures import FIRST
from zerodr.errors import ArtifactError, ProtocolError
from zerodr.evaluation.judged import judge
from zerodr.evaluation.metrics import measure

DOCUMENTS = [f"d{i}" for i in range(8)] + ["é", "Z", "10", "9"]
QUERIES = ["q1", "q2", "q3"]
scores = st.dictionaries(st.sampled_from(DOCUMENTS), st.sampled_from([-1.5, 0.0, 0.25, 1.0, 7.0]))
rankings = st.dictionaries(st.sampled_from(QUERIES), scores)
judgements = st.fixed_dictionaries(
    {query: st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(-1, 3), min_size=1) for query in QUERIES}
)


def frame_of(run: dict[str, dict[str, float]]) -> pd.DataFrame:
    rows = [(q, d, s) for q, scores in run.items() for d, s in scores.items()]
    frame = pd.DataFrame(rows, columns=["query", "document", "score"])
    return total_order(frame.astype({"query": str, "document": str, "score": np.float32}))


def qrels_of(qrels: dict[str, dict[str, int]]) -> pd.DataFrame:
    rows = [(q, d, g) for q, grades in qrels.items() for d, g in grades.items()]
    return pd.DataFrame(rows, columns=["query", "document", "grade"])


def evaluate(run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]]) -> pd.DataFrame:
    return measure(judge(frame_of(run), qrels_of(qrels), list(qrels)))


def trec_eval(run: dict, qrels: dict, *names: str) -> dict[str, dict[str, float]]:
    found = pytrec_eval.RelevanceEvaluator(qrels, set(names)).evaluate({q: run.get(q, {}) for q in qrels})
    return {q: found.get(q, {}) for q in qrels}


@settings(max_examples=60, deadline=None)
@given(rankings, judgements)
def test_equal_to_trec_eval_for_any_run_with_ties_gaps_and_negative_labels(run, qrels):
    ours = evaluate(run, qrels)
    raised = {q: {d: max(g, 0) for d, g in grades.items()} for q, grades in qrels.items()}
    names = ("ndcg_cut.1,3,5,10,20,100,1000", "recall.100,1000", "map", "success.5,20", "P.10")
    for query, values in trec_eval(run, raised, *names).items():
        for name, value in values.items():
            assert ours.loc[query, name] == value
    cut = {q: {d: s for d, s in list(_ranked(run.get(q, {})).items())[:10]} for q in qrels}
    for query, values in trec_eval(cut, raised, "recip_rank").items():
        assert ours.loc[query, "recip_rank_cut_10"] == pytest.approx(values.get("recip_rank", 0.0), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(rankings, judgements)
def test_judged_ndcg_is_trec_eval_of_the_judged_part(run, qrels):
    ours = evaluate(run, qrels)["ndcg_cut_10_judged"]
    raised = {q: {d: max(g, 0) for d, g in grades.items()} for q, grades in qrels.items()}
    judged = {q: {d: s for d, s in run.get(q, {}).items() if d in qrels[q]} for q in qrels}
    for query, values in trec_eval(judged, raised, "ndcg_cut.10").items():
        assert ours[query] == pytest.approx(values.get("ndcg_cut_10", 0.0), abs=1e-12)


def _ranked(scores: dict[str, float]) -> dict[str, float]:
    return dict(sorted(scores.items(), key=lambda item: (item[1], item[0]), reverse=True))


@settings(max_examples=40, deadline=None)
@given(rankings, judgements)
def test_holes_are_counts_over_their_definitions(run, qrels):
    ours = evaluate(run, qrels)
    union = {d for grades in qrels.values() for d in grades}
    for query in qrels:
        top = list(_ranked(run.get(query, {})))[:10]
        assert ours.loc[query, "hole_pair_10"] == sum(d not in qrels[query] for d in top) / max(len(top), 1)
        assert ours.loc[query, "hole_corpus_10"] == sum(d not in union for d in top) / 10


@settings(max_examples=30, deadline=None)
@given(rankings, judgements)
def test_inputs_stay_and_values_are_shares(run, qrels):
    frame, labels = frame_of(run), qrels_of(qrels)
    before = frame.copy(), labels.copy()
    values = measure(judge(frame, labels, list(qrels)))
    pd.testing.assert_frame_equal(frame, before[0])
    pd.testing.assert_frame_equal(labels, before[1])
    assert list(values.columns) == list(FIRST)
    assert ((values >= 0) & (values <= 1 + 1e-12)).all().all()


def test_values_computed_by_hand():
    qrels = {"q1": {"a": 2, "b": 1, "c": 0, "d": -1}}
    run = {"q1": {"x": 5.0, "d": 4.0, "a": 3.0, "c": 2.0, "b": 1.0}}
    row = evaluate(run, qrels).loc["q1"]
    ideal = 2 + 1 / math.log2(3)
    assert row["ndcg_cut_10"] == pytest.approx((2 / math.log2(4) + 1 / math.log2(6)) / ideal)
    assert row["ndcg_cut_3"] == pytest.approx((2 / math.log2(4)) / ideal)
    assert row["ndcg_cut_10_judged"] == pytest.approx((2 / math.log2(3) + 1 / math.log2(5)) / ideal)
    assert row["recip_rank_cut_10"] == pytest.approx(1 / 3)
    assert row["map"] == pytest.approx((1 / 3 + 2 / 5) / 2)
    assert (row["P_10"], row["success_5"], row["recall_100"]) == (0.2, 1.0, 1.0)
    assert row["hole_pair_10"] == 1 / 5
    assert row["hole_corpus_10"] == 1 / 10


def test_a_document_that_another_query_judged_is_a_hole_for_the_pair_only():
    values = evaluate({"q1": {"b": 1.0}}, {"q1": {"a": 1}, "q2": {"b": 1}})
    assert (values.loc["q1", "hole_pair_10"], values.loc["q1", "hole_corpus_10"]) == (1.0, 0.0)


def test_queries_without_results_or_positives_score_zero_and_are_counted():
    run, qrels = {"q1": {"a": 1.0}, "q3": {"a": 1.0}}, {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 0}}
    judged = judge(frame_of(run), qrels_of(qrels), ["q1", "q2", "q3"])
    values = measure(judged)
    assert values["ndcg_cut_10"].tolist() == [1.0, 0.0, 0.0]
    assert judged.results.tolist() == [1, 0, 1]
    assert judged.positives.tolist() == [1, 1, 0]


def test_the_first_rank_beyond_ten_does_not_count():
    run = {"q1": {f"x{i:02d}": 20.0 - i for i in range(10)} | {"a": 1.0}}
    row = evaluate(run, {"q1": {"a": 1}}).loc["q1"]
    assert (row["recip_rank_cut_10"], row["ndcg_cut_10"], row["recall_100"]) == (0.0, 0.0, 1.0)


def test_an_empty_run_scores_zero():
    assert (evaluate({}, {"q1": {"a": 1}}).to_numpy() == 0).all()


def test_more_queries_than_one_block():
    qrels = {f"q{i}": {"a": 1} for i in range(1100)}
    run = {query: {"a": 1.0 + number % 2, "b": 1.5} for number, query in enumerate(qrels)}
    values = evaluate(run, qrels)
    assert values["ndcg_cut_1"].tolist() == [float(i % 2) for i in range(1100)]


def test_query_order_of_the_run_does_not_matter():
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
    forward = evaluate({"q1": {"a": 1.0}, "q2": {"b": 1.0, "a": 2.0}}, qrels)
    backward = evaluate({"q2": {"b": 1.0, "a": 2.0}, "q1": {"a": 1.0}}, qrels)
    pd.testing.assert_frame_equal(forward, backward)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("q1", "a", 1.0), ("q1", "b", 2.0)], "out of order"),
        ([("q1", "a", 1.0), ("q1", "b", 1.0)], "out of order"),
        ([("q1", "a", 1.0), ("q1", "a", 1.0)], "out of order"),
        ([("q1", "a", 2.0), ("q1", "a", 1.0)], "twice"),
        ([("q1", "a", 2.0), ("q2", "a", 1.0), ("q1", "b", 1.0)], "contiguous"),
        ([("q1", "a", math.nan)], "no finite number"),
    ],
)
def test_a_run_out_of_total_order_is_refused(rows, words):
    run = pd.DataFrame(rows, columns=["query", "document", "score"])
    with pytest.raises(ArtifactError, match=words):
        judge(run, qrels_of({"q1": {"a": 1}, "q2": {"a": 1}}), ["q1", "q2"])


def test_a_query_of_another_split_is_refused():
    with pytest.raises(ProtocolError, match="not of the evaluated split .*q9"):
        judge(frame_of({"q9": {"a": 1.0}}), qrels_of({"q1": {"a": 1}}), ["q1"])


def test_a_judgement_that_stands_twice_is_refused():
    qrels = pd.DataFrame([("q1", "a", 1), ("q1", "a", 2)], columns=["query", "document", "grade"])
    with pytest.raises(ArtifactError, match="twice"):
        judge(frame_of({"q1": {"a": 1.0}}), qrels, ["q1"])
