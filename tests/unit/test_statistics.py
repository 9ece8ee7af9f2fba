from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from collection_helpers import beir_zip, json_lines, normalize, stage_of
from hypothesis import given
from hypothesis import strategies as st

from zerodr.collections.statistics import (
    QUERY_TYPES,
    Description,
    StatisticsSettings,
    compare,
    lengths,
    measure_statistics,
    query_type,
    sample_rows,
    sampled_documents,
    weighted_jaccard,
)

COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 50), min_size=1).map(Counter)


def test_jaccard_of_two_counts():
    assert weighted_jaccard(Counter(a=5, b=3, c=2), Counter(a=2, b=3, d=5)) == pytest.approx(1 / 3, abs=1e-6)


@given(COUNTS, COUNTS)
def test_weighted_jaccard_by_its_definition(one, other):
    words = set(one) | set(other)
    share = [(one[w] / one.total(), other[w] / other.total()) for w in words]
    wanted = sum(map(min, share)) / sum(map(max, share))
    found = weighted_jaccard(one, other)
    assert found == pytest.approx(wanted, abs=1e-6)
    assert found == weighted_jaccard(other, one)
    assert weighted_jaccard(one, Counter({w: 3 * n for w, n in one.items()})) == 1.0


def test_nothing_to_compare():
    assert weighted_jaccard(Counter(), Counter(a=1)) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("What is BM25?", "what"),
        ("  which one", "which"),
        ("Why?", "why"),
        ("WHO won", "who"),
        ("where", "where"),
        ("when was", "when"),
        ("how to", "how"),
        ("Is it", "yes/no"),
        ("could you", "yes/no"),
        ("should I", "yes/no"),
        ("whatever", "declarative"),
        ("define what", "declarative"),
        ("", "declarative"),
        ("what's up", "what"),
    ],
)
def test_nine_query_types(text, kind):
    assert query_type(text) == kind


def test_there_are_nine():
    assert len(QUERY_TYPES) == 9


def test_lengths_of_words_and_of_characters():
    assert lengths([1, 2, 3, 10]) == {"count": 4, "mean": 4.0, "median": 2.5, "p95": pytest.approx(8.95)}
    assert lengths([])["mean"] is None
    english = Description(["two  words"], ["Is it?"], "en")
    assert english.documents["mean"] == 2 and english.query_words == Counter(["is", "it"])
    chinese = Description(["多喝水，休息"], [], "zh")
    assert chinese.documents["mean"] == 5 and chinese.document_words == Counter(["多喝", "喝水", "水休", "休息"])


@given(st.integers(0, 500), st.integers(1, 600))
def test_sample_is_even(size, limit):
    rows = sample_rows(size, limit)
    assert len(rows) == min(size, limit) and len(set(rows.tolist())) == len(rows)
    if len(rows):
        assert rows[0] == 0 and rows[-1] < size
    if len(rows) > 1:
        gaps = np.diff(rows)
        assert gaps.max() - gaps.min() <= 1


@pytest.fixture
def folders(tmp_path):
    corpus = json_lines([{"_id": f"d{i}", "title": "T", "text": f"word{i % 7} common"} for i in range(9000)])
    qrels = "query-id\tcorpus-id\tscore\nq1\td1\t1\n"
    queries = json_lines([{"_id": "q1", "text": "what is it"}, {"_id": "q2", "text": "unjudged one"}])
    normalize(beir_zip(tmp_path / "a.zip", corpus, queries, qrels), tmp_path / "a")
    normalize(beir_zip(tmp_path / "b.zip"), tmp_path / "b")
    return tmp_path / "a", tmp_path / "b"


def test_sampled_documents_cross_row_groups(folders):
    texts = list(sampled_documents(folders[0], 3))
    assert texts == ["T word0 common", f"T word{3000 % 7} common", f"T word{6000 % 7} common"]
    assert len(list(sampled_documents(folders[0], 10**6))) == 9000


def test_stage_writes_json_and_metrics(folders, tmp_path):
    params = {"collection": "a", "source": "b", "evaluation_split": "test", "language": "en", "documents": 100}
    stage = stage_of(
        "m:measure_statistics",
        params,
        {"collection": str(folders[0] / "manifest.json"), "source": str(folders[1] / "manifest.json")},
        {"statistics": str(tmp_path / "s.json")},
        tmp_path,
    )
    measure_statistics(stage)
    facts = json.loads(stage.output("statistics").read_text())
    assert facts["documents"]["count"] == 100 and facts["queries"]["count"] == 1
    assert facts["query_types"]["what"] == 1
    assert facts["similarity"]["query_types"] == pytest.approx(0.5 / 1.5, abs=1e-6)
    assert {m["name"] for m in stage.metrics} == {"similarity_corpus", "similarity_queries", "similarity_query_types"}


def test_a_collection_is_like_itself(folders):
    settings = StatisticsSettings(collection="b", source="b", documents=10)
    assert set(compare(folders[1], folders[1], settings)["similarity"].values()) == {1.0}


def test_corpus_alone(tmp_path, folders):
    normalize(beir_zip(tmp_path / "m.zip"), tmp_path / "m", kind="memory")
    facts = compare(tmp_path / "m", folders[1], StatisticsSettings(collection="m", source="b", documents=10))
    assert facts["similarity"]["corpus"] == 1.0 and facts["similarity"]["queries"] is None
    assert facts["queries"]["count"] == 0
