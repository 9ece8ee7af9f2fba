"""Fusion of two runs: published formulas, queries in one run only, order, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_helpers import make_collection

from zerodr.artifacts.rankings import Rankings, RankingsWriter, read_rankings
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.artifacts.trec import read_run, total_order, write_run
from zerodr.config.base import validate
from zerodr.errors import ArtifactError, ConfigError, ProtocolError
from zerodr.retrieval.fuse import FuseSettings, check_run, fuse, fuse_candidates, fuse_runs, run_terms

QUERIES = pd.Series(["q2", "q0", "q1"])
PARAMS = {
    "runs": ["a", "b"],
    "fusion": "reciprocal_rank",
    "rank_constant": 60,
    "weights": [1.0, 1.0],
    "collection": "c",
    "split": "test",
    "depth": 10,
    "exclude_self": True,
    "tag": "both",
}


def settings_of(**changed) -> FuseSettings:
    return validate(FuseSettings, PARAMS | changed, "fuse_runs")


def run_of(rows: dict[str, dict[str, float]]) -> pd.DataFrame:
    triples = [(query, document, score) for query, row in rows.items() for document, score in row.items()]
    frame = pd.DataFrame(triples, columns=["query", "document", "score"])
    return total_order(frame.astype({"query": "str", "document": "str", "score": "float32"}))


def fused(first: dict, second: dict, **changed) -> dict[str, dict[str, float]]:
    own = settings_of(**changed)
    frame = fuse(*run_terms([run_of(first), run_of(second)], own), QUERIES, own.depth)
    return {
        str(q): dict(zip(f["document"], f["score"].tolist(), strict=True))
        for q, f in frame.groupby("query", sort=False)
    }


def test_standard_score_by_hand():
    first, second = {"q0": {"x": 4, "y": 2, "z": 0}}, {"q0": {"y": 3, "w": 1}}
    found = fused(first, second, fusion="standard_score")["q0"]
    deviation = (8 / 3) ** 0.5
    assert found == pytest.approx({"y": 2 / deviation + 2.0, "x": 4 / deviation, "z": 0.0, "w": 0.0}, rel=1e-6)


def test_standard_score_orders_as_z_scores_do():
    rng = np.random.default_rng(1)
    first, second = ({f"d{i}": float(s) for i, s in enumerate(rng.normal(size=9))} for _ in range(2))
    found = fused({"q0": first}, {"q0": second}, fusion="standard_score", weights=[1.0, 0.5])["q0"]
    scaled = [
        (np.array(list(row.values())) - np.mean(list(row.values()))) / np.std(list(row.values()))
        for row in (first, second)
    ]
    sums = dict(zip(first, scaled[0] + 0.5 * scaled[1], strict=True))
    assert list(found) == sorted(sums, key=sums.get, reverse=True)
    differences = [found[key] - value for key, value in sums.items()]
    assert np.ptp(differences) < 1e-5


def test_only_first_entries_count():
    first, second = {"q0": {"x": 4, "y": 2, "z": 0}}, {"q0": {"z": 3, "w": 1, "v": 0}}
    found = fused(first, second, entries=2, depth=10)["q0"]
    assert set(found) == {"x", "y", "z", "w"}
    assert found["z"] == pytest.approx(1 / 61)


def test_equal_scores_add_nothing_to_standard_scores():
    found = fused({"q0": {"x": 1, "y": 1}}, {"q0": {"y": 3, "x": 1}}, fusion="standard_score")["q0"]
    assert found == {"y": 2.0, "x": 0.0}


BM25_LACKS = {"fusion": "standard_score", "unfound_is_zero": [True, False]}


def test_the_only_document_with_a_word_comes_first():
    rng = np.random.default_rng(3)
    dense = {f"d{i}": float(s) for i, s in enumerate(rng.normal(size=100))}
    last = min(dense, key=dense.get)
    found = fused({"q0": {last: 4.5}}, {"q0": dense}, **BM25_LACKS, depth=100)["q0"]
    assert next(iter(found)) == last
    assert found[last] == pytest.approx(4.5 / np.std([4.5] + [0.0] * 99), rel=1e-6)
    before = fused({"q0": {last: 4.5}}, {"q0": dense}, fusion="standard_score", depth=100)["q0"]
    assert list(before)[-1] == last


def test_what_bm25_did_not_find_counts_as_zero_up_to_the_entries_of_the_other_run():
    first, second = {"q0": {"x": 4, "y": 2}}, {"q0": {"y": 3, "w": 1, "v": 0, "u": -1}}
    found = fused(first, second, **BM25_LACKS, entries=3)["q0"]
    deviation, dense = np.std([4, 2, 0]), np.std([3, 1, 0])
    assert found == pytest.approx({"x": 4 / deviation, "y": 2 / deviation + 3 / dense, "w": 1 / dense, "v": 0.0})


def test_a_run_as_long_as_the_other_keeps_its_lowest():
    first, second = {"q0": {"x": 4, "y": 2}, "q1": {"x": 2}}, {"q0": {"y": 3, "w": 1}}
    assert fused(first, second, **BM25_LACKS) == fused(first, second, fusion="standard_score")


def test_candidates_are_fused_as_runs_are(tmp_path):
    rows = {"a": {"q0": {"x": 3.0, "y": 1.0}, "q1": {}}, "b": {"q0": {"y": 2.0, "z": 1.0}, "q1": {"x": 1.0}}}
    for name, ranked in rows.items():
        with RankingsWriter(tmp_path / f"{name}.parquet", 5) as writer:
            documents = [document for row in ranked.values() for document in row]
            scores = np.array([score for row in ranked.values() for score in row.values()], np.float32)
            sizes = np.array([len(row) for row in ranked.values()])
            writer.write(Rankings(pa.array(list(ranked)), sizes, pa.array(documents, pa.string()), scores))
    params = {key: value for key, value in PARAMS.items() if key not in ("exclude_self", "tag")}
    files = [str(tmp_path / f"{name}.parquet") for name in rows]
    spec = StageSpec(
        "fuse_candidates", 1, {}, {"rankings": files}, {"candidates": str(tmp_path / "out.parquet")}, params
    )
    run_spec(spec, fuse_candidates)
    found = read_rankings(tmp_path / "out.parquet")
    assert found.queries.to_pylist() == ["q0", "q1"] and found.sizes.tolist() == [3, 1]
    assert found.documents.to_pylist() == ["y", "x", "z", "x"]
    assert found.scores.tolist()[0] == pytest.approx(1 / 61 + 1 / 62)


def test_reciprocal_rank_by_hand():
    found = fused({"q0": {"x": 9, "y": 8}}, {"q0": {"y": 0.5, "z": 0.25}}, weights=[1.0, 2.0])
    expected = {"y": 1 / 62 + 2 / 61, "z": 2 / 62, "x": 1 / 61}
    assert list(found["q0"]) == ["y", "z", "x"]
    assert found["q0"] == {name: float(np.float32(value)) for name, value in expected.items()}


def test_weighted_scores_by_hand():
    first, second = {"q0": {"x": 10, "y": 5, "z": 0}}, {"q0": {"y": -1, "w": -3}}
    found = fused(first, second, fusion="weighted_score", weights=[0.5, 2.0])
    assert found["q0"] == {"y": 0.25 + 2.0, "x": 0.5, "z": 0.0, "w": 0.0}
    assert list(found["q0"]) == ["y", "x", "z", "w"]


def test_equal_scores_count_as_best():
    assert fused({"q0": {"x": 3, "y": 3}}, {"q0": {"z": 7}}, fusion="weighted_score")["q0"] == {"z": 1, "y": 1, "x": 1}


def test_queries_in_one_run_only_keep_the_order_of_the_collection():
    found = fused({"q0": {"x": 1}}, {"q2": {"y": 1, "z": 0.5}})
    assert list(found) == ["q2", "q0"]
    assert list(found["q2"]) == ["y", "z"]
    assert fused({}, {}) == {}


def test_ties_fall_to_the_last_document_id():
    found = fused({"q0": {"a": 2, "b": 1}}, {"q0": {"b": 2, "a": 1}}, depth=1)
    assert list(found["q0"]) == ["b"]


RUNS = st.dictionaries(
    st.sampled_from(["q0", "q1", "q2"]),
    st.dictionaries(st.sampled_from([*"abcdefé"]), st.floats(-5, 5, width=32), min_size=1, max_size=7),
    max_size=3,
)


@settings(max_examples=100, deadline=None)
@given(RUNS, RUNS, st.sampled_from(["reciprocal_rank", "weighted_score"]), st.integers(1, 8))
def test_agrees_with_a_plain_program(first, second, fusion, depth):
    weights = (0.7, 1.9)
    expected: dict[str, list] = {}
    for query in QUERIES:
        sums: dict[str, float] = {}
        for run, weight in ((first, weights[0]), (second, weights[1])):
            row = run.get(query, {})
            ranked = sorted(row, key=lambda d: (row[d], d.encode()), reverse=True)
            for rank, document in enumerate(ranked, 1):
                low, high = min(row.values()), max(row.values())
                share = 1.0 if low == high else (row[document] - low) / (high - low)
                part = weight / (60 + rank) if fusion == "reciprocal_rank" else weight * share
                sums[document] = sums.get(document, 0.0) + part
        rounded = {document: float(np.float32(value)) for document, value in sums.items()}
        ranked = sorted(rounded, key=lambda d: (rounded[d], d.encode()), reverse=True)[:depth]
        if ranked:
            expected[query] = [(document, rounded[document]) for document in ranked]
    found = fused(first, second, fusion=fusion, depth=depth, weights=list(weights))
    assert {query: list(row.items()) for query, row in found.items()} == expected


def test_swapping_runs_with_their_weights_changes_nothing():
    first, second = {"q0": {"x": 0.1, "y": 0.7, "z": 0.3}}, {"q0": {"z": 4.0, "x": 2.0}}
    for fusion in ("reciprocal_rank", "weighted_score"):
        one = fused(first, second, fusion=fusion, weights=[0.3, 0.6])
        assert fused(second, first, fusion=fusion, weights=[0.6, 0.3]) == one


def test_refuses_foreign_and_broken_runs():
    good = run_of({"q0": {"x": 1}})
    check_run(good, QUERIES, "a", True)
    with pytest.raises(ArtifactError, match="a: query 'q9' is none of this split"):
        check_run(run_of({"q9": {"x": 1}}), QUERIES, "a", True)
    with pytest.raises(ArtifactError, match="document 'x' is ranked twice for query 'q0'"):
        check_run(pd.concat([good, good]), QUERIES, "a", True)
    with pytest.raises(ArtifactError, match="NaN or infinite"):
        check_run(run_of({"q0": {"x": float("nan")}}), QUERIES, "a", True)
    own = run_of({"q0": {"q0": 1}})
    check_run(own, QUERIES, "a", False)
    with pytest.raises(ProtocolError, match="query 'q0' ranks the document with its id"):
        check_run(own, QUERIES, "a", True)


def test_unknown_fusion_is_refused():
    with pytest.raises(ConfigError, match="fusion"):
        settings_of(fusion="best")


def test_stage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    collection = make_collection(Path("c"), ["x", "y"], list(QUERIES))
    for name, rows in (("a", {"q2": {"x": 3.0}, "q0": {"y": 1.0, "x": 0.5}}), ("b", {"q0": {"x": 2.0}})):
        write_run(Path(f"{name}.trec.gz"), run_of(rows), name)
    for output in ("one.trec.gz", "two.trec.gz"):
        inputs = {"runs": ["a.trec.gz", "b.trec.gz"], "collection": str(collection)}
        run_spec(
            StageSpec(
                rule="fuse_runs",
                version=1,
                wildcards={},
                inputs=inputs,
                outputs={"run": output},
                params=PARAMS,
            ),
            fuse_runs,
        )
    assert Path("one.trec.gz").read_bytes() == Path("two.trec.gz").read_bytes()
    run = read_run(Path("one.trec.gz"))
    assert run[["query", "document"]].to_numpy().tolist() == [["q2", "x"], ["q0", "x"], ["q0", "y"]]
