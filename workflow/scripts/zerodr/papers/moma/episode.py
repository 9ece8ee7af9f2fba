"""Stages `train_augmenter` and `join_components` of an episode (MoMA section 3.2, step 5).

Both trainings of an episode are `finetune`'s: rule `train_main` is that stage with augmented queries (training.py). The
augmenter learns from a collection of its own that `mine_memories` made.
"""

from typing import Any

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.papers.moma.components import AUGMENTER, augmenter_of, copy_model
from zerodr.papers.moma.mine_memories import SCORED
from zerodr.papers.moma.settings import AugmenterParams
from zerodr.training.distributed.processes import check_gpus
from zerodr.training.finetune import Task, fit
from zerodr.training.jobs import run_work


class JoinSettings(Settings):
    """Params of rule join_components."""

    parent_learned: bool
    """The parent has an augmenter of its own, which the frozen one is; else the parent itself is."""


def train_augmenter(stage: Stage) -> None:
    """Inputs `model` (the parent of the episode), `learned`; output `model`: the augmenter of the episode."""
    task = augmenter_task(stage)
    check_gpus(task.params.gpus_of_a_node, stage.spec.name())
    run_work(stage, task.params, train)


def augmenter_task(stage: Stage) -> Task:
    """Data from which an augmenter learns: its mined queries, or the attention to retrieved documents."""
    params = validate(AugmenterParams, stage.params, stage.spec.name())
    learned, parent = stage.path("learned"), augmenter_of(stage.path("model"), params.parent_learned)
    scored = learned / SCORED if params.settings.objective.name == "adist" else None
    return Task(stage, params, parent, learned, learned, stage.output("model"), scored)


def train(stage: Stage) -> dict[str, Any]:
    """Train an augmenter as one of the processes of the group."""
    return fit(augmenter_task(stage))


def join_components(stage: Stage) -> None:
    """Inputs `main`, and `augmenter` or `parent` (whose one is frozen) or neither; output `model`.

    The output is the main model's folder, with the augmenter in its subfolder `augmenter`.
    """
    settings, target = validate(JoinSettings, stage.params, stage.spec.name()), stage.output("model")
    copy_model(stage.path("main"), target)
    if "augmenter" in stage.spec.inputs:
        copy_model(stage.path("augmenter"), target / AUGMENTER)
    elif "parent" in stage.spec.inputs:
        copy_model(augmenter_of(stage.path("parent"), settings.parent_learned), target / AUGMENTER)
