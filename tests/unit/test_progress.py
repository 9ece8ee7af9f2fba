"""Progress lines: rates, time left, how often they are written."""

from __future__ import annotations

import logging

import pytest

from zerodr.artifacts import progress
from zerodr.artifacts.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_line_has_rate_and_time_left(clock):
    work = Progress("embed", 100, "texts")
    work.done = 20
    assert work.line(110.0) == "embed: 20/100 texts, 2.0/s, 0:40 left"
    assert Progress("embed", 100, "texts").line(101.0) == "embed: 0/100 texts, 0.0/s"
    unknown = Progress("fetch", 0, "bytes")
    unknown.done = 7200
    assert unknown.line(101.0) == "fetch: 7200 bytes, 7200.0/s"


@pytest.mark.parametrize(("rate", "left"), [(2.0, 40.0), (0.5, 160.0), (0.01, 8000.0)])
def test_time_left_is_read_back_from_a_log(rate, left, clock, tmp_path):
    work = Progress("embed", 100, "texts")
    work.done = 20
    (tmp_path / "a.log").write_text(f"{work.line(100 + 20 / rate)}, loss 2.1\n")
    assert progress.reached(tmp_path / "a.log") == (left, "20/100 texts, loss 2.1")
    (tmp_path / "a.log").write_text("nothing yet, 2 documents left\n")
    assert progress.reached(tmp_path / "a.log") is None
    assert progress.reached(tmp_path / "absent.log") is None


def test_resumed_units_do_not_count_for_the_rate(clock, caplog):
    with caplog.at_level(logging.INFO, "zerodr"):
        work = Progress("embed", 100, "texts", done=50)
    assert caplog.messages == ["embed: resumed at 50 of 100 texts"]
    work.done = 60
    assert work.line(110.0) == "embed: 60/100 texts, 1.0/s, 0:40 left"


def test_skipped_units_do_not_count_for_the_rate(clock, caplog):
    with caplog.at_level(logging.INFO, "zerodr"):
        work = Progress("embed", 100, "texts", done=50)
        work.skip(20)
        work.add(10)
        assert work.line(110.0) == "embed: 80/100 texts, 1.0/s, 0:20 left"
        clock[0] += 10
        work.finish()
    assert caplog.messages[-1] == "embed: 80 texts in 0:10 (1.0/s)"


def test_lines_are_rare(clock, caplog):
    with caplog.at_level(logging.INFO, "zerodr"):
        work = Progress("embed", 1000, "texts", every_s=10)
        for _ in range(100):
            clock[0] += 1
            work.add(10)
    assert len(caplog.messages) == 10
    assert caplog.messages[0] == "embed: 100/1000 texts, 10.0/s, 1:30 left"


def test_a_note_ends_the_line(clock, caplog):
    with caplog.at_level(logging.INFO, "zerodr"):
        work = Progress("train", 20, "steps")
        work.note = "loss 0.5000"
        clock[0] += 10
        work.add(10)
        work.finish()
    assert caplog.messages == [
        "train: 10/20 steps, 1.0/s, 0:10 left, loss 0.5000",
        "train: 10 steps in 0:10 (1.0/s), loss 0.5000",
    ]


def test_finish_tells_the_total(clock, caplog):
    with caplog.at_level(logging.INFO, "zerodr"):
        work = Progress("embed", 10, "texts")
        work.add(10)
        clock[0] += 3661
        work.finish()
    assert caplog.messages == ["embed: 10 texts in 1:01:01 (366 s each)"]


def test_no_time_passed(clock):
    work = Progress("embed", 10, "texts")
    work.add(10)
    assert work.line(100.0).startswith("embed: 10/10 texts")
