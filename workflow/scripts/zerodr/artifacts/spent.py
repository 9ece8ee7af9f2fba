"""Measure time and energy of a stage over all of its attempts; its state folder stores them until it publishes.

Energy is read from counters of processors (RAPL) and GPUs (NVML). They are those of the whole machine: work that runs
at the same time is part of a reading.
"""

from __future__ import annotations

import contextlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from zerodr.artifacts.record import read_state, write_json

POWERCAP = Path("/sys/class/powercap")
PROCESSORS, GPUS = "RAPL", "NVML"
NOT_MEASURED = "not measured"
FILE = "spent.json"


class Counter(NamedTuple):
    """A counter of energy.

    Attributes:
        source: RAPL (processors) or NVML (GPUs).
        joules: reading.
        wraps_at: the reading after which it starts from 0; 0: never.
    """

    source: str
    joules: float
    wraps_at: float = 0.0


def counters(powercap: Path = POWERCAP) -> dict[str, Counter]:
    """Read all counters that this process may read, by name; empty where there is none."""
    readings = {}
    for zone in sorted(powercap.glob("intel-rapl:*")):
        if zone.name.count(":") == 1:  # a package; its parts are `intel-rapl:0:1`
            with suppress(OSError):  # most systems let only root read it
                values = [
                    int((zone / name).read_text(encoding="utf-8")) / 1e6
                    for name in ("energy_uj", "max_energy_range_uj")
                ]
                readings[zone.name] = Counter(PROCESSORS, *values)
    return readings | _gpus()


def _gpus() -> dict[str, Counter]:
    """Read the counters of the GPUs that CUDA_VISIBLE_DEVICES leaves."""
    try:
        import pynvml
    except ImportError:
        return {}
    readings = {}
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = None if listed is None else [word.strip() for word in listed.split(",")]  # CUDA takes `0, 1`, too
    with suppress(pynvml.NVMLError):  # no driver, or a GPU without a counter
        pynvml.nvmlInit()
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            name = str(pynvml.nvmlDeviceGetUUID(handle))
            if visible is None or {str(number), name} & set(visible):
                readings[name] = Counter(GPUS, pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)
    return readings


def spent_between(before: dict[str, Counter], after: dict[str, Counter]) -> dict[str, float]:
    """Return the joules between two readings, by source; without sources that are not in both."""
    joules: dict[str, float] = {}
    for name in sorted(before.keys() & after.keys()):
        source, start, wraps_at = before[name]
        rise = after[name].joules - start
        joules[source] = joules.get(source, 0.0) + (rise if rise >= 0 else rise + wraps_at)
    return joules


def sum_joules(joules: dict[str, float], gpus: bool) -> tuple[float | None, str]:
    """Sum joules by source; return them with the sources' names.

    Args:
        joules: by source.
        gpus: whether the work used GPUs; else theirs do not count.

    Returns:
        None and `not measured` where nothing was measured, or not the GPUs that were used.
    """
    counted = {source: value for source, value in joules.items() if gpus or source != GPUS}
    if not counted or gpus and GPUS not in counted:
        return None, NOT_MEASURED
    return round(sum(counted.values()), 3), " + ".join(sorted(counted))


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
        self._file, self._since, self._counters = home / FILE, time.monotonic(), counters()
        self.started_unix_s, self._before = time.time(), 0.0
        self._joules: dict[str, float] | None = None  # of earlier attempts by source; None: there was none
        if (earlier := read_state(self._file)) is not None:
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
        now = spent_between(self._counters, counters())
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
