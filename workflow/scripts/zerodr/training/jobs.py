"""Run training stages around the loop: processes, devices, and models saved after some steps."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from zerodr.artifacts.manifest import object_digest
from zerodr.artifacts.stage import Stage
from zerodr.config.params import Workers
from zerodr.config.training import TrainingSettings
from zerodr.encoders.publishing.export import STEPS
from zerodr.training.distributed.processes import Group, launch
from zerodr.training.loop.speed import Kernels

log = logging.getLogger("zerodr")
Work = Callable[[Stage], dict[str, Any]]


def run_work(stage: Stage, workers: Workers, work: Work) -> None:
    """Train in this process or in several, and put curves and facts into the stage's lineage.

    Args:
        stage: what is trained.
        place: processes and nodes.
        work: a function of a module, which every process calls with the stage. It returns `curves`: points (name,
            value, step), and `notes`: facts.
    """
    if workers.workers > 1:
        file = stage.state / "job.json"
        given = {
            "work": f"{work.__module__}:{work.__qualname__}",
            "spec": asdict(stage.spec),
            "state": str(stage.state),
        }
        file.write_text(json.dumps(given), encoding="utf-8")
        name, threads = stage.spec.name(), stage.threads
        result = launch(file, workers.workers_of_a_node, threads, name, workers.nodes, workers.gpus_of_a_node)
    else:
        result = work(stage)
    for name, value, step in result["curves"]:
        stage.metric(name, value, step)
    stage.note(**result["notes"])


def warn_of_warm_up(stage: Stage, training: TrainingSettings, first_step: int) -> None:
    """Warn when a stage ends before the learning rate has reached its peak; a rehearsal always does."""
    end = first_step + training.steps
    if end <= training.warmup_steps and not stage.spec.rehearsal:
        log.warning(
            "%s: ends at step %d of the schedule, before the %d steps of warm-up do: the learning rate gets to %.3g, "
            "not to %.3g. Lower training.warmup_steps, or train for more steps",
            stage.spec.name(),
            end,
            training.warmup_steps,
            training.learning_rate * (end - 1) / training.warmup_steps,
            training.learning_rate,
        )


def identity_of(stage: Stage, group: Group, kernels: Kernels) -> str:
    """Digest what decides a training's result: a checkpoint of another one is refused.

    Args:
        stage: what is trained.
        group: its processes.
        kernels: those that were chosen.
    """
    facts = {"params": stage.params, "seed": stage.seed, "processes": group.world}
    return object_digest(facts | kernels.identity)


def device_of(gpus: int, group: Group) -> str:
    """Choose this process's device: one GPU each where `gpus` are asked for, else the GPU if any, else the CPU."""
    if gpus == 0 and (group.world > 1 or not torch.cuda.is_available()):
        return "cpu"
    number = int(os.environ.get("LOCAL_RANK", group.rank))
    torch.cuda.set_device(number)
    repeat_bits()
    return f"cuda:{number}"


def repeat_bits() -> None:
    """Let this process take kernels of the GPU whose results repeat bit by bit; where one has none, torch raises.

    Warnings instead of errors (`warn_only`) are no way out: attention's backward pass adds up in any order then.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # Nothing here reads memory before it writes it; to fill all of it first took a tenth of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def keeper(state: Path, model: Any) -> Callable[[int], None]:
    """Make a function that saves the model after a step, whole or not at all."""

    def keep(step: int) -> None:
        folder = _step_folder(state, step)
        partial = folder.with_name(f".{step}.making")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        partial.mkdir(parents=True)
        model.save(partial)
        partial.replace(folder)

    return keep


def publish_steps(stage: Stage, steps: Sequence[int]) -> None:
    """Copy the saved models into output `model`, where `take_step` finds them."""
    for step in steps:
        shutil.copytree(_step_folder(stage.state, step), stage.output("model") / STEPS / str(step))


def _step_folder(state: Path, step: int) -> Path:
    return state / "kept" / str(step)
