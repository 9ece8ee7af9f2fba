"""Memories as a mixture: merged shards equal one flat index, plugging changes no file, no query is its own help."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folder_helpers import publish_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerodr.artifacts.rankings import read_rankings
from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import (
    CORPUS_SCHEMA,
    QUERY_SCHEMA,
    MemoryTexts,
    folded,
    memories_of,
    memory_of,
    namespaced,
    shard_rows,
)
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.papers.moma.search_memory import without
from zerodr.plan.paths import shard
from zerodr.retrieval.candidates import Ranking

SIZE = 8
Texts = Sequence[tuple[str, str, str]]


def make(name: str, documents: Texts, queries: Sequence[tuple[str, str]] = ()) -> Path:
    made = Path(f"{name}.making")
    made.mkdir()
    columns = [[row[n] for row in documents] for n in range(3)]
    pq.write_table(pa.table(columns, schema=CORPUS_SCHEMA), made / "corpus.parquet")
    pq.write_table(pa.table([[q[n] for q in queries] for n in range(2)], schema=QUERY_SCHEMA), made / "queries.parquet")
    lines = [f"{key}\t{documents[0][0]}\t1\n" for key, _ in queries]
    (made / "qrels.test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    publish_folder(made, Path(name) / "manifest.json")
    return Path(name) / "manifest.json"


def search(
    asking: Path, memory: Path, queries: np.ndarray, corpus: np.ndarray, depth: int, shards: int = 1, **more: object
) -> list[Path]:
    """Run `search_memory` on every shard of a memory."""
    name, hits = memory.parent.name, []
    np.save("queries.npy", queries)
    for number in range(shards):
        np.save(f"{name}-{number}.npy", corpus[slice(*shard_rows(len(corpus), number, shards))])
        hits.append(Path(f"hits-{depth}/{name}/{shard('shard', number, shards)}.parquet"))
        params = {
            "collection": asking.parent.name,
            "split": "test",
            "memory": name,
            "depth": depth,
            "title_join": " ",
            "exclude_self": True,
            "shard": number,
            "shards": shards,
            **more,
        }
        inputs = {
            "queries": "queries.npy",
            "corpus": f"{name}-{number}.npy",
            "collection": str(asking),
            "memory": str(memory),
        }
        run_spec(
            StageSpec(
                "search_memory",
                1,
                {},
                inputs,
                {"hits": str(hits[-1])},
                params,
                threads=1,
            )
        )
    return hits


def merge(
    asking: Path, memories: Sequence[Path], hits: Sequence[Path], depth: int, place: str = "m.parquet", needed: int = 1
) -> list[list[tuple[str, float]]]:
    """Run `merge_memories`; the rankings as lists of (id, score)."""
    inputs = {"hits": [str(path) for path in hits], "collection": str(asking), "memories": [str(m) for m in memories]}
    params = {
        "collection": asking.parent.name,
        "split": "test",
        "depth": depth,
        "needed": needed,
        "memories": [path.parent.name for path in memories],
    }
    run_spec(StageSpec("merge_memories", 1, {}, inputs, {"rankings": place}, params))
    made = read_rankings(Path(place))
    ends, documents, scores = np.cumsum(made.sizes), made.documents.to_pylist(), made.scores.tolist()
    return [
        list(zip(documents[end - size : end], scores[end - size : end], strict=True))
        for end, size in zip(ends, made.sizes, strict=True)
    ]


def flat(queries: np.ndarray, parts: dict[str, np.ndarray], depth: int) -> list[list[tuple[str, float]]]:
    """One flat index over the concatenation."""
    names = [f"{name}:d{row}" for name, part in parts.items() for row in range(len(part))]
    corpus = np.concatenate(list(parts.values()))
    rows = []
    for scores in (queries.astype(np.float64) @ corpus.astype(np.float64).T).astype(np.float32):
        pairs = list(zip(names, scores.tolist(), strict=True))
        rows.append(sorted(pairs, key=lambda pair: (pair[1], pair[0].encode()), reverse=True)[:depth])
    return rows


def numbered(count: int, word: str) -> list[tuple[str, str, str]]:
    return [(f"d{row}", "", f"{word} {row}") for row in range(count)]


@given(
    sizes=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    shards=st.integers(1, 3),
    depth=st.integers(1, 30),
    seed=st.integers(0, 99),
)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_merged_shards_are_one_flat_index_and_plugging_out_is_rebuilding_without(
    tmp_path_factory, monkeypatch, sizes, shards, depth, seed
):
    monkeypatch.chdir(tmp_path_factory.mktemp("mixture"))
    random = np.random.default_rng(seed)
    queries = random.integers(-2, 3, (3, SIZE)).astype(np.float32)  # small integers: many ties across memories
    parts = {name: random.integers(-1, 2, (n, SIZE)).astype(np.float32) for name, n in zip("abc", sizes, strict=True)}
    asking = make("asking", [("x", "", "")], [(f"q{n}", f"query {n}") for n in range(3)])
    memories = {name: make(name, numbered(len(part), name)) for name, part in parts.items()}
    hits = {
        name: search(asking, memories[name], queries, part, depth, min(shards, len(part)))
        for name, part in parts.items()
    }
    kept = {path: path.read_bytes() for part in hits.values() for path in part}
    everything = merge(asking, list(memories.values()), sum(hits.values(), []), depth)
    assert everything == flat(queries, parts, depth)
    without_a = merge(asking, [memories["b"], memories["c"]], hits["b"] + hits["c"], depth, "out.parquet")
    assert without_a == flat(queries, {name: parts[name] for name in "bc"}, depth)
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_a_query_does_not_get_itself_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    queries, corpus = random.normal(size=(2, SIZE)).astype(np.float32), random.normal(size=(9, SIZE)).astype(np.float32)
    texts = [
        ("q0", "", "a document"),
        *numbered(6, "w")[1:],
        ("d6", "How are", "YOU  today"),
        ("d7", "t", "fine"),
        ("d8", "", "Fine "),
    ]
    target = make("target", texts, [("q0", "how are you today"), ("q1", "fine")])
    (first, second) = merge(target, [target], search(target, target, queries, corpus, 9), 9)
    assert {key for key, _ in first} == {f"target:d{n}" for n in (1, 2, 3, 4, 5, 7, 8)}
    assert {key for key, _ in second} == {"target:q0", *(f"target:d{n}" for n in (1, 2, 3, 4, 5, 6))}
    other = make("other", [(key, title, text + "!") for key, title, text in texts])
    asked = merge(target, [other], search(target, other, queries, corpus, 9), 9)
    assert len(asked[0]) == 9, "another collection's document with the query's id is a stranger"
    loose = search(target, target, queries, corpus, 8, exclude_self=False)
    assert len(merge(target, [target], loose, 8)[0]) == 8


def test_leaving_out_keeps_the_depth():
    ranking = Ranking(np.array([4, 4]), np.array([5, 3, 1, 0, 5, 2, 3, 4]), np.arange(8, dtype=np.float32))
    (made,) = without(iter([ranking]), (np.array([0, 0]), np.array([3, 5])), 6, 2)
    assert made.counts.tolist() == [2, 2] and made.rows.tolist() == [1, 0, 5, 2]


def test_errors_name_the_memories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    queries, corpus = np.ones((1, SIZE), np.float32), np.ones((4, SIZE), np.float32)
    asking = make("asking", numbered(4, "x"), [("q", "hello")])
    memory, twin = make("memory", numbered(4, "m")), make("twin", numbered(4, "m"))
    hits = search(asking, memory, queries, corpus, 5)
    with pytest.raises(CollectionError, match=r"mixture of memory.*holds 4 documents.*expected at least 5"):
        merge(asking, [memory], hits, 5, needed=5)
    with pytest.raises(ConfigError, match=r"memories memory and twin.*same corpus"):
        merge(asking, [memory, twin], hits + search(asking, twin, queries, corpus, 5), 5)
    with pytest.raises(ArtifactError, match=r"of memories \['memory'\], expected \['asking', 'memory'\]"):
        merge(asking, [memory, asking], hits, 5)
    nothing = make("nothing", [])
    with pytest.raises(CollectionError, match="nothing: is an empty memory"):
        search(asking, nothing, queries, corpus[:0], 5)
    with pytest.raises(ArtifactError, match="expected 1 rows, found 2"):
        search(asking, memory, np.ones((2, SIZE), np.float32), corpus, 3)


def test_texts_of_namespaced_documents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make("a", [("1", "Title", "text"), ("x:2", "", "bare")])
    make("b", [("1", "T", "other")])
    texts = MemoryTexts({"a": Path("a"), "b": Path("b")}, {"a": ". ", "b": None})
    wanted = pa.array(["b:1", "a:x:2", "a:1", "b:1"])
    assert texts.texts(wanted, "here").to_pylist() == ["other", "bare", "Title. text", "other"]
    assert memories_of(wanted).to_pylist() == ["b", "a", "a", "b"]
    assert memory_of("a:x:2") == "a" and folded(" A  b\n") == "a b"
    assert namespaced("a", pa.array(["x:2"])).to_pylist() == ["a:x:2"]
    with pytest.raises(ArtifactError, match=r"here: names documents of memory 'c', plugged in are a, b"):
        texts.texts(pa.array(["c:1"]), "here")
    with pytest.raises(ArtifactError, match=r"memory b lacks, the first is 9"):
        texts.texts(pa.array(["b:9"]), "here")


def test_an_approximate_index_of_a_memory_reports_its_recall(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    queries, corpus = (random.normal(size=(rows, SIZE)).astype(np.float32) for rows in (4, 300))
    asking = make("asking", [("x", "", "")], [(f"q{n}", f"query {n}") for n in range(4)])
    hits = search(asking, make("a", numbered(300, "a")), queries, corpus, 5, index="hnsw")
    merged = merge(asking, [Path("a/manifest.json")], hits, 5)
    assert [[key for key, _ in row] for row in merged] == [
        [key for key, _ in row] for row in flat(queries, {"a": corpus}, 5)
    ]
    metrics = {point["name"]: point["value"] for point in read_record(hits[0])["metrics"]}
    assert metrics["recall_5"] == 1.0
