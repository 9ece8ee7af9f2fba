"""Log progress lines with rate and time left, at a limited frequency."""

import logging
import os
import re
import time
from pathlib import Path

log = logging.getLogger("zerodr")
LEFT = re.compile(r", (?:(\d+):)?(\d+):(\d\d) left\b")
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
        text = f"{self.what}: {self.done}{f'/{self.total}' if self.total else ''} {self.unit}, {rate:.1f}/s"
        if self.total and rate > 0:
            text += f", {_clock((self.total - self.done) / rate)} left"
        return f"{text}, {self.note}" if self.note else text

    def finish(self) -> None:
        """Log the total once."""
        seconds = time.monotonic() - self.start
        rate = (self.done - self.first) / max(seconds, 1e-9)
        text = f"{self.what}: {self.done} {self.unit} in {_clock(seconds)} ({rate:.1f}/s)"
        log.info("%s", f"{text}, {self.note}" if self.note else text)


def _clock(seconds: float) -> str:
    minutes, remainder = divmod(int(round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{remainder:02d}" if hours else f"{minutes}:{remainder:02d}"


def time_left(logfile: Path) -> float | None:
    """Read the seconds left that the last progress line of a stage's log tells; None without one."""
    try:
        with logfile.open("rb") as lines:
            lines.seek(-min(TAIL_BYTES, os.fstat(lines.fileno()).st_size), os.SEEK_END)
            matches = LEFT.findall(lines.read().decode(errors="replace"))
    except OSError:
        return None  # not there yet
    if not matches:
        return None
    hours, minutes, seconds = (int(number or 0) for number in matches[-1])
    return 3600.0 * hours + 60.0 * minutes + seconds


def log_waiting(name: str, share: float) -> None:
    """Log the share of the time in which the device waited for data."""
    log.info("%s: waited for data %.1f %% of the time", name, 100 * share)
