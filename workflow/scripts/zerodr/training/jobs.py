"""What every stage that trains does around the loop: its processes, its device, and the models kept on its way."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from zerodr.artifacts.stage import Stage
from zerodr.encoders.export import STEPS
from zerodr.training.distributed import Group, launch


class Job(Protocol):
    """What the workers of a stage need to know: a dataclass of JSON values."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Name of the stage, for messages."""
        ...

    @property
    def task(self) -> str:
        """What it is called in training/worker.py."""
        ...


def run_job(stage: Stage, job: Job, workers: int, work: Callable[[Any], dict[str, Any]]) -> None:
    """Train in this process or in several, and put curves and facts into the stage's lineage.

    Args:
        job: for `work`; its `task` names it in training/worker.py.
        workers: processes.
        work: job -> `curves`: points (name, value, step), `notes`: facts.
    """
    if workers > 1:
        file = stage.state / "job.json"
        file.write_text(json.dumps(asdict(job)))
        result = launch(file, workers, stage.threads, job.name)
    else:
        result = work(job)
    for name, value, step in result["curves"]:
        stage.metric(name, value, step)
    stage.note(**result["notes"])


def device_of(gpus: int, group: Group) -> str:
    """The device of this process: one GPU each where `gpus` are asked for, else the GPU that there is, else the CPU."""
    if gpus == 0 and (group.world > 1 or not torch.cuda.is_available()):
        return "cpu"
    torch.cuda.set_device(group.rank)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    return f"cuda:{group.rank}"


def keeper(state: Path, model: Any) -> Callable[[int], None]:
    """A function that keeps the model as it is after a step, whole or not at all."""

    def keep(step: int) -> None:
        place = _kept(state, step)
        made = place.with_name(f".{step}.making")
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
        made.mkdir(parents=True)
        model.save(made)
        made.replace(place)

    return keep


def publish_kept(stage: Stage, steps: Sequence[int]) -> None:
    """Copy the kept models into output `model`, where `take_step` finds them."""
    for step in steps:
        shutil.copytree(_kept(stage.state, step), stage.output("model") / STEPS / str(step))


def _kept(state: Path, step: int) -> Path:
    return state / "kept" / str(step)
