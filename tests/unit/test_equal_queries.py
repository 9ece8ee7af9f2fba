"""Queries of equal texts are no further evidence: the judge counts them once, and tables name them."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from encoder_helpers import make_collection
from test_audit import audit

from zerodr.evaluation.adaptation import Comparison, QueryKind, decide, merge_equal
from zerodr.evaluation.judge_adaptation import judged_queries, read_kinds

RANKED = [("q1", "d2", 2.0), ("q1", "d1", 1.0), ("q2", "d1", 2.0), ("q3", "d1", 2.0)]
QUERIES = [("q1", "A pie"), ("q2", "a pie "), ("q3", "car")]


def test_copies_of_one_query_decide_nothing():
    values = pd.DataFrame({"start": np.full(40, 0.2), "new": np.full(40, 0.9)}, index=[f"q{n}" for n in range(40)])
    copies, others = (QueryKind("test", False, values) for _ in range(2))
    copies = merge_equal(copies, dict.fromkeys(values.index, "one text"))
    others = merge_equal(others, {key: key for key in values.index})
    assert len(copies.values) == 1 and len(others.values) == 40
    verdicts = [decide(Comparison([kind], 13), ["new"], ["start", "new"]).verdict for kind in (copies, others)]
    assert verdicts == ["undecided", "adapt"]


def test_the_judge_averages_queries_of_equal_texts(tmp_path):
    home = make_collection(tmp_path / "notes", [("d1", "", "pies"), ("d2", "", "cars")], QUERIES).parent
    run = pd.DataFrame(RANKED, columns=["query", "document", "score"])
    rows = [("q1", "d2", 0), *((key, "d1", 1) for key, _ in QUERIES)]
    grades = pd.DataFrame(rows, columns=["query", "document", "grade"])
    expected = pytest.approx([(1 + 1 / np.log2(3)) / 2, 1])
    settings, row = SimpleNamespace(methods=[SimpleNamespace(name="new")]), SimpleNamespace(name="notes", split="test")
    row.proxy, settings.collections = False, [row]
    kinds = read_kinds(SimpleNamespace(), settings, row, home, {("notes", "new"): run}, grades)
    for kind in (*kinds, *judged_queries({"new": run}, grades, home)):
        assert kind.values.index.tolist() == ["q1", "q3"] and kind.values["new"].tolist() == expected
        assert kind.first is not None and kind.first["new"].tolist() == [True, True]


def test_equal_queries_of_a_split_are_counted(monkeypatch):
    monkeypatch.setattr("test_audit.TEXTS", dict(QUERIES))
    assert audit([("q1", "d1", 1), ("q2", "d1", 0), ("q3", "d2", 1)]).facts["equal_queries"] == 2
    assert "equal_queries" not in audit([("q1", "d1", 1), ("q3", "d2", 1)]).facts
