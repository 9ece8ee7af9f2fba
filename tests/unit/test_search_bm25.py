from __future__ import annotations

import gzip

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from lexical_helpers import ASKED, FOX, from_mirror, run_index, run_search, write_collection

from zerodr.artifacts.record import artifact_digest, read_record
from zerodr.artifacts.trec import read_run, total_order
from zerodr.collections.access import read_qrels
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.lexical.folder import lower_ties, ordered_documents, read_ids
from zerodr.lexical.search import SearchSettings, open_index

BACKENDS = ["lucene", "bm25s"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    write_collection(tmp_path / "results/collections/fox", FOX, ASKED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("backend", BACKENDS)
def test_run_has_the_order_and_no_rows_for_empty_queries(here, backend):
    run = read_run(run_search(backend))
    assert run["query"].drop_duplicates().tolist() == ["q1", "d3"]
    first = run[run["query"] == "q1"]
    assert first["document"].tolist() == ["d3", "d4", "d2", "d1"] or first["document"].tolist() == [
        "d3",
        "d4",
        "d1",
        "d2",
    ]
    assert (np.diff(first["score"]) < 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_own_document_is_left_out_and_depth_is_kept(here, backend):
    run = read_run(run_search(backend, depth=2, exclude_self=True))
    own = run[run["query"] == "d3"]
    assert own["document"].tolist() == ["d4", "d2"]
    assert run.groupby("query").size().max() == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_may_have_the_order_of_all_other_methods(here, backend):
    lowered, plain = (read_run(run_search(backend, ties=ties)) for ties in ("as_anserini", "as_trec_eval"))
    tied = [sorted(run[run["query"] == "q1"]["document"].tolist()) for run in (lowered, plain)]
    assert tied[0] == tied[1]
    same = plain.merge(plain, on=["query", "score"])
    same = same[same["document_x"] != same["document_y"]]
    assert len(same) and plain.equals(total_order(plain))
    low, high = sorted(same.iloc[0][["document_x", "document_y"]])
    query = same.iloc[0]["query"]
    order = [run[run["query"] == query]["document"].tolist() for run in (lowered, plain)]
    assert order[0].index(low) < order[0].index(high) and order[1].index(high) < order[1].index(low)


@pytest.mark.parametrize("backend", BACKENDS)
def test_last_place_of_equal_scores_goes_to_the_lower_id(here, backend):
    run = read_run(run_search(backend, depth=1))
    assert run["document"].tolist() == ["d3", "d3"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_inputs_give_equal_bytes(here, backend):
    run = run_search(backend)
    before = gzip.decompress(run.read_bytes()), artifact_digest(run_index(backend))
    for path in (*here.glob("results/bm25/**/*.record.json"), *here.glob("results/bm25/**/.*")):
        if path.is_file():
            path.unlink()
    run.unlink()
    assert (gzip.decompress(run_search(backend).read_bytes()), artifact_digest(run_index(backend))) == before


def test_both_backends_rank_alike(here):
    one, two = read_run(run_search("lucene")), read_run(run_search("bm25s"))
    assert one["document"].tolist() == two["document"].tolist()
    np.testing.assert_allclose(one["score"], two["score"], atol=1e-5)


def test_backend_stands_in_the_record(here):
    run = run_search("lucene")
    notes = read_record(str(run))["notes"]
    assert notes["backend"] == "lucene" and notes["anserini"] == "1.7.1" and notes["lucene"] and notes["java"]
    assert read_record(str(run_search("bm25s")))["notes"]["bm25s"]


def test_blank_main_fields_are_left_out_and_counted(here):
    flat = read_record(run_index("lucene"))
    many = read_record(run_index("lucene", "multifield"))
    assert (flat["notes"]["documents"], flat["notes"]["blank_documents"]) == (5, 1)
    assert (many["notes"]["documents"], many["notes"]["blank_documents"]) == (4, 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_documents_of_control_characters_alone_are_left_out(tmp_path, monkeypatch, backend):
    documents = [("a", "", "a fox"), ("b", "", "\x02"), ("c", "\x00", "\x01 \x1f")]
    write_collection(tmp_path / "results/collections/odd", documents, [("q", "fox")])
    monkeypatch.chdir(tmp_path)
    assert read_record(run_index(backend, name="odd"))["notes"]["blank_documents"] == 2
    assert read_run(run_search(backend, name="odd"))["document"].tolist() == ["a"]


def test_multifield_adds_the_title_again(here):
    flat, many = read_run(run_search("lucene")), read_run(run_search("lucene", "multifield"))
    assert many["score"].iloc[0] != flat["score"].iloc[0]
    assert many["document"].iloc[0] == "d3"


def test_rm3_changes_scores(here):
    plain = read_run(run_search("lucene"))
    expanded = read_run(run_search("lucene", expansion="rm3", feedback_documents=2, feedback_terms=5))
    assert expanded["query"].drop_duplicates().tolist() == ["q1", "d3"]
    assert plain["score"].tolist() != expanded["score"].tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_chinese(tmp_path, monkeypatch, backend):
    documents = [("a", "", "北京是中国的首都"), ("b", "", "上海在中国东部")]
    write_collection(tmp_path / "results/collections/zh", documents, [("q", "中国的首都")])
    monkeypatch.chdir(tmp_path)
    assert read_run(run_search(backend, language="zh", name="zh"))["document"].tolist() == ["a", "b"]


def test_settings_that_a_backend_lacks_are_refused(here):
    with pytest.raises(ConfigError, match="bm25s offers"):
        run_search("bm25s", expansion="rm3")
    with pytest.raises(ConfigError, match="one field"):
        run_search("lucene", "multifield", expansion="rm3")


def test_no_text_at_all_is_an_error(tmp_path, monkeypatch):
    write_collection(tmp_path / "results/collections/fox", [("a", "", " ")], [("q", "fox")])
    monkeypatch.chdir(tmp_path)
    for backend in BACKENDS:
        with pytest.raises(CollectionError, match="none of its 1 documents has a text"):
            run_index(backend)


def test_index_of_another_kind_is_refused(here):
    run_index("lucene")
    settings = SearchSettings(
        backend="lucene",
        fields="multifield",
        collection="fox",
        language="en",
        split="test",
        depth=10,
        exclude_self=False,
    )
    with pytest.raises(ArtifactError, match="expected"):
        open_index(here / "results/bm25/lucene-flat/fox", settings, 1)
    with pytest.raises(ArtifactError, match="no BM25 index"):
        open_index(here, settings, 1)


def test_internal_numbers_follow_ids(here):
    listed = [
        document.id for block in ordered_documents(here / "results/collections/fox", here, 2) for document in block
    ]
    assert listed == ["d1", "d2", "d3", "d4", "d5", "d6"] and not (here / "corpus.arrow").exists()
    run_index("bm25s")
    assert read_ids(here / "results/bm25/bm25s-flat/fox").to_pylist() == ["d1", "d2", "d3", "d4", "d6"]


@given(st.lists(st.sampled_from([0.5, 1.0, 1.0000002, 7.25, 40.0]), max_size=40))
def test_lowered_ties_never_cross(values):
    scores = np.sort(np.array(values, np.float32))[::-1]
    lowered = lower_ties(scores)
    assert lowered.dtype == np.float32 and (np.diff(lowered) <= 0).all()
    assert (lowered <= scores).all() and (scores - lowered <= 5e-5).all()


def test_ties_are_lowered_by_millionths_where_float32_can():
    lowered = lower_ties(np.array([5, 5, 5, 2, 100, 100][:4], np.float32))
    np.testing.assert_allclose(lowered, [5, 5 - 1e-6, 5 - 2e-6, 2], atol=3e-7)
    assert lower_ties(np.array([100, 100], np.float32)).tolist() == [100, 100]


PUBLISHED = [
    ("scifact", "lucene", "flat", 0.6789, 0.9253, 0.9767),
    ("scifact", "bm25s", "flat", 0.6789, 0.9253, 0.9767),
    ("nfcorpus", "lucene", "flat", 0.3218, 0.2457, 0.3704),
    ("nfcorpus", "lucene", "multifield", 0.3254, 0.2500, 0.3718),
    ("scifact", "lucene", "multifield", 0.6647, 0.9076, 0.9800),
    pytest.param("arguana", "lucene", "flat", 0.3970, 0.9324, 0.9872, marks=pytest.mark.slow),
    pytest.param("arguana", "lucene", "multifield", 0.4142, 0.9431, 0.9893, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name, backend, fields, ndcg, at100, at1000", PUBLISHED)
def test_published_numbers(mirror, tmp_path, monkeypatch, name, backend, fields, ndcg, at100, at1000):
    """pyserini's BEIR regressions, by trec_eval."""
    collection = from_mirror(mirror, name, tmp_path / f"results/collections/{name}")
    monkeypatch.chdir(tmp_path)
    run = read_run(run_search(backend, fields, name=name, exclude_self=name == "arguana"))
    qrels = {
        q: dict(zip(g["document"], map(int, g["grade"]), strict=True))
        for q, g in read_qrels(collection, "test").groupby("query")
    }
    ranked = {q: dict(zip(g["document"], map(float, g["score"]), strict=True)) for q, g in run.groupby("query")}
    found = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100,1000"}).evaluate(ranked).values()
    for measure, expected in (("ndcg_cut_10", ndcg), ("recall_100", at100), ("recall_1000", at1000)):
        assert sum(row[measure] for row in found) / len(qrels) == pytest.approx(expected, abs=5e-4)
