"""Rows of the check of a GPU: each ends as done, failed or not run; all are written after each row.

A row that raises does not end the others. At the time limit, the row that runs is interrupted, and no further one
starts.
"""

from __future__ import annotations

import datetime
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from train import say

from gpu_check.goals import Verdict, judge, shown

Facts = dict[str, Any]
TIME = "time"
DONE, FAILED, NOT_RUN = "done", "failed", "not run"


class OutOfTime(BaseException):
    """The time limit has come. No handler of errors in a library shall take it for one."""


@dataclass
class Row:
    """One line of the table.

    Attributes:
        what: its name.
        state: how it ended; why: the reason unless it is done.
        facts: what was found; `right` says whether a result is.
        seconds: that it took.
    """

    what: str
    state: str = DONE
    why: str = ""
    facts: Facts = field(default_factory=dict)
    seconds: float = 0.0

    def __enter__(self) -> Row:
        self.seconds = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        """Note how the row ended; an interruption by the user ends the check."""
        self.seconds = round(time.monotonic() - self.seconds, 2)
        if isinstance(error, OutOfTime):
            self.state, self.why = NOT_RUN, TIME
        elif isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] not in ("", "zerodr"):
            self.state, self.why = NOT_RUN, f"package {error.name} is missing"
        elif isinstance(error, Exception):
            text = (str(error).strip() or "no message").splitlines()[0]
            self.state, self.why = FAILED, f"{type(error).__name__}: {text}"
        return self.state != DONE

    @property
    def result(self) -> str:
        """Say how it ended in a few words; nothing of figures alone."""
        if self.state != DONE:
            return f"{self.state}: {self.why}"
        return {True: "right", False: "wrong", None: ""}[self.facts.get("right")]

    def line(self) -> str:
        """Format the row for the terminal."""
        return "; ".join(filter(None, (f"{self.what}: {self.result}".removesuffix(": "), shown(self.facts))))


@dataclass
class Report:
    """All rows, with what they are rows of.

    Args:
        facts: device, versions, source of the texts.
        limit: seconds for all rows.
        file: written after each row; None: nowhere.
        measured: the device's figures count; those of tiny models on a CPU do not.
    """

    facts: Facts
    limit: float
    file: Path | None
    measured: bool
    rows: list[Row] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds until the limit."""
        return self.limit - (time.monotonic() - self.started)

    def run(self, what: str, work: Callable[[], Facts]) -> None:
        """Run one row, print it, and write all."""
        row = Row(what)
        self.rows.append(row)
        with row:
            with self._until_limit():
                row.facts = work()
        say(row.line())
        self.write()

    @contextmanager
    def _until_limit(self) -> Iterator[None]:
        """Interrupt what runs inside at the limit, at once where it has passed."""

        def stop(number: int, frame: FrameType | None) -> None:
            raise OutOfTime

        if self.left() <= 0:
            raise OutOfTime
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, self.left())
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def named(self, state: str) -> list[str]:
        """List rows that ended so, with reasons."""
        return [f"{row.what} ({row.why})" for row in self.rows if row.state == state]

    def wrong(self) -> list[str]:
        """List rows whose results are wrong."""
        return [row.what for row in self.rows if row.facts.get("right") is False]

    def verdicts(self) -> list[Verdict]:
        """Judge the goals."""
        return judge({row.what: row.facts for row in self.rows if row.state == DONE} if self.measured else {})

    def table(self) -> str:
        """Format all rows as a table of Markdown, for benchmarks/gpu.md."""
        verdicts = self.verdicts()
        head = ", ".join(f"{name} {value}" for name, value in self.facts.items() if not isinstance(value, dict))
        lines = [f"{head}.", "", "| line | result | figures | goals |", "|---|---|---|---|"]
        for row in self.rows:
            goals = "; ".join(f"{one.goal}: {one.verdict}" for one in verdicts if one.row == row.what)
            cells = (cell.replace("|", "/") for cell in (row.what, row.result, shown(row.facts), goals))
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def write(self) -> None:
        """Write all as JSON, whole or not at all."""
        if self.file is None:
            return
        content = {
            **self.facts,
            "limit_seconds": self.limit,
            "rows": [asdict(row) for row in self.rows],
            "goals": [asdict(verdict) for verdict in self.verdicts()],
            "wrong": self.wrong(),
            "failed": self.named(FAILED),
            "not_run": self.named(NOT_RUN),
            "table": self.table(),
        }
        partial = self.file.with_name(f".{self.file.name}.writing")
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.file)


def today() -> str:
    """Return the time of the run, UTC."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
