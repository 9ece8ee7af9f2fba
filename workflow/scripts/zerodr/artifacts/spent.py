"""Measure the time of a stage over all of its attempts; its state folder stores it until the stage publishes."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from zerodr.artifacts.record import write_json

FILE = "spent.json"


class Spent:
    """A context that adds the seconds of one attempt to those of earlier ones.

    A killed attempt counts up to the last file that it wrote in its work folder, such as a
    checkpoint; time in a queue between attempts does not count.

    Args:
        home: state folder of the stage.
        work: its subfolder with the files that survive a kill.
    """

    def __init__(self, home: Path, work: Path) -> None:
        self._file, self._since = home / FILE, time.time()
        self.started_unix_s, self._before = self._since, 0.0
        if self._file.exists():
            earlier = json.loads(self._file.read_text())
            self.started_unix_s, self._before = earlier["started_unix_s"], earlier["seconds"]
            if earlier["running_since"] is not None:
                self._before += max(0.0, _last_write(work) - earlier["running_since"])
        self._write(self._since)

    @property
    def seconds(self) -> float:
        """Sum of the seconds of all attempts up to now."""
        return self._before + time.time() - self._since

    def __enter__(self) -> Spent:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # published: a later run starts from zero
            self._file.unlink(missing_ok=True)
            return
        self._before, self._since = self.seconds, time.time()
        with contextlib.suppress(OSError):  # on a full disk it counts as a killed attempt
            self._write(None)

    def _write(self, since: float | None) -> None:
        write_json(self._file, {"started_unix_s": self.started_unix_s, "seconds": self._before, "running_since": since})


def _last_write(work: Path) -> float:
    """Return the time at which the newest file in a folder was written, in seconds since the epoch; 0 without any."""
    return max((path.stat().st_mtime for path in work.rglob("*") if path.is_file()), default=0.0)
