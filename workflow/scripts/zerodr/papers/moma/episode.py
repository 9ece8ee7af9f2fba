"""Stages `train_main`, `train_augmenter` and `join_components`: one episode of MoMA (specs/moma 6.2, steps 3 and 5).

Both trainings are `finetune`'s: the main model's queries come with documents; the augmenter learns from a collection of
its own that `mine_memories` made.
"""

from __future__ import annotations

from pathlib import Path

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.errors import ConfigError
from zerodr.papers.moma.components import AUGMENTER, augmenter_of, copy_model
from zerodr.papers.moma.fused_training import FusedData
from zerodr.papers.moma.mine_memories import SCORED
from zerodr.papers.moma.settings import MemorySettings
from zerodr.training.distributed.processes import check_gpus
from zerodr.training.finetune import FinetuneSettings, Job, train
from zerodr.training.jobs import run_job


class MainSettings(FinetuneSettings):
    """Params of rule train_main."""

    memory: MemorySettings
    """Where augmentation comes from."""
    joins: dict[str, str | None]
    """What stands between title and text, by memory. None: text alone."""


class AugmenterTraining(FinetuneSettings):
    """Params of rule train_augmenter."""

    parent_learned: bool
    """The parent has an augmenter of its own; else the parent itself is the augmenter."""


class JoinSettings(Settings):
    """Params of rule join_components."""

    parent_learned: bool
    """The parent has an augmenter of its own, which the frozen one is; else the parent itself is."""


def train_main(stage: Stage) -> None:
    """Inputs `model`, `mined`, `source`, `rankings`, `memories`; output `model`: the main model of an episode.

    Raises:
        ArtifactError: a mined query has no ranking of the mixture.
        ModelError: the parent can't fuse.
    """
    settings = validate(MainSettings, stage.params, stage.spec.name())
    check_gpus(settings.gpus_of_a_node, stage.spec.name())
    folders = {path.parent.name: str(path.parent) for path in stage.paths("memories")}
    if set(folders) != set(settings.joins):
        raise ConfigError(
            stage.spec.name(),
            f"input `memories` has {sorted(folders)}, params.joins names {sorted(settings.joins)}",
            "give the same memories",
        )
    data = FusedData(
        rankings=str(stage.path("rankings")),
        memories=folders,
        joins=settings.joins,
        source=stage.path("source").name,
        memory=settings.memory,
    )
    job = _job(
        stage,
        settings,
        stage.path("model"),
        stage.path("mined"),
        stage.path("source"),
        kind="fused",
        fused=data.model_dump(mode="json"),
    )
    run_job(stage, job, settings, train)


def train_augmenter(stage: Stage) -> None:
    """Inputs `model` (the parent of the episode), `learned`; output `model`: the augmenter of the episode."""
    settings = validate(AugmenterTraining, stage.params, stage.spec.name())
    check_gpus(settings.gpus_of_a_node, stage.spec.name())
    learned, parent = stage.path("learned"), augmenter_of(stage.path("model"), settings.parent_learned)
    scored = str(learned / SCORED) if settings.objective.name == "adist" else None
    run_job(stage, _job(stage, settings, parent, learned, learned, scored=scored), settings, train)


def _job(
    stage: Stage,
    settings: FinetuneSettings,
    model: Path,
    mined: Path,
    source: Path,
    scored: str | None = None,
    kind: str = "bi_encoder",
    fused: dict | None = None,
) -> Job:
    params = settings.model_dump(mode="json", include=set(FinetuneSettings.model_fields))
    return Job(
        stage.spec.name(),
        str(model),
        str(mined),
        str(source),
        scored,
        str(stage.output("model")),
        str(stage.state),
        params,
        stage.seed,
        stage.threads,
        kind=kind,
        fused=fused,
    )


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
