"""Stage `rank_bm25`: the candidates are those of `search_bm25`, with ties by ascending id."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lexical_helpers import ASKED, FOX, run_index, run_search, write_collection

from zerodr.artifacts.rankings import Rankings, read_rankings
from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.artifacts.trec import read_run
from zerodr.errors import ArtifactError, ConfigError
from zerodr.lexical import search as module


@pytest.fixture
def here(tmp_path, monkeypatch):
    write_collection(tmp_path / "results/collections/fox", FOX, ASKED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_rank(index: str = "", collection: str = "fox", output: str = "c.parquet", **params: object) -> Path:
    path = Path("results/candidates") / output
    settings = {"collection": collection, "split": "test", "depth": 10} | params
    inputs = {"index": index or run_index("bm25s"), "collection": f"results/collections/{collection}/manifest.json"}
    run_spec(StageSpec("rank_bm25", 1, {}, inputs, {"candidates": str(path)}, settings))
    return path


def lists(found: Rankings) -> dict[str, list[tuple[str, float]]]:
    pairs = list(zip(found.documents.to_pylist(), found.scores.tolist(), strict=True))
    ends = np.cumsum(found.sizes)
    return {
        query: pairs[end - size : end]
        for query, size, end in zip(found.queries.to_pylist(), found.sizes, ends, strict=True)
    }


def test_all_queries_have_a_row_and_ties_stand_by_id(here):
    path = run_rank()
    found = lists(read_rankings(path))
    assert list(found) == [query for query, _ in ASKED]
    assert [document for document, _ in found["d3"]] == ["d3", "d4", "d2"]
    assert found["d3"][0][1] == found["d3"][1][1] > found["d3"][2][1]
    assert found["q2"] == found["q3"] == found["q4"] == []
    metrics = {row["name"]: row["value"] for row in read_record(str(path))["metrics"]}
    assert metrics == {"queries": 5, "queries_without_hits": 3}


def test_the_same_documents_as_search_bm25(here):
    run = read_run(run_search("bm25s"))
    for query, pairs in lists(read_rankings(run_rank())).items():
        mine = run[run["query"] == query]
        assert mine["document"].tolist() == [document for document, _ in pairs]
        np.testing.assert_allclose(mine["score"], [score for _, score in pairs], atol=5e-6)


def test_depth_and_parameters_count(here):
    assert [len(row) for row in lists(read_rankings(run_rank(depth=1))).values()] == [1, 0, 0, 1, 0]
    assert lists(read_rankings(run_rank(depth=1)))["d3"][0][0] == "d3"
    plain, other = (lists(read_rankings(run_rank(output=f"{b}.parquet", b=b)))["q1"] for b in (0.0, 1.0))
    assert plain != other


def test_blocks_don_t_matter(here, monkeypatch):
    whole = run_rank().read_bytes()
    monkeypatch.setattr(module, "BATCH", 2)
    assert run_rank(output="b.parquet").read_bytes() == whole


def test_wrong_index_or_settings_are_refused(here):
    with pytest.raises(ArtifactError, match="index of backend lucene, expected bm25s"):
        run_rank(run_index("lucene"))
    index = run_index("bm25s")
    write_collection(here / "results/collections/small", FOX[:3], ASKED[:1])
    with pytest.raises(ArtifactError, match="corpus of 6 documents, small has 3"):
        run_rank(index, "small")
    with pytest.raises(ConfigError, match="fields"):
        run_rank(fields="flat")
