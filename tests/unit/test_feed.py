"""Steps prepared ahead, and tokens that are remembered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from zerodr.training.data import tokens
from zerodr.training.data.tokens import Memo
from zerodr.training.loop.feed import DEPTH, Feed


def test_steps_come_in_order_and_are_prepared_ahead():
    made: list[int] = []
    feed = Feed(lambda step: made.append(step) or step * step, 10)
    assert feed.get(0) == 0
    until(lambda: len(made) > DEPTH)
    assert sorted(made) == list(range(1 + DEPTH)), "no more than is asked for"
    assert [feed.get(step) for step in range(1, 10)] == [step * step for step in range(1, 10)]
    assert sorted(made) == list(range(10)), "each once, none beyond the end"
    feed.close()


def test_waiting_is_counted_after_the_first_step():
    feed = Feed(lambda step: time.sleep(0.2), 2, workers=1)
    feed.get(0)
    assert feed.waited == 0
    feed.get(1)
    assert feed.waited > 0
    feed.close()


def test_a_step_that_is_ready_is_not_waited_for(monkeypatch):
    feed = Feed(lambda step: step, 2, workers=1)
    feed.get(0)
    until(lambda: feed._coming[1].done())
    monkeypatch.setattr(time, "perf_counter", iter([5.0, 5.0]).__next__)
    assert feed.get(1) == 1 and feed.waited == 0
    feed.close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_error_comes_with_its_step():
    def make(step: int) -> int:
        if step == 2:
            raise ValueError("step 2")
        return step

    feed = Feed(make, 5)
    assert [feed.get(0), feed.get(1)] == [0, 1]
    with pytest.raises(ValueError, match="step 2"):
        feed.get(2)
    feed.close()


def test_a_resumed_run_begins_anywhere():
    feed = Feed(lambda step: step, 9)
    assert feed.get(7) == 7 and feed.get(8) == 8
    feed.close()


def test_tokens_are_computed_once_and_bounded(monkeypatch):
    asked: list[str] = []

    def lengths(texts: list[str]) -> list[list[int]]:
        asked.extend(texts)
        return [[len(text)] for text in texts]

    held = Memo(lengths, len)
    assert held.of(["a", "bb", "a"]) == [[1], [2], [1]] and asked == ["a", "bb"]
    assert held.of(["bb", "ccc"]) == [[2], [3]] and asked == ["a", "bb", "ccc"]
    assert held.of([]) == []
    monkeypatch.setattr(tokens, "MEMORY", 2 * tokens.ROW_BYTES)
    small = Memo(lengths, len)
    assert small.of(["d", "e"]) == small.of(["d", "e"]) and len(small.known) == 1


def test_threads_may_share_a_memo():
    held = Memo(lambda texts: [[len(text)] for text in texts], len)
    texts = ["x" * size for size in range(200)]
    seen: list[bool] = []
    threads = [
        threading.Thread(target=lambda: seen.append(held.of(texts) == [[n] for n in range(200)])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 4
