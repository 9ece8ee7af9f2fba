"""Vectors of augmented queries: the stage that embeds them, how long one takes, and single queries of the page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from moma_helpers import QUERIES, K, run
from retriever_helpers import EMBEDDING, NAMES, fused, here, made

from zerodr.artifacts.rankings import read_rankings
from zerodr.errors import ArtifactError, ConfigError
from zerodr.papers.moma.fused_vectors import Fuser
from zerodr.papers.moma.report_costs import PRINTED_TIMES

__all__ = ["here", "made"]


def test_fewer_documents_make_other_vectors_and_no_cache_the_same(here):
    assert np.abs(fused("one.npy", documents=1) - np.load("fused.npy")).max() > 1e-4
    np.testing.assert_allclose(fused("uncached.npy", cache_mib=0), np.load("fused.npy"), atol=1e-5)
    with pytest.raises(ArtifactError, match="is ranked to depth 3, expected at least 4"):
        fused("more.npy", documents=4)


def test_a_killed_embedding_goes_on_after_its_last_part_with_the_same_bytes(here, monkeypatch):
    from zerodr.papers.moma import embed_fused as stage

    assert stage.CHECKPOINT_QUERIES > 100_000, "collections that fit into one part keep their bytes"
    monkeypatch.setattr(stage, "WINDOW", 3)
    monkeypatch.setattr(stage, "CHECKPOINT_QUERIES", 9)
    fused("whole.npy")
    done, calls = Fuser.vectors_of_tokens, []

    def killed(self, queries, keys, tokens_of):
        calls.append(len(queries))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return done(self, queries, keys, tokens_of)

    monkeypatch.setattr(Fuser, "vectors_of_tokens", killed)
    with pytest.raises(KeyboardInterrupt):
        fused("parts.npy")
    assert not Path("parts.npy").exists()
    fused("parts.npy")
    assert calls == [3] * 6 + [3] * 5 and sum(calls[6:]) == QUERIES - 9
    assert Path("parts.npy").read_bytes() == Path("whole.npy").read_bytes()
    notes = json.loads(Path("parts.npy.lineage.json").read_text())["notes"]
    assert notes["resumed_at"] == 9 and notes["states_found"] + notes["states_made"] > QUERIES
    assert 0 <= notes["waited_for_data"] < 1


def test_times_of_a_query_and_a_document_are_positive(here):
    lexical = {"backend": "bm25s", "fields": "flat", "language": "en"}
    run("lexical.index:index_bm25", {"collection": "source/manifest.json"}, {"index": "bm25/manifest.json"}, lexical)
    inputs = {"collection": "source/manifest.json", "model": "model/manifest.json", "rankings": "rankings.parquet"}
    inputs |= {"memories": [f"{name}/manifest.json" for name in NAMES], "corpus": ["source.npy"]}
    inputs |= {"memory_vectors": [f"{name}.npy" for name in NAMES]}
    wanted = EMBEDDING | {"collection": "source", "split": "train", "joins": dict.fromkeys(NAMES, " ")}
    wanted |= {"documents": K, "document_limit": 16, "queries": 5, "passages": 4, "depth": 3}
    wanted |= {"separate": True, "shards": dict.fromkeys(NAMES, 1)}
    lexical |= {"collection": "source", "split": "train", "depth": 3, "exclude_self": False}
    index = {"index": "bm25/manifest.json"}
    run(
        "papers.moma.embed_fused:measure_latency",
        inputs | index,
        {"latency": "latency.json"},
        wanted | {"lexical": lexical},
    )
    facts = json.loads(Path("latency.json").read_text())
    assert (facts["device"], facts["queries"]) == ("cpu", 5)
    assert set(facts["milliseconds"]) == {name for names in PRINTED_TIMES.values() for name in names} | {
        "query_without_documents",
        "query_with_cached_documents",
    }
    assert all(value > 0 for value in facts["milliseconds"].values())
    total = PRINTED_TIMES["MoMA Inference: Dense Retrieval Total"]
    assert {"augmenter_query", "memory_search"} < set(total), "a query pays its augmenter and every search"


def test_single_queries_read_the_memories_that_are_plugged_in(here, tmp_path, monkeypatch):
    """The vectors of the page are those of the stage; attention to query and documents sums to 1."""
    from zerodr.lookup.sources import DENSE, Source, list_memories
    from zerodr.papers.moma.live_queries import AugmentedQueries

    for name in NAMES:
        shutil.copytree(here / f"exported-{name}", tmp_path / f"results/exported-memories/m/shared/{name}")
    monkeypatch.chdir(tmp_path)
    params = {"documents": K, "document_limit": 16, "query_tokens": None}
    inputs = {"model": [str(here / "model/manifest.json")]}
    source = Source(
        "m", "source/manifest.json", DENSE, ("x.npy",), params, "papers.moma.embed_fused:embed_fused_queries", inputs
    )
    assert list_memories(source) == sorted(NAMES)
    live = AugmentedQueries(source)
    texts = pq.read_table(here / "source/queries.parquet")["text"].to_pylist()
    rankings = read_rankings(here / "rankings.parquet")
    for row, (text, expected) in enumerate(zip(texts, np.load(here / "fused.npy"), strict=True)):
        vector, fields = live.encode(text, {})
        np.testing.assert_allclose(vector, expected, atol=1e-5)
        assert [entry["id"] for entry in fields["read"]] == rankings.documents[row * K : (row + 1) * K].to_pylist()
        own = float(fields["notice"].removeprefix("the query itself has attention "))
        assert abs(own + sum(entry["attention"] for entry in fields["read"]) - 1) < 1e-3
    one, fields = live.encode(texts[0], {"memories": ["other"]})
    assert {entry["memory"] for entry in fields["read"]} == {"other"}
    plain, fields = live.encode(texts[0], {"memories": []})
    assert fields == {"read": [], "notice": "no memory is plugged in"} and np.abs(one - plain).max() > 1e-4
    live.row_memories = {"other", "mesh"}
    told = "not the table's ranking, whose queries read mesh and other (docs/search.md, Memories)"
    assert live.encode(texts[0], {"memories": []})[1]["notice"] == f"no memory is plugged in; {told}"
    assert live.encode(texts[0], {"memories": ["other"]})[1]["notice"].endswith(f"; {told}")
    with pytest.raises(ConfigError, match="memory nope: has no vectors of this model here"):
        live.encode(texts[0], {"memories": ["nope"]})
