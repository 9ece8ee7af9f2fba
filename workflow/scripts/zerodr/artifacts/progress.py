"""Log progress lines with rate and time left, at a limited frequency."""

import logging
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger("zerodr")
REACHED = re.compile(r": (\d+/\d+ [^,\n]+), [^,\n]+, (?:(\d+):)?(\d+):(\d\d) left\b(?:, ([^\n]*))?")
SLOW = 0.1  # units a second, below which a rate is written as seconds a unit
TAIL_BYTES = 4096


class Progress:
    """A log of `what: done/total unit, rate, ETA`, at most every `every_s` seconds.

    Args:
        what: name of the work, such as `embed scifact 1/1`.
        total: number of units; 0 when unknown.
        unit: name of the units.
        done: units of an earlier, interrupted run (they don't count for the rate).

    Attributes:
        note: what else a line says, such as a loss.
    """

    note = ""

    def __init__(self, what: str, total: int, unit: str, done: int = 0, every_s: float = 10.0) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = self.first = done
        self.every_s, self.start = every_s, time.monotonic()
        self.last = self.start
        if done:
            log.info("%s: resumed at %d of %d %s", what, done, total, unit)

    def add(self, count: int = 1) -> None:
        """Count `count` more units; log when the last line is old enough."""
        self.done += count
        now = time.monotonic()
        if now - self.last >= self.every_s:
            self.last = now
            log.info("%s", self.line(now))

    def skip(self, count: int) -> None:
        """Count `count` units of an earlier, interrupted run; they don't count for the rate."""
        self.done += count
        self.first += count

    def line(self, now: float) -> str:
        """Format the progress line at monotonic time `now`."""
        rate = (self.done - self.first) / max(now - self.start, 1e-9)
        text = f"{self.what}: {self.done}{f'/{self.total}' if self.total else ''} {self.unit}, {_pace(rate)}"
        if self.total and rate > 0:
            text += f", {_clock((self.total - self.done) / rate)} left"
        return f"{text}, {self.note}" if self.note else text

    def finish(self) -> None:
        """Log the total once."""
        seconds = time.monotonic() - self.start
        rate = (self.done - self.first) / max(seconds, 1e-9)
        text = f"{self.what}: {self.done} {self.unit} in {_clock(seconds)} ({_pace(rate)})"
        log.info("%s", f"{text}, {self.note}" if self.note else text)


def _clock(seconds: float) -> str:
    minutes, remainder = divmod(int(round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{remainder:02d}" if hours else f"{minutes}:{remainder:02d}"


def _pace(rate: float) -> str:
    return f"{1 / rate:.0f} s each" if 0 < rate < SLOW else f"{rate:.1f}/s"


class Reached(NamedTuple):
    """How far a stage is by its log.

    Attributes:
        left: seconds.
        words: units, with the note of the line: `3/9 steps, loss 2`.
    """

    left: float
    words: str


def reached(logfile: Path) -> Reached | None:
    """Read the last progress line of a stage's log; None without one."""
    try:
        with logfile.open("rb") as lines:
            lines.seek(-min(TAIL_BYTES, os.fstat(lines.fileno()).st_size), os.SEEK_END)
            matches = REACHED.findall(lines.read().decode(errors="replace"))
    except OSError:
        return None  # not there yet
    if not matches:
        return None
    units, hours, minutes, seconds, note = matches[-1]
    left = 3600.0 * int(hours or 0) + 60.0 * int(minutes) + int(seconds)
    return Reached(left, f"{units}, {note}" if note else units)


def log_waiting(name: str, share: float) -> None:
    """Log the share of the time in which the device waited for data."""
    log.info("%s: waited for data %.1f %% of the time", name, 100 * share)
