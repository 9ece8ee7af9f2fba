"""Time that a stage took over all of its attempts, kept in its state folder until it publishes."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from zerodr.artifacts.record import write_json

FILE = "spent.json"


class Spent:
    """While entered, counts the seconds of one attempt on top of those of earlier ones.

    An attempt that was killed without a word counts up to the last file that it wrote in its work folder, such as a
    checkpoint; waiting in a queue between attempts does not count.

    Args:
        home: state folder of the stage.
        work: its part that a stage keeps what survives a kill in.
    """

    def __init__(self, home: Path, work: Path) -> None:
        self._file, self._since = home / FILE, time.time()
        self.started_unix_s, self._before = self._since, 0.0
        kept = _read(self._file)
        if kept:
            self.started_unix_s, self._before = kept["started_unix_s"], kept["seconds"]
            if kept["running_since"] is not None:
                self._before += max(0.0, _last_sign(work) - kept["running_since"])
        self._write(self._since)

    @property
    def seconds(self) -> float:
        """Seconds of all attempts up to now."""
        return self._before + time.time() - self._since

    def __enter__(self) -> Spent:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # published: the next time it runs is another one
            self._file.unlink(missing_ok=True)
            return
        self._before, self._since = self.seconds, time.time()
        with contextlib.suppress(OSError):  # on a full disk it counts like a killed one
            self._write(None)

    def _write(self, since: float | None) -> None:
        write_json(self._file, {"started_unix_s": self.started_unix_s, "seconds": self._before, "running_since": since})


def _read(path: Path) -> dict:
    return json.loads(path.read_text()) if path.exists() else {}


def _last_sign(work: Path) -> float:
    """When the newest file in a folder was written, in seconds since the epoch; 0 without any."""
    return max((path.stat().st_mtime for path in work.rglob("*") if path.is_file()), default=0.0)
