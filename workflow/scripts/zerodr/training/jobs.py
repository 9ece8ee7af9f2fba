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
from pydantic import Field, model_validator

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings
from zerodr.encoders.publishing.export import STEPS
from zerodr.training.distributed.processes import Group, launch


class Workers(Settings):
    """Where a stage trains: part of the params of every rule that does."""

    gpus: int = Field(0, ge=0)
    """GPUs to train on, those of all nodes together. 0: one if there is one, else the CPU."""
    processes: int = Field(1, ge=1)
    """Processes of each node on the CPU, where `gpus` is 0."""
    nodes: int = Field(1, ge=1)
    """Machines of one Slurm job that train together."""

    @property
    def gpus_of_a_node(self) -> int:
        """GPUs on each machine."""
        return self.gpus // self.nodes

    @property
    def workers_of_a_node(self) -> int:
        """Processes that train on each machine."""
        return self.gpus_of_a_node or self.processes

    @property
    def workers(self) -> int:
        """Processes that train."""
        return self.workers_of_a_node * self.nodes

    @model_validator(mode="after")
    def _equal_shares(self) -> Workers:
        if self.gpus % self.nodes:
            raise ValueError(f"{self.gpus} gpus can't be shared equally by {self.nodes} nodes")
        return self


class Job(Protocol):
    """What the workers of a stage need to know: a dataclass of JSON values."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Name of the stage, for messages."""
        ...

    @property
    def task(self) -> str:
        """What it is called in training/distributed/worker.py."""
        ...


def run_job(stage: Stage, job: Job, place: Workers, work: Callable[[Any], dict[str, Any]]) -> None:
    """Train in this process or in several, and put curves and facts into the stage's lineage.

    Args:
        job: for `work`; its `task` names it in training/distributed/worker.py.
        place: processes and nodes.
        work: job -> `curves`: points (name, value, step), `notes`: facts.
    """
    if place.workers > 1:
        file = stage.state / "job.json"
        file.write_text(json.dumps(asdict(job)))
        result = launch(file, place.workers_of_a_node, stage.threads, job.name, place.nodes, place.gpus_of_a_node)
    else:
        result = work(job)
    for name, value, step in result["curves"]:
        stage.metric(name, value, step)
    stage.note(**result["notes"])


def device_of(gpus: int, group: Group) -> str:
    """The device of this process: one GPU each where `gpus` are asked for, else the GPU that there is, else the CPU."""
    if gpus == 0 and (group.world > 1 or not torch.cuda.is_available()):
        return "cpu"
    number = int(os.environ.get("LOCAL_RANK", group.rank))
    torch.cuda.set_device(number)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    return f"cuda:{number}"


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
