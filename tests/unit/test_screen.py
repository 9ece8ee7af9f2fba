"""The screen of a run: a line a finished job, time left, errors, nothing else."""

from __future__ import annotations

import io
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from zerodr.artifacts.adapter import configure_logging
from zerodr.artifacts.guard import FAILED, QUIET_STAGES
from zerodr.operations import screen
from zerodr.operations.loading import take_screen


def record(message: str = "", level: int = logging.INFO, **facts: Any) -> logging.LogRecord:
    made = logging.LogRecord("snakemake.logging", level, "", 0, message, (), None)
    made.__dict__.update(facts)
    return made


def started(number: int, rule: str, **wildcards: str) -> logging.LogRecord:
    log = [f"results/logs/{rule}.log"]
    return record(event="job_info", jobid=number, rule_name=rule, wildcards=wildcards, log=log)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(screen.time, "monotonic", lambda: now.seconds)
    monkeypatch.setattr(screen.threading.Thread, "start", lambda self: None)
    return now


def shown(*records: logging.LogRecord, expected: dict[int, float] | None = None, **clock: Any) -> list[str]:
    stream = io.StringIO()
    handler = screen.Screen(stream, False)
    handler.expect(expected or {1: 10.0, 2: 30.0})
    for one in records:
        handler.emit(one)
    return stream.getvalue().splitlines()


def test_a_finished_job_is_a_line_with_progress_time_left_and_its_own_time(clock):
    stream = io.StringIO()
    handler = screen.Screen(stream, False)
    handler.expect({1: 10.0, 2: 30.0})
    handler.emit(record(event="run_info", stats={"fetch_archive": 1, "finetune": 1, "total": 2}))
    handler.emit(record("Execute 1 jobs...", event="job_started", jobs=[1]))
    handler.emit(started(1, "fetch_archive", archive="toy.zip"))
    clock.seconds = 20.0
    handler.emit(record("Finished jobid: 1", event="job_finished", job_id=1))
    handler.emit(record(event="progress", done=1, total=2))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "2 jobs: 1 fetch_archive, 1 finetune"
    assert lines[1].partition(" ")[2] == "[1 of 2, about 60 s left] fetch_archive toy.zip: 20 s"
    assert len(lines) == 2


@pytest.mark.parametrize("columns, most", [(0, 79), (100, 99)])
def test_the_status_is_one_line_of_the_terminal(clock, monkeypatch, columns, most):
    monkeypatch.setattr(screen.os, "get_terminal_size", lambda fileno: screen.os.terminal_size((columns, 0)))
    stream = io.StringIO()
    stream.fileno = lambda: 1  # type: ignore[method-assign]
    handler = screen.Screen(stream, terminal=True)
    handler.expect({1: 10.0})
    handler.emit(started(1, "embed_corpus", model="m" * 200))
    handler._show_running(5.0)
    assert len(stream.getvalue().removeprefix(screen.CLEAR)) == most


@pytest.mark.parametrize("chosen, shown", [({}, "nDCG@10 0.3218"), ({"metric": "ndcg_cut_15"}, "nDCG@15 0.3100")])
def test_an_evaluation_shows_the_measure_of_the_table(clock, tmp_path, chosen, shown):
    summary = tmp_path / "standard.summary.tsv"
    summary.write_text("metric\tvalue\nmap\t0.1\nndcg_cut_10\t0.32178\nndcg_cut_15\t0.31\n")
    stream = io.StringIO()
    handler = screen.Screen(stream, terminal=False)
    handler.expect({1: 10.0}, **chosen)
    begun = started(1, "evaluate_run", model="bm25-flat")
    begun.__dict__["output"] = [str(summary)]
    handler.emit(begun)
    handler.emit(record("Finished jobid: 1", event="job_finished", job_id=1))
    assert stream.getvalue().endswith(f"evaluate_run bm25-flat: 0 s, {shown}\n")


def test_running_jobs_count_up_to_their_estimate(clock):
    progress = screen.RunProgress({1: 10.0, 2: 30.0})
    job = screen.Running("finetune", "", 0.0, 30.0)
    assert progress.seconds_left([job], 0.0) is None
    assert progress.seconds_left([job], 20.0) == pytest.approx(20.0)
    assert progress.seconds_left([job], 60.0) == pytest.approx((40 - 24) * 60 / 24), "a fifth of it is left"


def test_on_this_machine_fast_small_jobs_do_not_make_the_long_ones_short(clock):
    progress = screen.RunProgress({1: 10.0, 2: 3000.0}, here=True)
    clock.seconds = 1.0
    progress.finish(1)
    assert progress.seconds_left([], 1.0) == pytest.approx(3000 * 61 / 70)  # by the first job's rate alone: 300 s
    job = screen.Running("finetune", "", 1.0, 3000.0)
    assert progress.seconds_left([job], 2001.0) == pytest.approx(1000)


def test_a_running_job_that_tells_a_longer_time_counts_with_it(clock, tmp_path):
    log = tmp_path / "finetune.log"
    progress = screen.RunProgress({1: 600.0, 2: 600.0}, here=True)
    job = screen.Running("finetune", str(log), 0.0, 600.0)
    assert progress.seconds_left([job], 300.0) == pytest.approx(900), "no log yet"
    log.write_text("10:00:00 [finetune dpr] train: 2/6 steps, 0.0/s, 9:59:59 left\n" + 500 * "x" + "\n")
    with log.open("a") as lines:
        lines.write("10:05:00 [finetune dpr] train: 3/9 steps, 0.0/s, 10:00 left, loss 2\nstep 3\n")
    assert progress.seconds_left([job], 300.0) == pytest.approx(600 * 360 / 260 + 600), "a third of it is done"
    done = 600 * 700 / 1300
    assert progress.seconds_left([job], 700.0) == pytest.approx(600 * 760 / (done + 60) + 600), "all are slower"
    progress.finish(1)
    assert progress.seconds_left([], 1300.0) == pytest.approx(600 * 1360 / 660), "it took twice its estimate"


def test_a_run_that_takes_longer_than_estimated_says_so_while_its_long_job_runs(clock):
    """A training estimated as 10 minutes takes 35, without a line in its log: the time left does not stand still."""
    progress = screen.RunProgress({1: 600.0, 2: 300.0}, here=True)
    job = screen.Running("finetune", "", 0.0, 600.0)
    left = [progress.seconds_left([job], minutes * 60.0) for minutes in (5, 10, 20, 30)]
    assert left[0] == pytest.approx(600) and left[1:] == sorted(left[1:])
    ends = [minutes * 60 + seconds for minutes, seconds in zip((5, 10, 20, 30), left, strict=True)]
    assert ends == sorted(ends) and ends[3] > 40 * 60


def test_the_time_left_of_a_training_on_a_slow_processor_is_that_of_its_log(clock, tmp_path):
    """Estimated as 10 minutes, it takes 30: after a minute the rest is known, and falls minute by minute."""
    progress, log = screen.RunProgress({1: 600.0}, here=True), tmp_path / "finetune.log"
    job = screen.Running("finetune", str(log), 0.0, 600.0)
    for minute in range(1, 30):
        log.write_text(f"10:00:00 [finetune dpr] train: {minute}/30 steps, 0.0/s, {30 - minute}:00 left\n")
        assert progress.seconds_left([job], 60.0 * minute) == pytest.approx(60 * (30 - minute))


def test_the_first_short_part_of_a_running_job_does_not_make_it_short(clock, tmp_path):
    log = tmp_path / "finetune.log"
    log.write_text("10:00:00 [finetune dpr] rank scifact: 7/9 queries, 9.0/s, 0:01 left\n")
    job = screen.Running("finetune", str(log), 0.0, 600.0)
    assert screen.RunProgress({1: 600.0}, here=True).seconds_left([job], 100.0) == pytest.approx(500)


def test_noise_is_left_out_and_messages_come_once(clock):
    lines = shown(
        record("Building DAG of jobs..."),
        record("No SLURM account given, trying to guess."),
        record("No account was given, not able to get a SLURM account via sacct: sacct: invalid option -- '1'"),
        record("Will exit after finishing currently running jobs (scheduler)."),
        record("Will exit after finishing currently running jobs (scheduler)."),
        record("Nothing to be done (all requested files are present and up to date)."),
    )
    assert [line.split()[0] for line in lines] == ["Will", "Nothing"]


def test_a_failed_job_names_its_log_and_the_end_is_left_to_the_errors(clock):
    failed = record(level=logging.ERROR, event="job_error", jobid=1, rule_name="finetune", log=[])
    lines = shown(started(1, "finetune", model="dpr"), failed, record(f"WorkflowError:\n{FAILED}"))
    assert [line.partition(" ")[2] for line in lines] == ["failed: finetune dpr (log: results/logs/finetune.log)"]


def test_a_job_that_ends_with_a_stopped_run_has_not_failed(clock):
    stop = record("Terminating processes on user request, this might take some time.", logging.WARNING)
    failed = record(level=logging.ERROR, event="job_error", jobid=1, rule_name="finetune", log=[])
    assert shown(started(1, "finetune", model="dpr"), stop, failed) == [stop.msg]


def test_silence_is_broken_after_a_minute(clock):
    stream = io.StringIO()
    handler = screen.Screen(stream, False)
    handler.expect({1: 10.0})
    handler.emit(started(1, "finetune", model="dpr"))
    handler._show_running(59.0)
    assert not stream.getvalue()
    handler._show_running(61.0)
    assert "running: finetune dpr (61 s)" in stream.getvalue()


def test_a_running_job_shows_how_far_it_is(clock, tmp_path):
    log = tmp_path / "a.log"
    job = screen.Running("finetune dpr", str(log), 0.0, 10.0)
    assert job.shown(240.0) == "finetune dpr (4 min)"
    log.write_text("10:00:00 [finetune dpr] train: 3/9 steps, 12 s each, 1:12 left, loss 2.0000\nanother line\n")
    assert job.shown(240.0) == "finetune dpr (4 min, 3/9 steps, loss 2.0000)"


def test_a_dry_run_and_loud_or_quiet_runs_keep_snakemakes_output():
    for word in ("dryrun", "verbose", "quiet"):
        settings = SimpleNamespace(dryrun=False, verbose=False, quiet=set())
        setattr(settings, word, True)
        assert take_screen(settings, main=True) is None


def test_stages_of_a_run_with_a_screen_log_to_their_file_alone(tmp_path, monkeypatch):
    log = logging.getLogger("zerodr")
    monkeypatch.setenv(QUIET_STAGES, "1")
    configure_logging("stage", str(tmp_path / "stage.log"))
    assert [type(handler).__name__ for handler in log.handlers] == ["_LogFile"]
    configure_logging("stage")
    assert len(log.handlers) == 1
    log.handlers.clear()
