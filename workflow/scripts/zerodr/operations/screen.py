"""Show a run on the screen: one line a finished job with the progress of the whole DAG and the time left.

Snakemake's log file and the stages' log files have every detail. A dry run, `--verbose`, `--quiet` and a logger plugin
leave Snakemake's output as it is.
"""

from __future__ import annotations

import contextlib
import csv
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerodr.artifacts.adapter import report_error
from zerodr.artifacts.guard import FAILED, ON_REQUEST
from zerodr.artifacts.progress import Reached, reached
from zerodr.config.measures import label_of
from zerodr.config.quantities import counted, duration, first_names
from zerodr.operations.slurm.ending import ending_of, refused_by, slurm_log

HIDDEN = {
    "job_started",
    "workflow_started",
    "resources_info",
    "shellcmd",
    "group_info",
    "rulegraph",
    "debug_dag",
    "progress",
}
NOISE = (
    *("Building DAG of jobs", "Select jobs to execute", "Execute ", "Finished jobid", "Conda environments: ignored"),
    *("Group jobs: inactive", "Singularity containers", "Using shell", "Removing temporary output", "Touching output"),
    *("Assuming unrestricted", "Elapsed time", "RuleException", "Exiting because a job execution failed"),
    # Plugin 2.8 gives `| tail -1` to sacct, which fails on every cluster; the user's default account is taken.
    *("No SLURM account given, trying to guess", "No account was given, not able to", "Unable to guess SLURM account"),
)
FAILED_RUN = re.compile(rf"^Complete log|{re.escape(FAILED)}")
BEAT_S, STATUS_S = 60.0, 1.0  # between lines without a terminal; between changes of a terminal's last line
LATE = 1.25  # a job past its estimate is expected to take this many times what it took already
TRUST_S = 60.0  # on this machine, estimates count as much as so many seconds of seen work
METRIC = "ndcg_cut_10"  # of an evaluation, shown with its line where the configuration names no measure
CLEAR = "\r\x1b[2K"
WIDTH = 80  # columns of a terminal that does not know its size, as in containers and scripts


@dataclass
class Running:
    """A job that was started.

    Attributes:
        name: rule and wildcards.
        log: its log file.
        since: monotonic time of its start.
        expected: its estimated seconds.
        outputs: files that it writes.
    """

    name: str
    log: str
    since: float
    expected: float
    outputs: tuple[str, ...] = ()

    def whole(self, now: float) -> float:
        """Estimate the seconds from its start to its end; its log or overrun can only raise them."""
        taken, at = now - self.since, self.reached()
        return max(self.expected, taken + at.left if at is not None else LATE * taken)

    def reached(self) -> Reached | None:
        """Read how far it is from its log."""
        return reached(Path(self.log)) if self.log else None

    def shown(self, now: float) -> str:
        """Format it: `finetune dpr (4 min, 40/100 steps, loss 2.1)`."""
        at = self.reached()
        return f"{self.name} ({duration(now - self.since)}{f', {at.words}' if at else ''})"


def result_of(outputs: tuple[str, ...], metric: str = METRIC) -> str:
    """Read a measure from the summary of an evaluation; empty where a job wrote none."""
    for path in outputs:
        if path.endswith(".summary.tsv"):
            with open(path, encoding="utf-8") as stream:
                for row in csv.DictReader(stream, delimiter="\t"):
                    if row["metric"] == metric:
                        return f"{label_of(metric)} {float(row['value']):.4f}"
    return ""


def _ended(record: Any, name: str, log: str) -> str:
    """Format a failed job and its log. One that Slurm ended, or did not take, could not say why: leave its error here.

    A job's own log is replaced by that of its next attempt; Slurm's of each attempt stays, and has the same lines.
    """
    slurm = slurm_log(record.log or [], log)
    if slurm and (ending := ending_of(Path(slurm), record.rule_name)):
        _leave_error(name, log, ending.error(slurm))
        return f"{ending.verb}: {name}: {ending.reason} (log: {slurm})"
    if not slurm and (refusal := refused_by(getattr(record, "rule_msg", None) or "", name)):
        _leave_error(name, log, str(refusal))
        return f"failed: {name}: {refusal.what}"
    return f"failed: {name} (log: {slurm or log})" if slurm or log else f"failed: {name}"


def _leave_error(name: str, log: str, message: str) -> None:
    report_error(name, message)
    with contextlib.suppress(OSError), open(log, "a", encoding="utf-8") as stream:
        stream.write(f"{time.strftime('%H:%M:%S')} [{name}] {message}\n")


class RunProgress:
    """Estimated work of a run: how much is done, and when the rest will be.

    Args:
        expected: estimated seconds by job.
        here: jobs run on this machine, so about one after another. On a cluster nothing is assumed.
    """

    def __init__(self, expected: Mapping[int, float], here: bool = False) -> None:
        self.expected, self.done, self.start = dict(expected), 0.0, time.monotonic()
        self.trust = TRUST_S if here else 0.0
        self.finished = 0

    def finish(self, job: int) -> None:
        """Count a finished job."""
        self.finished += 1
        self.done += self.expected.get(job, 0.0)

    def seconds_left(self, running: list[Running], now: float) -> float | None:
        """Estimate the time left from the rate up to now; None before anything is known.

        Small jobs run first and say little of the long ones: on this machine the estimates count, too. A running job
        that takes longer than estimated makes the rate of all: the jobs after it count in proportion. What its log
        says is left of it is believed at once.
        """
        spans = [(job.expected, now - job.since, max(job.whole(now), 1e-9)) for job in running]
        done = self.done + sum(expected * taken / whole for expected, taken, whole in spans)
        if done <= 0 or now - self.start < STATUS_S:
            return None
        rate = (now - self.start + self.trust) / (done + self.trust)
        waiting = sum(self.expected.values()) - self.done - sum(expected for expected, _, _ in spans)
        return waiting * rate + max((whole - taken for _, taken, whole in spans), default=0.0)

    def shown(self, running: list[Running], now: float) -> str:
        """Format it: `[12 of 62, about 14 min left]`."""
        left = self.seconds_left(running, now)
        more = f", about {duration(left)} left" if left is not None and self.finished < len(self.expected) else ""
        return f"[{self.finished} of {len(self.expected)}{more}]"


class Screen(logging.Handler):
    """The handler of the main process.

    Args:
        stream: where it writes.
        terminal: the stream shows a status line at its end.
    """

    def __init__(self, stream: Any, terminal: bool) -> None:
        super().__init__()
        self.stream, self.terminal = stream, terminal
        self.running: dict[int, Running] = {}
        self.progress: RunProgress | None = None
        self.metric = METRIC
        self.spoken: set[str] = set()
        self.failed = self.stopped = False
        self.written = time.monotonic()

    def expect(self, expected: Mapping[int, float], here: bool = False, metric: str = METRIC) -> None:
        """Start to show progress.

        Args:
            expected: estimated seconds by job.
            here: jobs run on this machine.
            metric: measure of the table, shown with a finished evaluation.
        """
        self.progress, self.metric = RunProgress(expected, here), metric
        threading.Thread(target=self._beat, daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Write what a record is for a reader, if anything."""
        event = str(getattr(record, "event", "") or "")
        handle = getattr(self, f"_on_{event}", None)
        if handle is not None:
            self._write(handle(record))
        elif event not in HIDDEN:
            self._write(self._message(record))

    def _message(self, record: logging.LogRecord) -> str:
        text = str(record.msg or "").strip()
        self.stopped |= ON_REQUEST in text
        if not text or text.startswith(NOISE) or text in self.spoken or (self.failed and FAILED_RUN.search(text)):
            return ""  # the errors of the stages are repeated last
        self.spoken.add(text)
        return text

    def _on_run_info(self, record: Any) -> str:
        jobs = {name: count for name, count in record.stats.items() if name not in ("total", "all")}
        total = record.stats["total"]
        return f"{counted(total, 'job')}: " + ", ".join(f"{count} {name}" for name, count in jobs.items())

    def _on_job_info(self, record: Any) -> str:
        name = " ".join([record.rule_name, *map(str, (record.wildcards or {}).values())])
        expected = self.progress.expected.get(record.jobid, 0.0) if self.progress else 0.0
        log, outputs = ", ".join(record.log or []), tuple(map(str, getattr(record, "output", None) or []))
        self.running[record.jobid] = Running(name, log, time.monotonic(), expected, outputs)
        return ""

    def _on_job_finished(self, record: Any) -> str:
        now, job = time.monotonic(), self.running.pop(record.job_id, None)
        if self.progress is None or job is None:
            return ""
        self.progress.finish(record.job_id)
        shown = self.progress.shown(list(self.running.values()), now)
        value = result_of(job.outputs, self.metric)
        return f"{time.strftime('%H:%M:%S')} {shown} {job.name}: {duration(now - job.since)}{value and f', {value}'}"

    def _on_job_error(self, record: Any) -> str:
        job = self.running.pop(record.jobid, None)
        if self.stopped:
            return ""  # it was ended with the run
        self.failed = True
        name, log = (job.name, job.log) if job else (record.rule_name, ", ".join(record.log or []))
        return f"{time.strftime('%H:%M:%S')} {_ended(record, name, log)}"

    def _write(self, text: str) -> None:
        if not text:
            return
        self.stream.write(f"{CLEAR if self.terminal else ''}{text}\n")
        self.stream.flush()
        self.written = time.monotonic()

    def _beat(self) -> None:
        """Rewrite the terminal's last line; without a terminal, write a line after a minute of silence."""
        while True:
            time.sleep(STATUS_S)
            self.acquire()
            try:
                self._show_running(time.monotonic())
            finally:
                self.release()

    def _show_running(self, now: float) -> None:
        jobs = list(self.running.values())
        if not jobs or self.progress is None:
            return
        named = first_names([job.shown(now) for job in jobs], 3)
        text = f"{self.progress.shown(jobs, now)} running: {named}"
        if self.terminal:
            width = os.get_terminal_size(self.stream.fileno()).columns or WIDTH
            self.stream.write(f"{CLEAR}{text[: width - 1]}")
            self.stream.flush()
        elif now - self.written >= BEAT_S:
            self._write(f"{time.strftime('%H:%M:%S')} {text}")
