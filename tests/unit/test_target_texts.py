"""The texts of a target: which ones a step takes, and how they are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.encoder_helpers import make_collection

from zerodr.errors import CollectionError
from zerodr.papers.modir.settings import TargetTexts
from zerodr.papers.modir.target_texts import TargetSizes, TargetStream, check_size, draw_texts, read_target

ROWS = [("a", "Title", "text"), ("b", "", "alone"), ("c", "", "  "), ("d", "only a title", "")]
HOW = {"target": TargetTexts(split="test")}


@given(st.integers(3, 40), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_every_text_is_taken_once_an_epoch(documents, queries, batch, seed):
    stream = TargetStream(TargetSizes(documents, queries), batch, [seed])
    taken = np.concatenate([stream.documents(step) for step in range(-(-2 * documents // batch))])
    assert (np.bincount(taken[: 2 * documents], minlength=documents) == 2).all()
    asked = np.concatenate([stream.queries(step) for step in range(-(-3 * queries // batch))])
    assert (np.bincount(asked[: 3 * queries], minlength=queries) == 3).all()


def test_the_released_restart_reads_3200_lines():
    sizes = TargetSizes(171_331, 50)
    stream = TargetStream(sizes, 4 * 4 * 2, [0], in_file_order=True, restart=100, micro_batches=4)
    lines = np.concatenate([stream.lines(step) for step in range(1000)])
    documents = np.concatenate([stream.documents(step) for step in range(1000)])
    assert len(np.unique(lines)) == 3200 and len(np.unique(documents)) == 3200
    assert len(np.unique(np.concatenate([TargetStream(sizes, 32, [0], True).lines(k) for k in range(1000)]))) == 32_000


def test_the_order_of_the_file():
    """Two micro-batches of 2: first documents of lines 0 and 1, second documents of lines 2 and 3."""
    stream = TargetStream(TargetSizes(11, 3), 4, [0], in_file_order=True, micro_batches=2)
    assert stream.documents(0).tolist() == [0, 2, 5, 7] and stream.queries(0).tolist() == [0, 1, 2, 0]
    assert stream.lines(1).tolist() == [4, 5, 0, 1], "6 lines: 11 documents, two a line"
    assert stream.documents(1).tolist() == [8, 10, 1, 3]


def test_a_batch_is_a_pure_function_of_its_step():
    sizes = TargetSizes(10, 4)
    first, second = TargetStream(sizes, 3, [7]), TargetStream(sizes, 3, [7])
    later = [second.documents(step).tolist() for step in (9, 2, 30)]
    assert [first.documents(step).tolist() for step in range(31)][9] == later[0]
    assert first.documents(2).tolist() == later[1] and first.documents(30).tolist() == later[2]
    assert TargetStream(sizes, 3, [8]).documents(0).tolist() != first.documents(0).tolist()
    assert TargetStream(TargetSizes(10, 0), 3, [7]).queries(0) is None


def test_documents_without_a_text_are_left_out(tmp_path, caplog):
    make_collection(tmp_path / "target", ROWS, [("q", "asked"), ("r", " ")])
    corpus = read_target({"target": tmp_path / "target"}, HOW, "test")
    assert corpus.sizes == TargetSizes(3, 1) and corpus.empty == 1
    assert corpus.texts(np.array([0, 1, 2])).to_pylist() == ["Title text", "alone", "only a title "]
    assert "1 documents without a text are left out" in caplog.text
    bare = read_target({"target": tmp_path / "target"}, {"target": TargetTexts(split="test", title_join=None)}, "test")
    assert bare.texts(np.array([0, 1])).to_pylist() == ["text", "alone"] and bare.empty == 2


def test_several_collections_are_one_target_and_only_what_is_drawn_is_read(tmp_path):
    for name in ("one", "two"):
        make_collection(tmp_path / name, [(f"{name}{i}", "", f"{name} {i}") for i in range(5)], [(name, f"ask {name}")])
    how = {name: TargetTexts(split="test") for name in ("one", "two")}
    corpus = read_target({name: tmp_path / name for name in how}, how, "test")
    assert corpus.sizes == TargetSizes(10, 2) and corpus.queries == ["ask one", "ask two"]
    stream = TargetStream(corpus.sizes, 3, [0])
    drawn = draw_texts(corpus, stream, 2)
    assert len(drawn.numbers) == 6
    for step in (0, 1):
        numbers = stream.documents(step)
        told = [f"{'one' if n < 5 else 'two'} {n % 5}" for n in numbers.tolist()]
        assert drawn.texts_of_documents(numbers) == told
        assert drawn.texts_of_queries(stream.queries(step)) == [corpus.queries[n] for n in stream.queries(step)]


def test_unlabelled_queries_are_those_that_no_split_judges(tmp_path):
    folder = tmp_path / "target"
    make_collection(folder, ROWS, [("q", "judged"), ("u", "not judged"), ("t", "judged in train")])
    (folder / "qrels.test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    (folder / "qrels.train.tsv").write_text("query-id\tcorpus-id\tscore\nt\ta\t1\n")
    found = read_target({"target": folder}, {"target": TargetTexts()}, "unlabelled")
    assert found.queries == ["not judged"]
    apart = pa.table([["v", "w", "x"], ["kept apart", " ", "Judged "]], names=["id", "text"])
    pq.write_table(apart, folder / "queries_unlabelled.parquet")
    found = read_target({"target": folder}, {"target": TargetTexts()}, "unlabelled")
    assert found.queries == ["not judged", "kept apart"]
    assert read_target({"target": folder}, HOW, "test").queries == ["judged"]
    assert read_target({"target": folder}, {"target": TargetTexts()}, "none").queries == []


def test_what_a_target_must_have(tmp_path):
    make_collection(tmp_path / "target", ROWS, [("q", "asked")])
    folders = {"target": tmp_path / "target"}
    with pytest.raises(CollectionError, match=r"target: the target has no unlabelled queries: set adversary\.queries"):
        read_target(folders, {"target": TargetTexts()}, "unlabelled")
    with pytest.raises(CollectionError, match="has 3 documents with a text, a batch takes 8: set training.batch_quer"):
        check_size("target", read_target(folders, HOW, "test").sizes, 8)
    with pytest.raises(CollectionError, match="has 0 documents"):
        check_size("target", TargetSizes(0, 2), 8)
