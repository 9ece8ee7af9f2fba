"""Samples of training queries: rankings of a sample give the negatives that rankings of all give; names; refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.training_helpers import seal

from zerodr.artifacts.rankings import Rankings, read_rankings
from zerodr.artifacts.record import artifact_digest, read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA, corpus_ids, read_qrels, shard_rows, write_sample
from zerodr.errors import ArtifactError
from zerodr.mining.positives import known_positives
from zerodr.mining.sample import held_out
from zerodr.plan.rules import RULES

SOURCE, SPLIT, DEPTH, SEED = "results/collections/c/manifest.json", "train", 8, 13
DOCUMENTS, QUERIES, SHARDS = 60, 50, 2
DRAW = {"split": SPLIT, "queries": 12, "stage_index": 1, "dev_queries": 4}
FUSION = {"fusion": "reciprocal_rank", "rank_constant": 60, "weights": [1.0, 1.0]}


def run(rule: str, inputs: dict[str, Any], outputs: dict[str, str], params: dict[str, Any], seed: int = 0) -> str:
    """Run a stage as its rule does; the path of its one output."""
    run_spec(StageSpec(rule, RULES[rule].version, {}, inputs, outputs, params, seed, threads=2))
    return next(iter(outputs.values()))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A source with words, vectors of both sides in two shards, and a query without a positive."""
    monkeypatch.chdir(tmp_path)
    random, folder = np.random.default_rng(3), Path(SOURCE).parent
    folder.mkdir(parents=True)
    words = [f"word{n}" for n in range(30)]
    texts = [" ".join(random.choice(words, 8)) for _ in range(DOCUMENTS)]
    names, asked = [f"d{n}" for n in range(DOCUMENTS)], [f"q{n}" for n in random.permutation(QUERIES)]
    pq.write_table(pa.table([names, [""] * DOCUMENTS, texts], schema=CORPUS_SCHEMA), folder / "corpus.parquet")
    questions = [" ".join(random.choice(words, 3)) for _ in asked]
    pq.write_table(pa.table([asked, questions], schema=QUERY_SCHEMA), folder / "queries.parquet")
    rows = [(query, f"d{random.integers(DOCUMENTS)}", int(query != "q7")) for query in asked for _ in range(2)]
    lines = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in rows)
    (folder / "qrels.train.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    seal(folder)
    vectors = random.standard_normal((DOCUMENTS + QUERIES, 16)).astype(np.float32)
    np.save("queries.npy", vectors[DOCUMENTS:])
    for shard in range(SHARDS):
        np.save(f"corpus-{shard}.npy", vectors[slice(*shard_rows(DOCUMENTS, shard, SHARDS))])
    index = {"backend": "bm25s", "fields": "flat", "language": "en"}
    run("index_bm25", {"collection": SOURCE}, {"index": "index/manifest.json"}, index)
    return folder


def draw(name: str = "sample.parquet", seed: int = SEED, **changed: int) -> str:
    return run("sample_queries", {"collection": SOURCE}, {"sample": name}, DRAW | changed, seed)


def ranked(sample: str | None) -> dict[str, str]:
    """Candidates of all queries, or of a sample, by BM25, by vectors in two shards, and by both fused."""
    name, params = "all" if sample is None else "some", {"collection": "c", "split": SPLIT, "depth": DEPTH}
    asked = {"collection": SOURCE} | ({} if sample is None else {"sample": sample})
    words = run("rank_bm25", {"index": "index/manifest.json"} | asked, {"candidates": f"{name}.words"}, params)
    hits = []
    for shard in range(SHARDS):
        inputs = {"queries": "queries.npy", "corpus": f"corpus-{shard}.npy"} | asked
        numbers = {"exclude_self": False, "index": "flat", "shard": shard, "shards": SHARDS}
        hits.append(run("search_candidates", inputs, {"hits": f"{name}.hits{shard}"}, params | numbers))
    vectors = run("merge_candidates", {"hits": hits} | asked, {"candidates": f"{name}.vectors"}, params)
    both = {"runs": ["words", "vectors"]} | FUSION | params
    fused = run("fuse_candidates", {"rankings": [words, vectors]}, {"candidates": f"{name}.fused"}, both)
    return {"words": words, "vectors": vectors, "fused": fused}


def mined(candidates: str, name: str, seed: int = SEED, **changed: Any) -> str:
    """Digest of the mined queries of a stage."""
    negatives = {"source": "other", "depth": DEPTH, "count": 3, "queries": DRAW["queries"]} | changed
    shared = {key: DRAW[key] for key in ("split", "stage_index", "dev_queries")}
    params = {"negatives": negatives, "stage": "ep1"} | shared
    inputs = {"source": SOURCE, "candidates": candidates}
    return artifact_digest(run("mine_negatives", inputs, {"mined": f"mined/{name}/manifest.json"}, params, seed))


def lists(path: str) -> dict[str, tuple[list[str], list[float]]]:
    """Documents and scores of each query."""
    found: Rankings = read_rankings(Path(path))
    ends = np.cumsum(found.sizes)
    rows = [slice(end - size, end) for size, end in zip(found.sizes, ends, strict=True)]
    documents, scores = found.documents.to_pylist(), found.scores.tolist()
    return {q: (documents[r], scores[r]) for q, r in zip(found.queries.to_pylist(), rows, strict=True)}


def test_negatives_are_those_of_a_ranking_of_all_queries(here):
    """The old way ranks all queries and samples afterwards; the new one ranks the sample. Same bytes."""
    old, new = ranked(None), ranked(draw())
    for kind in old:
        digests = {mined(candidates[kind], f"{kind}-{way}") for way, candidates in (("old", old), ("new", new))}
        assert len(digests) == 1, kind
        whole, some = lists(old[kind]), lists(new[kind])
        assert len(whole) == QUERIES and 12 <= len(some) <= 16
        assert some == {query: whole[query] for query in whole if query in some}, "in the split's order"
    assert mined(new["words"], "leading", sampling="top") != mined(new["words"], "again"), "digests tell"


def test_a_sample_is_the_draw_and_the_queries_of_dev(here):
    drawn = pq.read_table(draw())["query"].to_pylist()
    qrels = read_qrels(here, SPLIT)
    dev = held_out(qrels.loc[qrels["grade"] > 0, "query"].tolist(), 4, SEED)
    assert len(dev) == 4 and dev <= set(drawn) and "q7" not in drawn
    alone = pq.read_table(draw("alone.parquet", dev_queries=0))["query"].to_pylist()
    assert len(alone) == 12 and set(drawn) == set(alone) | dev
    order = known_positives(here, SPLIT, corpus_ids(here)).queries.to_pylist()
    assert drawn == sorted(drawn, key=order.index)
    others = [draw("o.parquet", seed=14), draw("s.parquet", stage_index=2), draw("n.parquet", queries=11)]
    assert len({tuple(pq.read_table(path)["query"].to_pylist()) for path in others} | {tuple(drawn)}) == 4
    assert len(pq.read_table(draw("more.parquet", queries=1000))) == QUERIES - 1
    (metric,) = read_record("sample.parquet")["metrics"]
    assert metric["name"] == "queries" and metric["value"] == len(drawn)


def test_a_ranking_of_another_sample_is_refused(here):
    other = ranked(draw("other.parquet", seed=14))["words"]
    with pytest.raises(ArtifactError, match=r"lacks \d+ of the \d+ queries of split train that are mined.*this stage"):
        mined(other, "other")


def test_a_sample_of_another_split_is_refused(here):
    write_sample(Path("foreign.parquet"), pa.array(["q1", "elsewhere"]))
    with pytest.raises(ArtifactError, match="holds 2 queries, of which 1 are in this split; elsewhere is not"):
        ranked("foreign.parquet")
    pq.write_table(pa.table({"id": ["q1"]}), "columns.parquet")
    with pytest.raises(ArtifactError, match="expected columns"):
        ranked("columns.parquet")
