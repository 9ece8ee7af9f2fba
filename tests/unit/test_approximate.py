"""Approximate indexes of a shard: recall, final scores, lists on a GPU that faiss sees, refusals."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from search_helpers import INDEX, as_lists, clustered, exact_scores, search

from zerodr.config.index import IndexSettings
from zerodr.errors import ConfigError
from zerodr.retrieval import approximate
from zerodr.retrieval.approximate import ApproximateIndex, measure_recall
from zerodr.retrieval.candidates import Ranking, id_ranks, join
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


class Card:
    """A GPU that faiss sees: what is moved to it stays here, with the limits of a GPU's kernels."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, largest: int = approximate.LARGEST, refuses: str = "") -> None:
        import faiss

        self.largest, self.refuses, self.clustered, self.copies = largest, refuses, [], []
        monkeypatch.setattr(approximate, "LARGEST", largest)
        monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
        monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
        monkeypatch.setattr(faiss, "index_cpu_to_gpu", self.copy, raising=False)
        monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", self.cluster, raising=False)

    def cluster(self, index):
        self.clustered.append(index)
        return index

    def copy(self, resources, device, index):
        if self.refuses:
            raise RuntimeError(self.refuses)
        assert device == 0 and index.clustering_index is None
        self.copies.append(Copy(index, self.largest))
        return self.copies[-1]


class Copy:
    def __init__(self, index, largest: int) -> None:
        self.index, self.largest, self.nprobe, self.rows = index, largest, 0, index.ntotal

    def search(self, queries, count):
        assert count <= self.largest and self.nprobe <= self.largest
        self.index.nprobe = self.nprobe
        return self.index.search(queries, count)


def searched(**changes: object) -> tuple[dict, Ranking, dict]:
    """Facts, the first 50 of 3,000 documents for 40 queries, and recall."""
    corpus, queries = clustered(3000, 40)
    searcher = ApproximateIndex(IndexSettings(index="ivfpq", **INDEX["ivfpq"] | changes), Vectors(corpus), 3, 1, str)
    ranks = id_ranks(pa.array([str(n) for n in range(3000)]))
    found = join(list(searcher.search(Vectors(queries), ranks, 50, None)))
    return searcher.facts, found, measure_recall(searcher, Vectors(queries), ranks, 50, None, 40)


def test_lists_of_ivfpq_are_clustered_and_searched_on_a_gpu_that_faiss_sees(monkeypatch):
    facts, plain, recall = searched()
    assert not {"clustered_on", "searched_on"} & set(facts)
    card = Card(monkeypatch)
    facts, found, again = searched()
    assert (facts["clustered_on"], facts["searched_on"], facts["pieces"]) == ("cuda", "cuda", 1)
    assert len(card.clustered) == 1 and [copy.nprobe for copy in card.copies] == [INDEX["ivfpq"]["ivf_probes"]]
    assert np.array_equal(plain.rows, found.rows) and np.array_equal(plain.scores, found.scores) and again == recall


def test_an_index_of_more_candidates_than_a_gpu_gives_is_searched_in_pieces(monkeypatch):
    plain = searched()[1]
    card = Card(monkeypatch, largest=90)
    facts, found, _ = searched()
    assert facts["pieces"] == 3 == len(card.copies)  # 4 * 50 + 1 candidates
    assert [copy.rows for copy in card.copies] == [1000, 1000, 1000]
    assert np.array_equal(plain.rows, found.rows) and np.array_equal(plain.scores, found.scores)


@pytest.mark.parametrize(
    ("card", "changes", "reason"),
    [
        ({"refuses": "Error in verify\nonly 8 bits a code"}, {}, "faiss refuses it (only 8 bits a code)"),
        ({"largest": 7}, {"ivf_probes": 8}, "8 lists of a query are more than the 7 that a GPU takes"),
    ],
)
def test_an_index_that_a_gpu_refuses_is_searched_on_the_cpu(monkeypatch, caplog, card, changes, reason):
    plain = searched(**changes)[1]
    Card(monkeypatch, **card)
    facts, found, _ = searched(**changes)
    assert (facts["searched_on"], facts["not_on_gpu"]) == ("cpu", reason)
    assert f"the index is searched on the CPU: {reason}" in caplog.text
    assert np.array_equal(plain.rows, found.rows)


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
