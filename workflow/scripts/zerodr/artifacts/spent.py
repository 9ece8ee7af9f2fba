"""Measure time and energy of a stage over all of its attempts; its state folder stores them until it publishes."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from zerodr.artifacts import energy
from zerodr.artifacts.record import write_json

FILE = "spent.json"


class Spent:
    """A context that adds the seconds and joules of one attempt to those of earlier ones.

    A killed attempt counts up to the last file that it wrote in its work folder, such as a
    checkpoint; its energy is not known. Time in a queue between attempts does not count. Seconds
    come from a clock that never jumps.

    Args:
        home: state folder of the stage.
        work: its subfolder with the files that survive a kill.
    """

    def __init__(self, home: Path, work: Path) -> None:
        self._file, self._since, self._counters = home / FILE, time.monotonic(), energy.counters()
        self.started_unix_s, self._before = time.time(), 0.0
        self._joules: dict[str, float] | None = None  # of earlier attempts by source; None: there was none
        if self._file.exists():
            earlier = json.loads(self._file.read_text())
            self.started_unix_s, self._before = earlier["started_unix_s"], earlier["seconds"]
            self._joules = earlier["joules"]
            if earlier["running_since"] is not None:
                self._before += max(0.0, _last_write(work) - earlier["running_since"])
                self._joules = {}
        self._write(self._joules, time.time())

    @property
    def seconds(self) -> float:
        """Sum of the seconds of all attempts up to now."""
        return self._before + time.monotonic() - self._since

    @property
    def joules(self) -> dict[str, float]:
        """Sum of the joules of all attempts up to now, by source that was read in each of them."""
        now = energy.spent_between(self._counters, energy.counters())
        if self._joules is None:
            return now
        return {source: value + now[source] for source, value in self._joules.items() if source in now}

    def __enter__(self) -> Spent:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # published: a later run starts from zero
            self._file.unlink(missing_ok=True)
            return
        self._before, joules = self.seconds, self.joules
        with contextlib.suppress(OSError):  # on a full disk it counts as a killed attempt
            self._write(joules, None)

    def _write(self, joules: dict[str, float] | None, since: float | None) -> None:
        facts = {"started_unix_s": self.started_unix_s, "seconds": self._before, "joules": joules}
        write_json(self._file, facts | {"running_since": since})


def _last_write(work: Path) -> float:
    """Return the time at which the newest file in a folder was written, in seconds since the epoch; 0 without any."""
    return max((path.stat().st_mtime for path in work.rglob("*") if path.is_file()), default=0.0)
