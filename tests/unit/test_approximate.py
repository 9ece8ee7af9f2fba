"""Approximate indexes of a shard: recall, final scores, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from search_helpers import INDEX, as_lists, clustered, exact_scores, make_collection, run_merge, run_search, search

from zerodr.artifacts.trec import read_run
from zerodr.config.index import IndexSettings
from zerodr.errors import ConfigError
from zerodr.retrieval.approximate import ApproximateIndex, measure_recall
from zerodr.retrieval.candidates import id_ranks, join
from zerodr.retrieval.vectors import Vectors


@pytest.mark.parametrize(("kind", "least"), [("hnsw", 0.95), ("ivfpq", 0.5)])
def test_approximate_search_reports_recall_and_final_scores(kind, least):
    corpus, queries = clustered(3000, 40)
    ids = [str(n) for n in range(3000)]
    ranks, depth = id_ranks(pa.array(ids)), 50

    def build(threads: int) -> ApproximateIndex:
        return ApproximateIndex(IndexSettings(index=kind, **INDEX[kind]), Vectors(corpus), 3, threads, str)

    searcher = build(2)
    recall = measure_recall(searcher, Vectors(queries), ranks, depth, None, 25)
    assert sorted(recall) == ["recall_10", "recall_50"]
    assert all(least <= value <= 1 for value in recall.values())
    skip = np.arange(40)
    found = list(searcher.search(Vectors(queries), ranks, depth, skip))
    scores = exact_scores(queries, corpus)
    for query, row in enumerate(as_lists(found, ids)):
        assert row == sorted(row, key=lambda hit: (hit[1], hit[0].encode()), reverse=True)
        assert str(query) not in dict(row)
        assert all(score == scores[query, int(name)] for name, score in row)
    assert (join(found).rows >= 0).all()
    assert as_lists(build(1).search(Vectors(queries), ranks, depth, skip), ids) == as_lists(found, ids)


def test_hnsw_that_looks_everywhere_is_exact():
    corpus, queries = clustered(300, 5)
    ids = [str(n) for n in range(300)]
    searcher = ApproximateIndex(
        IndexSettings(index="hnsw", **(INDEX["hnsw"] | {"hnsw_search": 400})), Vectors(corpus), 1, 1, str
    )
    assert as_lists(searcher.search(Vectors(queries), id_ranks(pa.array(ids)), 300, None), ids) == search(
        queries, corpus, ids, 300
    )


def test_small_shards_get_fewer_lists_and_missing_neighbours_stay_inside():
    corpus, queries = clustered(90, 4)
    searcher = ApproximateIndex(
        IndexSettings(index="ivfpq", **INDEX["ivfpq"] | {"ivf_lists": 64, "ivf_probes": 1}), Vectors(corpus), 1, 1, str
    )
    assert (searcher.facts["lists"], searcher.facts["lists_asked"]) == (2, 64)
    found = join(list(searcher.search(Vectors(queries), id_ranks(pa.array([str(n) for n in range(90)])), 90, None)))
    assert (found.counts < 90).all() and (found.rows >= 0).all()  # one list of two holds fewer than asked for


def test_code_size_must_divide_the_dimension():
    with pytest.raises(ConfigError, match="pq_bytes: expected a divisor of the dimension 16, found 5"):
        ApproximateIndex(
            IndexSettings(index="ivfpq", **INDEX["ivfpq"] | {"pq_bytes": 5}), Vectors(clustered(200, 1)[0]), 1, 1, str
        )


@pytest.mark.parametrize("kind", ["hnsw", "ivfpq"])
def test_shards_without_documents_or_with_one_are_searched_exactly(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    corpus, queries = clustered(3, 2)
    collection = make_collection(tmp_path / "c", ["a", "b", "c"], ["q1", "q2"])
    runs = []
    for index in (kind, "flat"):
        hits = run_search(collection, queries, corpus, 5, 3, index=index, **INDEX[index])
        runs.append(read_run(run_merge(collection, hits, Path(f"{index}.trec.gz"), 3)))
    assert runs[0].equals(runs[1]) and len(runs[0]) == 6
