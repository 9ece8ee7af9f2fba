"""Stage `finetune`: train a bi-encoder on mined queries. The work is `train(job)`, in one process or in several."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field, model_validator
from torch.optim import Optimizer

from zerodr.artifacts.digest import object_digest
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import read_qrels
from zerodr.config.base import validate
from zerodr.config.training import ObjectiveSettings, TrainingSettings
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.mining.dev import held_out
from zerodr.papers.berm.settings import BermSettings
from zerodr.papers.berm.training import BermTerms, UnitForward, check_space, load_units
from zerodr.papers.coco_dr.objective import weigh_groups
from zerodr.papers.coco_dr.settings import GroupSettings, check_groups
from zerodr.papers.ddr.folding import check_folding
from zerodr.papers.ddr.modular import ModularEncoder
from zerodr.papers.ddr.rem_files import REM, source_of
from zerodr.papers.ddr.settings import RemSettings
from zerodr.papers.modir.settings import AdversarySettings, TargetTexts
from zerodr.papers.modir.training import Adapting
from zerodr.papers.moma.fused_training import FusedData, ground, prepare_model
from zerodr.training.data.batches import Stream, usable_rows
from zerodr.training.data.examples import Examples, load_examples
from zerodr.training.distributed.processes import Group, check_gpus
from zerodr.training.jobs import Workers, device_of, keeper, publish_kept, run_job
from zerodr.training.kinds import KINDS
from zerodr.training.loop.checkpoint import read_tensors, write_tensors
from zerodr.training.loop.engine import Batches, Engine, Run
from zerodr.training.loop.gradcache import Forward
from zerodr.training.loop.speed import set_dropout, speed_up
from zerodr.training.objectives.base import Objective, Stack, make_objective
from zerodr.training.optimization.optimizers import load_moments, make_optimizer, moments, moments_fit
from zerodr.training.optimization.schedules import schedule

log = logging.getLogger("zerodr")
MOMENTS = Path("optimizer") / "moments.safetensors"


class FinetuneSettings(Workers):
    """Params of rule finetune."""

    objective: ObjectiveSettings
    """The loss."""
    training: TrainingSettings
    """How it is optimised."""
    groups: GroupSettings | None = None
    """How the losses of query clusters (input `clusters`) are weighted."""
    rem: RemSettings | None = None
    """Train a relevance module in a frozen backbone (DDR). None, or shape `full`: all weights."""
    adversary: AdversarySettings | None = None
    """Adaptation to a target (input `targets`)."""
    targets: dict[str, TargetTexts] = {}
    """How the target's collections are read, by name."""
    continue_classifier: bool = False
    """Go on with the parent's domain classifier."""
    berm: BermSettings | None = None
    """Losses over the units of positives (inputs `units`, `labels`), beside the objective."""
    source_split: str
    """The source's split with training queries."""
    title_join: str | None = " "
    """What stands between a document's title and text. None: text alone."""
    stage: str
    """Name of the stage in its chain, such as `ep0`."""
    stage_index: int = Field(ge=0)
    """Place of the stage in its chain, from 0."""
    first_step: int = Field(0, ge=0)
    """Optimiser steps of the chain's earlier stages."""
    total_steps: int = Field(ge=1)
    """Optimiser steps of the whole chain: where a linear schedule ends, unless `schedule_steps` says otherwise."""
    save_optimizer: bool = False
    """Keep the optimiser's moments in the model folder, for a next stage with `keep_optimizer`."""

    @model_validator(mode="after")
    def _possible(self) -> FinetuneSettings:
        if self.groups is not None:
            check_groups(self.groups, self.objective, self.training)
        if (self.adversary is None) != (not self.targets):
            raise ValueError("adversary and targets go together, found one of them")
        return self


@dataclass(frozen=True)
class Job:
    """What the workers of a stage need to know; JSON values."""

    name: str
    model: str
    mined: str
    source: str
    scored: str | None
    output: str
    state: str
    params: dict[str, Any]
    seed: int
    threads: int
    kind: str = "bi_encoder"
    task: str = "finetune"
    clusters: str | None = None
    rem: str | None = None
    targets: dict[str, str] | None = None
    units: str | None = None
    labels: str | None = None
    fused: dict[str, Any] | None = None


def finetune(stage: Stage) -> None:
    """Stage: inputs `model`, `mined`, `source`, optional `scored`, with params.groups `clusters`; output `model`.

    With params.adversary, input `targets`: collections of the target. With params.rem `model` is the domain module, and
    with go_on `rem` is the model whose relevance module is taken up. With params.berm the inputs `units` and `labels`.
    The output holds `steps/<n>` of save_steps, `rem`
    where one was trained, `groups/weights.parquet` where groups have weights that change, and
    `adversary/classifier.safetensors`.
    """
    settings = validate(FinetuneSettings, stage.params, stage.spec.name())
    check_gpus(settings.gpus_of_a_node, stage.spec.name())
    scored, clusters = (str(stage.path(name)) if name in stage.spec.inputs else None for name in ("scored", "clusters"))
    if (clusters is None) != (settings.groups is None):
        raise ConfigError(
            stage.spec.name(),
            "params.groups and the input `clusters` go together, found one of them",
            "give both or none",
        )
    rem, goes_on = settings.rem, "rem" in stage.spec.inputs
    if goes_on != (rem is not None and rem.go_on):
        raise ConfigError(
            stage.spec.name(),
            "params.rem.go_on and the input `rem` go together, found one of them",
            "give both or none",
        )
    units, labels = _units(stage, settings)
    job = Job(
        stage.spec.name(),
        str(stage.path("model")),
        str(stage.path("mined")),
        str(stage.path("source")),
        scored,
        str(stage.output("model")),
        str(stage.state),
        stage.params,
        stage.seed,
        stage.threads,
        clusters=clusters,
        rem=str(stage.path("rem")) if goes_on else None,
        targets=_targets(stage, settings),
        units=units,
        labels=labels,
    )
    run_job(stage, job, settings, train)
    publish_kept(stage, settings.training.save_steps)


def _targets(stage: Stage, settings: FinetuneSettings) -> dict[str, str]:
    """Folders of the target's collections by name.

    Raises:
        ConfigError: other collections than the settings name, or the source among them.
    """
    given = stage.paths("targets") if "targets" in stage.spec.inputs else []
    folders = {path.parent.name: str(path.parent) for path in given}
    if set(folders) != set(settings.targets):
        raise ConfigError(
            stage.spec.name(),
            f"input `targets` has {sorted(folders)}, params.targets names {sorted(settings.targets)}",
            "give the same collections",
        )
    if stage.path("source").name in folders:
        raise ConfigError(stage.spec.name(), "source and target are the same collection", "choose another target")
    return folders


def _units(stage: Stage, settings: FinetuneSettings) -> tuple[str | None, str | None]:
    """Folders of units and of their labels, where there are params.berm."""
    given = [name for name in ("units", "labels") if name in stage.spec.inputs]
    if len(given) != (0 if settings.berm is None else 2):
        raise ConfigError(
            stage.spec.name(),
            "params.berm and the inputs `units` and `labels` go together, found "
            f"{'no ' if settings.berm is None else ''}params.berm and the inputs {given}",
            "give all three or none",
        )
    return (str(stage.path("units")), str(stage.path("labels"))) if given else (None, None)


def train(job: Job) -> dict[str, Any]:
    """Train and save the model, as one of the processes of the group.

    Returns:
        `curves`: points (name, value, step); `notes`: facts for lineage.
    """
    settings, group = validate(FinetuneSettings, job.params, job.name), Group()
    torch.set_num_threads(max(1, job.threads // settings.workers_of_a_node))
    device = device_of(settings.gpus, group)
    kind = KINDS[job.kind]
    model, inserted = with_rem(kind.load(Path(job.model), settings.training.precision), job, settings)
    model.to(device)
    if settings.training.dropout is not None:
        set_dropout(model, settings.training.dropout)
    kernels = speed_up(model, device, settings.training.precision)
    scored, clusters = (Path(place) if place else None for place in (job.scored, job.clusters))
    examples = load_examples(Path(job.mined), Path(job.source), settings.title_join, scored, clusters)
    if job.fused is not None:
        examples = fuse(model, examples, job, settings)
    rows, dev, notes = split_rows(examples, settings, Path(job.source), job.seed)
    words = [job.seed, settings.stage_index]
    stream = Stream(
        examples,
        rows,
        settings.training.batch_queries,
        settings.objective.negatives_per_query,
        words,
        settings.training.bucket_batches,
    )
    optimizer = make_optimizer(model, settings.training)
    if settings.training.keep_optimizer:
        _take_moments(optimizer, Path(job.model))
    run = _run(job, settings, model, examples, dev, device, group)
    forward = _forward(job, settings, model, examples, device)
    factor = schedule(
        settings.training.schedule,
        settings.training.warmup_steps,
        settings.training.schedule_steps or settings.total_steps,
    )
    objective = _objective(settings, model, examples, rows)
    batches: Batches = stream
    if settings.adversary is not None:
        adapting = Adapting(job.name, settings.adversary, settings.training, settings.first_step, words)
        folders = {name: Path(folder) for name, folder in (job.targets or {}).items()}
        target = adapting.read(folders, settings.targets)
        forward, batches = adapting.data(forward, stream, target)
        parent = Path(job.model) if settings.continue_classifier else None
        objective = adapting.objective(objective, model.contract.dimension, factor, parent)
        notes |= adapting.facts
    engine = Engine(forward, objective, batches, optimizer, factor, settings.training, run, group)
    curves = engine.fit()
    if group.rank == 0:
        model.save(Path(job.output))
        objective.save(Path(job.output))
        if settings.save_optimizer:
            write_tensors(Path(job.output) / MOMENTS, moments(optimizer))
    epochs = settings.training.steps / stream.steps_per_epoch
    facts = {
        "kernels": kernels,
        "device": device,
        "processes": group.world,
        "epochs": round(epochs, 3),
        "queries_per_second": round(engine.rate(), 2),
    }
    return {"curves": curves, "notes": notes | facts | inserted}


def fuse(model: Any, examples: Examples, job: Job, settings: FinetuneSettings) -> Examples:
    """The examples with augmentation documents; the model is told how many (MoMA)."""
    data = validate(FusedData, job.fused, job.name)
    prepare_model(model, data.memory)
    return ground(examples, data, Path(job.source), settings.source_split)


def with_rem(model: Any, job: Job, settings: FinetuneSettings) -> tuple[Any, dict[str, Any]]:
    """The model with the relevance module that is trained, and facts for lineage; as it is where all weights learn.

    Raises:
        ModelError: it can't take one, or not in the form that is asked for.
        ConfigError: it is of a family that can't.
    """
    rem = settings.rem
    if rem is None or rem.shape == "full":
        return model, {}
    if rem.fold:
        check_folding(model.contract.source, model.tower("document").transformer, rem)
    word = int(np.random.SeedSequence([job.seed, settings.stage_index]).generate_state(1)[0])
    made = ModularEncoder.of(model, rem, word, source_of(Path(job.model)))
    if job.rem is not None:
        made.take(Path(job.rem) / REM)
    return made, {"rem": made.facts()}


def _forward(job: Job, settings: FinetuneSettings, model: Any, examples: Examples, device: str) -> Forward:
    """How the model is run; with units of positives where the objective compares them."""
    chunk = settings.training.cache_chunk
    if settings.berm is None or job.units is None or job.labels is None:
        return KINDS[job.kind].forward(model, examples, device, chunk)
    check_space(model, settings.berm)
    table = load_units(Path(job.units), Path(job.labels), examples, model, settings.title_join)
    return UnitForward(model, examples, device, chunk, table=table, head=settings.berm.unit_space == "head")


def _objective(settings: FinetuneSettings, model: Any, examples: Examples, rows: np.ndarray) -> Objective:
    """The loss; weighted by the groups that training rows belong to, where there are groups; BERM's terms beside it."""
    base = make_objective(settings.objective)
    if settings.groups is not None and examples.groups is not None:
        clusters = np.unique(examples.groups[rows]).tolist()
        base = weigh_groups(base, settings.groups, settings.objective, model, clusters)
    if settings.berm is None:
        return base
    return Stack({"main": (1.0, base), "berm": (1.0, BermTerms(settings.berm, settings.first_step))})


def split_rows(
    examples: Examples, settings: FinetuneSettings, source: Path, seed: int
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Rows to train on, rows to evaluate on, and counts of what was left out.

    Raises:
        CollectionError: the split has no positive judgement, or no mined query can be trained on.
    """
    qrels = read_qrels(source, settings.source_split)
    judged = qrels.loc[qrels["grade"] > 0, "query"].tolist()
    where = f"{source.name}/{settings.source_split}"
    if not judged:
        raise CollectionError(
            where, "has no positive judgement, there is nothing to learn from", "choose another source or source_split"
        )
    usable, left_out = usable_rows(examples, settings.objective.negatives_per_query)
    if not len(usable):
        raise CollectionError(
            where, f"none of the {len(examples)} mined queries can be trained on ({left_out})", "check the mining stage"
        )
    dev = held_out(judged, settings.training.dev_queries, seed)
    is_dev = np.array([key in dev for key in examples.queries.take(_numbers(usable)).to_pylist()], bool)
    counts = left_out | {"training_queries": int((~is_dev).sum()), "dev_queries": int(is_dev.sum())}
    for reason, count in left_out.items():
        if count:
            log.warning("%s: %d of %d mined queries are not trained on: %s", where, count, len(examples), reason)
    return usable[~is_dev], usable[is_dev], counts


def _numbers(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.array(rows)


def _run(
    job: Job, settings: FinetuneSettings, model: Any, examples: Examples, dev: np.ndarray, device: str, group: Group
) -> Run:
    def evaluate() -> dict[str, float]:
        return KINDS[job.kind].evaluate(model, examples, dev, settings.training.dev_negatives, device, group)

    identity = object_digest({"params": job.params, "seed": job.seed, "processes": group.world})
    return Run(
        job.name,
        Path(job.state),
        identity,
        [job.seed, settings.stage_index],
        settings.first_step,
        evaluate if len(dev) else None,
        keeper(Path(job.state), model),
    )


def _take_moments(optimizer: Optimizer, parent: Path) -> None:
    path = parent / MOMENTS
    if not path.exists():
        raise ArtifactError(
            parent,
            f"has no optimiser moments ({MOMENTS}), which keep_optimizer continues with",
            "train it with save_optimizer, or set keep_optimizer: false",
        )
    kept = read_tensors(path)
    if not moments_fit(optimizer, kept):
        raise ArtifactError(path, "holds moments of other weights or of another optimiser", "set keep_optimizer: false")
    load_moments(optimizer, kept)
