"""Shares of memories of a small example, and case studies with their sources."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moma_helpers import JOINS, collection, run

from zerodr.collections.access import MemoryTexts
from zerodr.papers.moma.measure_attention import SCHEMA, Attended, shares_of


def test_shares_of_two_queries():
    rows = [
        Attended(["marco:1", "marco:2", "wiki:1", "mesh:1"], [4, 2, 1, 1], [1] * 4, [True, False, False, False]),
        Attended(["wiki:2", "marco:3", "marco:2", "mesh:2"], [3, 3, 1, 1], [2] * 4, [False] * 4),
    ]
    made = shares_of(rows).set_index("memory")
    order = ["marco:relevant", "marco:other", "wiki", "mesh"]
    assert made.loc[order, "document_share"].tolist() == [0.125, 0.375, 0.25, 0.25]
    assert made.loc[order, "attention_share"].tolist() == [0.25, 0.375, 0.25, 0.125]
    assert made.loc[order, "lift"].tolist() == [2.0, 1.0, 1.0, 0.5]
    assert made.loc["mesh", "mean_tokens"] == 1.5
    searched = shares_of(rows, "marco").set_index("memory")
    assert set(searched.index) == {"target", "wiki", "mesh"}
    assert searched.loc["target", "attention_share"] == 0.625


def test_the_stage_tells_shares_and_cases(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    collection("source", 6, 2)
    collection("other", 6, seed=1)
    rows = [
        {
            "query": "q0",
            "query_attention": 6.0,
            "documents": ["source:d0", "other:d1"],
            "attention": [0.5, 1.5],
            "fid_attention": [0.5, 1.5],
            "tokens": [4, 5],
        },
        {
            "query": "q1",
            "query_attention": 4.0,
            "documents": ["other:d2", "source:d5"],
            "attention": [0.3, 0.1],
            "fid_attention": [3.0, 1.0],
            "tokens": [6, 7],
        },
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), "attention.parquet")
    inputs = {
        "attention": "attention.parquet",
        "collection": "source/manifest.json",
        "memories": ["source/manifest.json", "other/manifest.json"],
    }
    params = {"collection": "source", "split": "train", "evaluated": False, "joins": JOINS, "cases": 2, "shown": 1}
    passes, pass_over = [], MemoryTexts._of
    monkeypatch.setattr(
        MemoryTexts, "_of", lambda self, name, *rest: passes.append(name) or pass_over(self, name, *rest)
    )
    run("papers.moma.measure_attention:measure_shares", inputs, {"shares": "shares.tsv", "cases": "cases.tsv"}, params)
    assert passes == ["other"], "one pass over a memory for all cases"
    shares = pd.read_csv("shares.tsv", sep="\t").set_index("memory")
    assert set(shares.index) == {"other", "source:relevant", "source:other"}
    assert shares.loc["other", "attention_share"] == pytest.approx(0.75)
    assert shares["document_share"].sum() == pytest.approx(1.0) == pytest.approx(shares["attention_share"].sum())
    cases = pd.read_csv("cases.tsv", sep="\t")
    assert cases["document"].tolist() == ["other:d1", "other:d2"] and cases["retrieved_at"].tolist() == [2, 1]
    texts = dict(
        zip(*pq.read_table(Path("other/corpus.parquet"), columns=["id", "text"]).to_pydict().values(), strict=True)
    )
    assert cases["document_text"].tolist() == [texts["d1"], texts["d2"]]
    run(
        "papers.moma.measure_attention:measure_shares",
        inputs,
        {"shares": "searched.tsv", "cases": "searched-cases.tsv"},
        params | {"evaluated": True},
    )
    shares = pd.read_csv("searched.tsv", sep="\t").set_index("memory")
    assert set(shares.index) == {"other", "target"} and shares.loc["target", "attention_share"] == pytest.approx(0.25)
