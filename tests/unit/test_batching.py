"""The batch plan: every text once, within the budget, nearly equal lengths together, whatever the input."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerodr.retrieval.batching import Ahead, padded_tokens, plan_batches, windows

LENGTHS = st.lists(st.integers(0, 600), max_size=200).map(np.array)


@given(lengths=LENGTHS, budget=st.integers(1, 5000))
def test_every_row_once_and_within_the_budget(lengths: np.ndarray, budget: int) -> None:
    batches = plan_batches(lengths, budget)
    rows = np.concatenate(batches) if batches else np.zeros(0, int)
    assert sorted(rows.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(1, lengths[batch].max()) <= budget


@given(lengths=LENGTHS, budget=st.integers(1, 5000))
def test_longest_first_stable_and_repeatable(lengths: np.ndarray, budget: int) -> None:
    batches = plan_batches(lengths, budget)
    rows = [int(row) for batch in batches for row in batch]
    assert rows == sorted(rows, key=lambda row: (-lengths[row], row))
    assert [batch.tolist() for batch in plan_batches(lengths.copy(), budget)] == [batch.tolist() for batch in batches]


@given(lengths=LENGTHS.filter(len), budget=st.integers(600, 5000))
def test_no_batch_could_take_the_next_row(lengths: np.ndarray, budget: int) -> None:
    batches = plan_batches(lengths, budget)
    for batch in batches[:-1]:
        assert (len(batch) + 1) * max(1, lengths[batch[0]]) > budget
    assert padded_tokens(lengths, batches) >= lengths.sum()


@given(count=st.integers(0, 50), size=st.integers(1, 20))
def test_windows_cut_and_keep_order(count: int, size: int) -> None:
    texts = [(str(i), "t") for i in range(count)]
    made = list(windows(iter(texts), size))
    assert [text for window in made for text in window] == texts
    assert all(len(window) == size for window in made[:-1])


def test_items_are_prepared_one_ahead():
    begun: list[int] = []
    ahead = Ahead(begun.append(number) or number for number in range(5))
    for number in ahead:
        time.sleep(0.05)
        assert begun == list(range(min(number + 2, 5)))
    assert begun == list(range(5)) and list(Ahead([])) == []


def test_waiting_for_items_is_counted_after_the_first():
    ahead = Ahead(time.sleep(0.1) or number for number in range(3))
    assert list(ahead) == [0, 1, 2]
    assert 0.1 < ahead.waited < 1.0


def test_an_error_of_an_item_comes_to_its_user():
    def failing():
        yield 1
        raise ValueError("item 2")

    with pytest.raises(ValueError, match="item 2"):
        list(Ahead(failing()))
