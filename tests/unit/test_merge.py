"""Merging of shards: sharded equals unsharded byte for byte; incomplete or foreign hits are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_helpers import make_collection, oracle, run_merge, run_search

from zerodr.artifacts.rankings import read_rankings
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.artifacts.trec import read_run
from zerodr.errors import ArtifactError
from zerodr.retrieval import merge
from zerodr.retrieval.candidates import Ranking
from zerodr.retrieval.hits import HitsReader, Searched, write_hits


def data(documents: int, queries: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors with many copies, so that ties run across shards."""
    random = np.random.default_rng(seed)
    pool = random.standard_normal((max(1, documents // 3), 24)).astype(np.float32)
    corpus = pool[random.integers(0, len(pool), documents)]
    return corpus, random.standard_normal((queries, 24)).astype(np.float32)


CASES = [(700, 9, 40, False), (700, 9, 40, True), (5, 2, 100, True), (90, 1, 30, False)]


@pytest.mark.parametrize(("documents", "queries", "depth", "exclude"), CASES)
def test_any_sharding_gives_the_same_bytes(tmp_path, monkeypatch, documents, queries, depth, exclude):
    monkeypatch.chdir(tmp_path)
    corpus, questions = data(documents, queries)
    names = [f"doc{n:04d}" for n in np.random.default_rng(1).permutation(documents)]
    query_names = names[:1] + [f"q{n}" for n in range(1, queries)]
    collection = make_collection(Path("c"), names, query_names)
    runs = []
    for shards, threads in ((1, 1), (3, 2), (7, 3)):
        hits = run_search(collection, questions, corpus, shards, depth, exclude, threads)
        runs.append(run_merge(collection, hits, Path(f"{shards}.trec.gz"), depth).read_bytes())
    assert runs[0] == runs[1] == runs[2]
    run = read_run(Path("1.trec.gz"))
    expected = oracle(questions, corpus, names, depth + 1)
    for name, row in zip(query_names, expected, strict=True):
        mine = run[run["query"] == name]
        row = [hit for hit in row if not (exclude and hit[0] == name)][:depth]
        assert list(zip(mine["document"], mine["score"].tolist(), strict=True)) == row
    assert not exclude or query_names[0] not in set(run[run["query"] == query_names[0]]["document"])


def test_small_pieces_give_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus, questions = data(400, 30)
    collection = make_collection(Path("c"), [f"d{n}" for n in range(400)], [f"q{n}" for n in range(30)])
    hits = run_search(collection, questions, corpus, 3, 25)
    whole = run_merge(collection, hits, Path("a.trec.gz"), 25).read_bytes()
    monkeypatch.setattr(merge, "ROWS", 1)
    assert run_merge(collection, hits, Path("b.trec.gz"), 25).read_bytes() == whole


def test_a_shorter_run_is_the_beginning_of_a_longer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus, questions = data(200, 4)
    collection = make_collection(Path("c"), [f"d{n}" for n in range(200)], [f"q{n}" for n in range(4)])
    hits = run_search(collection, questions, corpus, 2, 50)
    long, short = (read_run(run_merge(collection, hits, Path(f"{d}.trec.gz"), d)) for d in (50, 7))
    assert short.equals(long.groupby("query", sort=False).head(7).reset_index(drop=True))


def run_candidates(collection: Path, hits: list[Path], output: Path, depth: int) -> Path:
    inputs = {"hits": [str(path) for path in hits], "collection": str(collection)}
    run_spec(
        StageSpec(
            "merge_candidates",
            1,
            {},
            inputs,
            {"candidates": str(output)},
            {"collection": "c", "split": "test", "depth": depth},
        )
    )
    return output


@pytest.mark.parametrize(("documents", "queries", "depth", "exclude"), CASES)
def test_candidates_are_the_run(tmp_path, monkeypatch, documents, queries, depth, exclude):
    """Same documents, scores and order, whatever the shards and pieces; queries without hits have an empty row."""
    monkeypatch.chdir(tmp_path)
    corpus, questions = data(documents, queries)
    names = [f"doc{n:04d}" for n in np.random.default_rng(1).permutation(documents)]
    query_names = names[:1] + [f"q{n}" for n in range(1, queries)]
    collection = make_collection(Path("c"), names, query_names)
    run = read_run(
        run_merge(collection, run_search(collection, questions, corpus, 1, depth, exclude), Path("r.gz"), depth)
    )
    made = []
    for shards, rows in ((1, merge.ROWS), (4, 1)):
        monkeypatch.setattr(merge, "ROWS", rows)
        hits = run_search(collection, questions, corpus, shards, depth, exclude)
        made.append(run_candidates(collection, hits, Path(f"{shards}.parquet"), depth))
    assert made[0].read_bytes() == made[1].read_bytes()
    found = read_rankings(made[0])
    assert found.queries.to_pylist() == query_names
    assert np.repeat(query_names, found.sizes).tolist() == run["query"].tolist()
    assert found.documents.to_pylist() == run["document"].tolist()
    assert found.scores.tolist() == run["score"].tolist()


def test_candidates_of_queries_without_hits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    collection = make_collection(Path("c"), ["d0", "d1", "d2"], ["q0", "q1", "q2", "q3"])
    found = read_rankings(
        run_candidates(collection, [hits_file(Path("h.parquet"), [0, 2, 0, 1])], Path("c.parquet"), 5)
    )
    assert found.sizes.tolist() == [0, 2, 0, 1] and found.documents.to_pylist() == ["d0", "d1", "d2"]


def hits_file(path: Path, counts: list[int], **searched: int) -> Path:
    total = sum(counts)
    ranking = Ranking(np.array(counts, np.int64), np.arange(total), np.arange(total, 0, -1).astype(np.float32))
    about = {"shard": 0, "shards": 1, "queries": len(counts), "documents": total, "depth": 10} | searched
    write_hits(path, iter([ranking]), pa.array([f"d{n}" for n in range(total)]), Searched(**about))
    return path


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([0, 1], "expected shards 0 to 2 once each, found [0, 1]"),
        ([0, 1, 1], "expected shards 0 to 2 once each, found [0, 1, 1]"),
        ([0, 1, 2, 2], "expected shards 0 to 2 once each, found [0, 1, 2, 2]"),
    ],
)
def test_every_shard_once(tmp_path, shards, message):
    files = [hits_file(tmp_path / f"{n}.parquet", [2], shard=s, shards=3) for n, s in enumerate(shards)]
    with pytest.raises(ArtifactError) as error:
        merge.merge_hits(files, pa.array(["q"]), 5, "t", tmp_path / "run.gz")
    assert message in str(error.value)


def test_shards_in_any_order(tmp_path):
    files = [hits_file(tmp_path / f"{n}.parquet", [2], shard=n, shards=2) for n in (1, 0)]
    assert merge.merge_hits(files, pa.array(["q"]), 5, "t", tmp_path / "run.gz") == 4


def test_refuses_hits_of_other_queries_or_depth(tmp_path):
    file = hits_file(tmp_path / "a.parquet", [2, 0, 3])
    with pytest.raises(ArtifactError, match="expected 2 queries to depth 5, found 3 to depth 10"):
        merge.merge_hits([file], pa.array(["q", "r"]), 5, "t", tmp_path / "run.gz")
    with pytest.raises(ArtifactError, match="expected 3 queries to depth 11, found 3 to depth 10"):
        merge.merge_hits([file], pa.array(["q", "r", "s"]), 11, "t", tmp_path / "run.gz")


def test_refuses_other_files(tmp_path):
    (tmp_path / "a.parquet").write_text("text")
    with pytest.raises(ArtifactError, match="can't be read as parquet"):
        HitsReader(tmp_path / "a.parquet")
    pq.write_table(pa.table({"query": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ArtifactError, match=r"expected hits with columns .* found \['query'\]"):
        HitsReader(tmp_path / "b.parquet")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 14), max_size=6), st.integers(1, 9))
def test_reader_cuts_between_queries(tmp_path_factory, counts, stops, batch):
    """Queries without hits included, whatever the size of the pieces."""
    path = hits_file(tmp_path_factory.mktemp("hits") / "a.parquet", counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zerodr.retrieval.hits.BATCH", batch)
        with HitsReader(path) as reader:
            tables = [reader.read_until(stop) for stop in [*sorted(stops), len(counts)]]
    last = 0
    for stop, table in zip([*sorted(stops), len(counts)], tables, strict=True):
        expected = [q for q in range(last, min(stop, len(counts))) for _ in range(counts[q])]
        assert table["query"].to_pylist() == expected
        last = max(last, stop)
    assert pa.concat_tables(tables)["document"].to_pylist() == [f"d{n}" for n in range(sum(counts))]
