"""Read energy counters of processors (RAPL) and GPUs (NVML).

The counters are those of the whole machine: work that runs at the same time is part of a reading.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

POWERCAP = Path("/sys/class/powercap")
PROCESSORS, GPUS = "RAPL", "NVML"
NOT_MEASURED = "not measured"


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
                values = [int((zone / name).read_text()) / 1e6 for name in ("energy_uj", "max_energy_range_uj")]
                readings[zone.name] = Counter(PROCESSORS, *values)
    return readings | _gpus()


def _gpus() -> dict[str, Counter]:
    """Read the counters of the GPUs that CUDA_VISIBLE_DEVICES leaves."""
    try:
        import pynvml
    except ImportError:
        return {}
    readings = {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with suppress(pynvml.NVMLError):  # no driver, or a GPU without a counter
        pynvml.nvmlInit()
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            name = str(pynvml.nvmlDeviceGetUUID(handle))
            if visible is None or {str(number), name} & set(visible.split(",")):
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


def total(joules: dict[str, float], gpus: bool) -> tuple[float | None, str]:
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
