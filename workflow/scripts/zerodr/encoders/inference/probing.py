"""Choose between two ways to compute the same numbers by their time on this machine, and remember the choice.

Two ways differ in the last bits, so a machine must always choose the same. The usual way stays unless the other one is
clearly faster, by the median and by the best of several rounds. A choice is made once for a kind of processor, a
version of torch and a shape, and written to a file that later jobs read. Where no file can be written, nothing is
measured and the usual way stays.
"""

import contextlib
import json
import os
import platform
import statistics
import time
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zerodr.artifacts.digest import object_digest

CLEARLY = 1.15  # times that the other way must be faster
ROUNDS = 5
FOLDER = "zerodr/kernels"  # below the user's cache folder
CPUINFO = Path("/proc/cpuinfo")


class Choice(NamedTuple):
    """Whether the other way is taken, and how many times faster it was."""

    other: bool
    times: float


USUAL = Choice(False, 1.0)


def choose(what: str, shape: tuple[int | str, ...], ways: Callable[[], tuple[Callable, Callable]]) -> Choice:
    """Choose between the usual and the other way.

    Args:
        what: name of the choice.
        shape: what the times depend on.
        ways: gives functions that compute in the usual and in the other way; called only if there is no choice yet.
    """
    key = {"what": what, "shape": list(shape), "processor": processor(), "torch": torch.__version__}
    path = cache_folder() / f"{object_digest(key)[:24]}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _read(path) or _decide(path, key, *ways())
    except OSError:
        return USUAL


def _decide(path: Path, key: dict[str, Any], usual: Callable, other: Callable) -> Choice:
    """Measure and write; of several processes, the first one decides."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        partial.write_text("")  # without a place for the result, nothing is measured
        seconds = measure(usual, other)
        other_wins, times = judge(*seconds)
        partial.write_text(json.dumps(key | {"seconds": seconds, "other": other_wins, "times": round(times, 2)}))
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return _read(path) or USUAL


def _read(path: Path) -> Choice | None:
    if not path.exists():
        return None
    value = json.loads(path.read_text())
    return Choice(bool(value["other"]), float(value["times"]))


def measure(usual: Callable, other: Callable) -> tuple[list[float], list[float]]:
    """Seconds of both ways in turn, after one call of each."""
    usual(), other()
    rounds = [(_seconds(usual), _seconds(other)) for _ in range(ROUNDS)]
    return [pair[0] for pair in rounds], [pair[1] for pair in rounds]


def _seconds(function: Callable) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def judge(usual: list[float], other: list[float]) -> Choice:
    """Take the other way if both the median and the best of its rounds say that it is clearly faster."""
    median = statistics.median(a / b for a, b in zip(usual, other, strict=True))
    times = min(median, min(usual) / min(other))
    return Choice(times >= CLEARLY, times)


def cache_folder() -> Path:
    """Folder of choices: below XDG_CACHE_HOME, or the user's .cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / FOLDER


@cache
def processor() -> str:
    """Name of the processor, with a digest of its abilities: virtual machines often hide its model."""
    try:
        lines = [line.split(":", 1) for line in CPUINFO.read_text().splitlines() if ":" in line]
    except OSError:
        return platform.processor()
    facts = {name.strip(): value.strip() for name, value in reversed(lines)}
    flags = " ".join(sorted(facts.get("flags", facts.get("Features", "")).split()))
    return f"{facts.get('model name', platform.machine())} {object_digest(flags)[:8]}"
