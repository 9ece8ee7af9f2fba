"""Faults of Snakemake itself: killed with its job, killed alone, asked to stop, started twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import IO

from tests.drill.stages import Result
from zerodr.artifacts.stage import StageSpec

RULE, MODELS = "evaluate_run", ("bm25-flat", "hybrid", "other")  # models whose chain is short
LONGEST_S = 20.0
PATIENCE_S = 400


def can_happen(spec: StageSpec) -> bool:
    """True for a stage that Snakemake is asked for."""
    return spec.rule == RULE and spec.wildcards["model"] in MODELS


def chain(spec: StageSpec, specs: list[StageSpec]) -> list[StageSpec]:
    """Give an evaluation and what makes its ranking, sources first."""
    wanted, chosen = set(spec.input_list()), [spec]
    for stage in reversed(specs):
        if wanted & set(stage.outputs.values()) and stage.rule in (
            "merge_run",
            "search_bm25",
            "fuse_runs",
            "import_run",
        ):
            wanted |= set(stage.input_list())
            chosen.insert(0, stage)
    return chosen


def kill_all(spec: StageSpec, draw: random.Random) -> list[Result]:
    """Kill Snakemake with all of its jobs, then run it again."""
    return [_stopped(spec, draw, signal.SIGKILL, whole_group=True), _whole(spec)]


def kill_alone(spec: StageSpec, draw: random.Random) -> list[Result]:
    """Kill Snakemake, whose job lives on, then run it again."""
    return [_stopped(spec, draw, signal.SIGKILL, whole_group=False), _whole(spec)]


def interrupt(spec: StageSpec, draw: random.Random) -> list[Result]:
    """Press Ctrl-C, then run it again."""
    return [_stopped(spec, draw, signal.SIGINT, whole_group=True), _whole(spec)]


def start_twice(spec: StageSpec, draw: random.Random) -> list[Result]:
    """Start Snakemake again while it runs: the second one must not, or have nothing to do."""
    with tempfile.TemporaryFile("w+") as screen:
        first = _start(spec, screen)
        time.sleep(draw.uniform(0, LONGEST_S))
        second = _whole(spec)
        first.wait(PATIENCE_S)
        screen.seek(0)
        return [Result(first.returncode, screen.read()), second]


KINDS = {
    "killed scheduler with its job": kill_all,
    "killed scheduler": kill_alone,
    "Ctrl-C": interrupt,
    "second scheduler": start_twice,
}


def _start(spec: StageSpec, screen: IO[str]) -> subprocess.Popen:
    target = next(iter(spec.outputs.values()))
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--profile",
        "config/profiles/mini",
        "--cores",
        "1",
        "--notemp",
        target,
    ]
    return subprocess.Popen(
        command, stdout=screen, stderr=subprocess.STDOUT, text=True, start_new_session=True, preexec_fn=_hear_ctrl_c
    )


def _hear_ctrl_c() -> None:
    """Take SIGINT, which a shell switches off for what it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _stopped(spec: StageSpec, draw: random.Random, number: signal.Signals, whole_group: bool) -> Result:
    with tempfile.TemporaryFile("w+") as screen:
        job = _start(spec, screen)
        time.sleep(draw.uniform(1, LONGEST_S))
        with suppress(ProcessLookupError):
            (os.killpg if whole_group else os.kill)(job.pid, number)
        job.wait(PATIENCE_S)
        screen.seek(0)
        return Result(job.returncode, screen.read())


def _whole(spec: StageSpec) -> Result:
    with tempfile.TemporaryFile("w+") as screen:
        job = _start(spec, screen)
        job.wait(PATIENCE_S)
        screen.seek(0)
        return Result(job.returncode, screen.read())
