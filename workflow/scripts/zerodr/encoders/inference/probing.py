"""Choose between two ways to compute the same numbers by their time on this machine, and remember the choice.

Two ways differ in the last bits, so a machine must always choose the same. A way is timed on one thread, by the time
that the processor spends on that thread: other jobs and the number of cores have little influence on it. The usual
way stays unless nearly all rounds say that the other one is clearly faster.

A choice is looked for in this order: the user's pins, an earlier attempt of the job, jobs of the project, jobs of the
user. It is measured where none has it: once for a kind of processor, a version of torch and a shape. Where it can't be
written, nothing is measured and the usual way stays.
"""

import contextlib
import json
import logging
import os
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zerodr.artifacts.choices import Taken, current
from zerodr.artifacts.digest import object_digest
from zerodr.encoders.inference.processor import processor

log = logging.getLogger("zerodr")
CLEARLY = 1.15  # times that the other way must be faster
ROUNDS = ((7, 7), (15, 13), (31, 23))  # rounds so far, and how many must agree; else more follow, then the usual stays
SAMPLE_S = 0.008  # processor time of one round of the usual way, in as many calls as that takes
THREADS = 1
FOLDER = "zerodr/kernels"  # below the user's cache folder
Ways = tuple[Callable[[], Any], Callable[[], Any]]
Rounds = list[tuple[float, float]]
clock = time.thread_time


class Choice(NamedTuple):
    """Whether the other way is taken, and how many times faster it was; 1 where that is not known."""

    other: bool
    times: float = 1.0


USUAL = Choice(False)


def choose(kind: str, detail: str, names: tuple[str, str], ways: Callable[[], Ways]) -> Choice:
    """Choose between the usual and the other way, and record the choice of the job.

    Args:
        kind: of config/kernels.py.
        detail: what the times depend on.
        names: of the usual and the other way.
        ways: gives functions that compute in the usual and in the other way; called only if there is no choice yet.
    """
    name, job = f"{kind} {detail}".strip(), current()
    taken = job.find(name)
    if taken is None:
        taken = job.add(name, _remembered(name, names, ways, [*filter(None, [job.project]), cache_folder()]))
    return Choice(taken.way == names[1], 1.0 if taken.times is None else taken.times)


def _remembered(name: str, names: tuple[str, str], ways: Callable[[], Ways], folders: list[Path]) -> Taken:
    """Read the choice in the first folder that has it, else measure; folders before that one get it, too."""
    key = {"choice": name, "processor": processor(), "torch": torch.__version__, "threads": THREADS}
    file = f"{object_digest(key)[:24]}.json"
    for number, folder in enumerate(folders):
        value = _read(folder / file)
        if value is not None:
            value = _write(folders[:number], file, value) or value
            return Taken(value["way"], value["times"], "memory")
    writable = [folder for folder in folders if _writable(folder)]
    if not writable:
        log.info("%s: %s, not measured, as no folder can remember it", name, names[0])
        return Taken(names[0], None, "default")
    rounds, other = measure(*ways())
    times = round(statistics.median(a / b for a, b in rounds), 2)
    seconds = [*zip(*rounds, strict=True)]
    measured: dict[str, Any] = key | {"way": names[int(other)], "times": times, "seconds": seconds}
    value = _write(writable, file, measured) or measured
    return Taken(value["way"], value["times"], "probe")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text())
    except OSError:  # it, or its folder, isn't there or can't be read
        return None
    except ValueError:  # a machine that went down while it wrote
        log.warning("%s is no JSON and is measured again", path)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return None


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _write(folders: list[Path], file: str, value: dict[str, Any]) -> dict[str, Any] | None:
    """Write to each folder what the first of several processes found; None where that can't be written."""
    first = None
    for folder in folders:
        partial = folder / f".{file}.{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(first or value))
            with contextlib.suppress(FileExistsError):
                os.link(partial, folder / file)
            first = first or _read(folder / file)
        except OSError as error:
            log.info("%s can't remember a choice of kernels: %s", folder, error)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
    return first


def measure(usual: Callable[[], Any], other: Callable[[], Any]) -> tuple[Rounds, bool]:
    """Time both ways in turn on one thread until the rounds agree.

    Returns:
        seconds of a call of both ways by round, and whether the other way is clearly faster.
    """
    rounds: Rounds = []
    with one_thread():
        usual(), other()
        calls = max(1, round(SAMPLE_S / max(_seconds(usual, 1), 1e-6)))
        for count, agreeing in ROUNDS:
            while len(rounds) < count:
                rounds.append(_round(usual, other, calls, len(rounds) % 2 == 1))
            verdict = judge(rounds, agreeing)
            if verdict is not None:
                return rounds, verdict
    return rounds, False


def _round(usual: Callable[[], Any], other: Callable[[], Any], calls: int, reverse: bool) -> tuple[float, float]:
    if reverse:
        second = _seconds(other, calls)
        return _seconds(usual, calls), second
    return _seconds(usual, calls), _seconds(other, calls)


def _seconds(function: Callable[[], Any], calls: int) -> float:
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / calls


def judge(rounds: Rounds, agreeing: int) -> bool | None:
    """Say whether the other way is clearly faster; None where fewer than `agreeing` rounds say the same."""
    clear = sum(usual >= CLEARLY * other for usual, other in rounds)
    if clear >= agreeing:
        return True
    return False if len(rounds) - clear >= agreeing else None


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def cache_folder() -> Path:
    """Folder of choices: below XDG_CACHE_HOME, or the user's .cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / FOLDER
