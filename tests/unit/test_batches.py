"""Batches are functions of seed and step; groups of texts waste little; mined files are read whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.training_helpers import QUERIES, make_mined, make_source, ragged, tiny_examples

from zerodr.errors import ArtifactError, ConfigError
from zerodr.training.data.batches import Stream, epoch_order, length_groups, usable_rows
from zerodr.training.data.examples import Examples, load_examples


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Examples:
    return tiny_examples(tmp_path_factory.mktemp("data"))


def made_up(negatives: list[list[int]]) -> Examples:
    count = len(negatives)
    names = pa.array([f"x{i}" for i in range(100)])
    return Examples(names[:count], names[:count], names, names, ragged([[i] for i in range(count)]), ragged(negatives))


def test_texts_are_of_the_ids(examples):
    assert len(examples) == QUERIES
    ids, texts = examples.documents.to_pylist(), examples.document_texts.to_pylist()
    by_id = dict(zip(ids, texts, strict=True))
    assert by_id["d1"].startswith("title1 ") and "title" not in by_id["d3"]
    assert examples.document_ids(examples.positives[0]) == ["d0", "d50"]
    query = examples.texts_of_queries(np.array([4]))[0]
    assert query in by_id["d4"]


def test_titles_can_be_left_out(tmp_path):
    examples = load_examples(make_mined(tmp_path / "mined"), make_source(tmp_path / "source"), None)
    assert not any(text.startswith("title") for text in examples.document_texts.to_pylist())


def test_scores_belong_to_the_documents(tmp_path):
    examples = tiny_examples(tmp_path, scored=True)
    batch = Stream(examples, np.arange(QUERIES), 8, 2, [0]).batch(3)
    for row, documents, teacher in zip(batch.rows, batch.documents, batch.teacher, strict=True):
        own = np.r_[examples.positives[row][:1], examples.negatives[row]]
        assert documents[0] == own[0]
        places = [own.tolist().index(document) for document in documents]
        np.testing.assert_array_equal(teacher, examples.scores[row][places])


def test_scores_of_other_rows_are_refused(tmp_path):
    import pyarrow.parquet as pq

    source, scored = make_source(tmp_path / "source"), make_mined(tmp_path / "scored", scored=True)
    table = pq.read_table(scored / "scored.parquet")
    short = pa.array([row[:-1] for row in table["scores"].to_pylist()], pa.list_(pa.float32()))
    pq.write_table(table.set_column(3, "scores", short), scored / "scored.parquet")
    with pytest.raises(ArtifactError, match="query q0 has 4 scores, expected 5"):
        load_examples(scored, source, " ", scored)


@settings(max_examples=25, deadline=None)
@given(count=st.integers(8, 40), batch=st.integers(1, 8), seed=st.integers(0, 9))
def test_an_epoch_uses_each_query_at_most_once(count, batch, seed):
    examples = made_up([[50 + i, 60 + i] for i in range(count)])
    stream = Stream(examples, np.arange(count), batch, 1, [seed])
    for epoch in (0, 1):
        first = epoch * stream.steps_per_epoch
        seen = [row for step in range(first, first + stream.steps_per_epoch) for row in stream.batch(step).rows]
        assert len(seen) == len(set(seen)) == count // batch * batch


@settings(max_examples=25, deadline=None)
@given(step=st.integers(0, 200), seed=st.integers(0, 9), world=st.sampled_from([1, 2, 4, 8]))
def test_batches_are_functions_of_seed_and_step(examples, step, seed, world):
    one, other = (Stream(examples, np.arange(QUERIES), 8, 2, [seed, 0]) for _ in range(2))
    other.batch(7)
    batch, again = one.batch(step), other.batch(step)
    np.testing.assert_array_equal(batch.documents, again.documents)
    parts = [batch.shard(rank, world) for rank in range(world)]
    np.testing.assert_array_equal(np.concatenate([part.documents for part in parts]), batch.documents)
    np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), batch.rows)


def test_orders_and_draws_differ_between_epochs_steps_and_stages(examples):
    first = epoch_order([13, 0], 0, 100)
    assert sorted(first) == list(range(100))
    for other in (epoch_order([13, 0], 1, 100), epoch_order([13, 1], 0, 100), epoch_order([14, 0], 0, 100)):
        assert (first != other).any()
    stream = Stream(examples, np.arange(QUERIES), QUERIES, 2, [0])
    a, b = stream.batch(0), stream.batch(1)
    drawn = [dict(zip(x.rows.tolist(), x.documents.tolist(), strict=True)) for x in (a, b)]
    assert any(drawn[0][row] != drawn[1][row] for row in drawn[0])


def test_negatives_are_drawn_without_repetition_where_there_are_enough():
    stream = Stream(made_up([[50, 51, 52, 53]] * 8 + [[60]] * 2), np.arange(10), 10, 3, [1])
    for step in range(20):
        batch = stream.batch(step)
        for row, documents in zip(batch.rows, batch.documents, strict=True):
            negatives = set(documents[1:].tolist())
            assert documents[0] == row
            assert negatives == {60} if row >= 8 else len(negatives) == 3 and negatives <= {50, 51, 52, 53}


def test_negatives_of_a_query_follow_each_other_and_all_come_before_one_again():
    """As the released loaders of MoDIR (20 of 20) and COCO-DR (6 of 30 in each of five passes)."""
    stream = Stream(made_up([list(range(10 * q, 10 * q + 6)) for q in range(8)]), np.arange(8), 4, 1, [1], 3)
    assert stream.steps_per_epoch == 6
    seen: dict[int, list[int]] = {}
    for epoch in range(2):
        steps = [stream.batch(6 * epoch + step) for step in range(6)]
        rows = np.concatenate([batch.rows for batch in steps])
        assert (rows.reshape(8, 3) == rows[::3, None]).all() and sorted(rows[::3]) == list(range(8))
        for row, (_, negative) in zip(rows, np.concatenate([batch.documents for batch in steps]), strict=True):
            seen.setdefault(int(row), []).append(int(negative))
    assert all(len(set(negatives)) == 6 == len(negatives) for negatives in seen.values())


def test_every_positive_is_drawn(examples):
    stream = Stream(examples, np.arange(QUERIES), QUERIES, 1, [2])
    drawn = {int(batch.documents[batch.rows == 0][0, 0]) for batch in map(stream.batch, range(20))}
    assert drawn == set(examples.positives[0].tolist())


def test_a_batch_larger_than_the_data_is_refused(examples):
    with pytest.raises(ConfigError, match="batch of 49 queries is larger than the 48"):
        Stream(examples, np.arange(QUERIES), 49, 1, [0])


def test_rows_without_documents_are_counted():
    examples = Examples(*[pa.array(["a", "b", "c"])] * 4, ragged([[0], [], [1]]), ragged([[1], [2], []]))
    rows, counts = usable_rows(examples, 1)
    assert rows.tolist() == [0] and counts == {"queries_without_positive": 1, "queries_without_negative": 1}
    assert usable_rows(examples, 0)[0].tolist() == [0, 2]


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=80),
    waste=st.integers(0, 500),
    texts=st.one_of(st.none(), st.integers(1, 10)),
)
def test_groups_hold_all_texts_once_and_waste_little(lengths, waste, texts):
    groups = length_groups(lengths, waste, texts)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        sizes = [lengths[index] for index in group]
        assert len(sizes) * max(sizes) - sum(sizes) <= waste
        assert texts is None or len(group) <= texts
