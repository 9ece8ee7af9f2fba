"""Stage `finetune`: train a model of any kind, by `fit(task)`, in one process or in several."""

import logging
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.optim import Optimizer

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import read_qrels
from zerodr.config.base import validate
from zerodr.config.custom import code_of
from zerodr.config.params import FinetuneParams
from zerodr.config.training import CUSTOM, ObjectiveSettings
from zerodr.encoders.inference.token_store import TOKENS
from zerodr.encoders.network.low_rank import add_low_rank
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.mining.sample import held_out
from zerodr.training.additions import Addition, Prepared, additions_of
from zerodr.training.data.batches import Stream, usable_rows
from zerodr.training.data.examples import Examples, load_examples
from zerodr.training.data.frozen_index import FrozenIndex
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.distributed.processes import Group, check_gpus
from zerodr.training.jobs import device_of, identity_of, keeper, publish_steps, run_work, warn_of_warm_up
from zerodr.training.kinds import BI_ENCODER, Lessons, ModelKind, kind_of
from zerodr.training.loop.checkpoint import read_tensors, write_tensors
from zerodr.training.loop.engine import Batches, Engine, Run
from zerodr.training.loop.speed import arithmetic, set_dropout, speed_up
from zerodr.training.objectives.ranking import make_objective
from zerodr.training.optimizers import load_moments, make_optimizer, moments, moments_fit, schedule

log = logging.getLogger("zerodr")
MOMENTS = Path("optimizer") / "moments.safetensors"


@dataclass(frozen=True)
class FinetuneTask:
    """A training.

    Attributes:
        stage: the stage that it is of; its state is where the training continues after a kill.
        params: of the stage.
        model: folder of the start; source: of the collection; output: of the result.
        mined: folder of the mined queries; None: the kind learns from something else.
        scored: folder or file with a teacher's scores of the mined queries, or None.
        kind: how the model is loaded, run and evaluated.
        additions: what papers add.
    """

    stage: Stage
    params: FinetuneParams
    model: Path
    mined: Path | None
    source: Path
    output: Path
    scored: Path | None = None
    kind: ModelKind = BI_ENCODER
    additions: tuple[Addition, ...] = ()


def finetune(stage: Stage) -> None:
    """Stage: inputs `model`, `source`, `mined` for most, optional `scored`, and those of additions; output `model`.

    The output holds `steps/<n>` of save_steps, and what the objective writes next to the model.
    """
    task = task_of(stage)
    for addition in task.additions:
        addition.prepare()
    warn_of_warm_up(stage, task.params.settings.training, task.params.schedule.first_step)
    objective = task.params.settings.objective
    if isinstance(objective, ObjectiveSettings) and objective.code:  # before training: the file may change meanwhile
        stage.note(custom_code="\n".join(code_of(CUSTOM, objective.name)))
    run_work(stage, task.params, train)
    publish_steps(stage, task.params.settings.training.save_steps)


def task_of(stage: Stage) -> FinetuneTask:
    """Hold what a fine-tuning stage trains.

    Raises:
        ConfigError: params and inputs don't go together.
        MachineError: fewer GPUs than it asks for.
    """
    params = validate(FinetuneParams, stage.params, stage.spec.name())
    check_gpus(params.gpus_of_a_node, stage.spec.name())
    mined, scored = (stage.path(name) if name in stage.spec.inputs else None for name in ("mined", "scored"))
    paths = (stage.path("model"), mined, stage.path("source"), stage.output("model"))
    return FinetuneTask(
        stage, params, *paths, scored, kind_of(params.encoder), tuple(additions_of(stage, params, (FrozenIndex,)))
    )


def train(stage: Stage) -> dict[str, Any]:
    """Fine-tune as one of the processes of the group; see `fit`."""
    return fit(task_of(stage))


def fit(task: FinetuneTask) -> dict[str, Any]:
    """Train and save the model, as one of the processes of the group.

    Returns:
        `curves`: points (name, value, step); `notes`: facts for lineage.
    """
    stage, params, additions, group = task.stage, task.params, task.additions, Group()
    training, position = params.settings.training, params.schedule
    torch.set_num_threads(max(1, stage.threads // params.workers_of_a_node))
    device = device_of(params.gpus, group)
    kind = reduce(lambda value, addition: addition.kind(value), additions, task.kind)
    precision = arithmetic(training.precision, device, group)
    model = reduce(lambda value, addition: addition.model(value), additions, kind.load(task.model, precision))
    if training.lora_rank is not None:
        _add_low_rank(model, training.lora_rank, stage)
    model.to(device)
    if training.dropout is not None:
        set_dropout(model, training.dropout)
    kernels = speed_up(model, device, precision, training.precision, group)
    lessons = (kind.lessons or mined_lessons)(task, model)
    examples, stream = lessons.examples, lessons.stream
    optimizer = make_optimizer(model, training)
    if training.keep_optimizer:
        _take_moments(optimizer, task.model)
    forward = kind.forward(model, examples, device, training.cache_chunk)
    forward = reduce(lambda value, addition: addition.forward(value), additions, forward)
    forward.shared = SharedTokens(TOKENS)
    batches: Batches = stream
    batches = reduce(lambda value, addition: addition.batches(value), additions, batches)
    factor = schedule(training.schedule, training.warmup_steps, training.schedule_steps or position.total_steps)
    objective = make_objective(params.settings.objective)
    prepared = Prepared(model, examples, lessons.rows, factor)
    objective = reduce(lambda value, addition: addition.objective(value, prepared), additions, objective)

    def evaluate() -> dict[str, float]:
        return kind.evaluate(forward, lessons.dev_examples, lessons.dev, training.dev_negatives, group)

    run = Run(
        stage.spec.name(),
        stage.state,
        identity_of(stage, group, kernels),
        words_of(task),
        position.first_step,
        evaluate if len(lessons.dev) else None,
        keeper(stage.state, model),
    )
    engine = Engine(forward, objective, batches, optimizer, factor, training, run, group)
    curves = engine.fit()
    if group.rank == 0:
        model.save(task.output)
        objective.save(task.output)
        if params.save_optimizer:
            write_tensors(task.output / MOMENTS, moments(optimizer))
    notes = lessons.facts | {
        "kernels": kernels.words,
        "device": device,
        "processes": group.world,
        "epochs": round(training.steps / stream.steps_per_epoch, 3),
        "queries_per_second": round(engine.rate(), 2),
        "waited_for_data": round(engine.waiting(), 4),
    }
    return {"curves": curves, "notes": reduce(lambda value, addition: value | addition.facts, additions, notes)}


def words_of(task: FinetuneTask) -> list[int]:
    """Words that every random choice of the training comes from."""
    return [task.stage.seed, task.params.schedule.stage_index]


def mined_lessons(task: FinetuneTask, model: Any) -> Lessons:
    """Mined queries, with what additions make of them."""
    assert task.mined is not None, "an input of stages that learn from mined queries"
    settings = task.params.settings
    examples = load_examples(task.mined, task.source, task.params.title_join, task.scored)
    examples = reduce(lambda value, addition: addition.examples(value, model), task.additions, examples)
    rows, dev, notes = split_rows(examples, task)
    training, drawn = settings.training, settings.objective.negatives_per_query
    seed, turns = words_of(task), training.consecutive_negatives
    stream = Stream(examples, rows, training.batch_queries, drawn, seed, turns)
    return Lessons(examples, rows, examples, dev, stream, notes)


def split_rows(examples: Examples, task: FinetuneTask) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Rows to train on, rows to evaluate on, and counts of what was left out.

    Raises:
        CollectionError: the split has no positive judgement, or no mined query can be trained on.
    """
    settings, split = task.params.settings, task.params.source_split
    qrels = read_qrels(task.source, split)
    judged = qrels.loc[qrels["grade"] > 0, "query"].tolist()
    where = f"{task.source.name}/{split}"
    if not judged:
        raise CollectionError(
            where, "has no positive judgement, there is nothing to learn from", "choose another source or source_split"
        )
    usable, left_out = usable_rows(examples, settings.objective.negatives_per_query)
    if not len(usable):
        raise CollectionError(
            where, f"none of the {len(examples)} mined queries can be trained on ({left_out})", "check the mining stage"
        )
    dev = held_out(judged, settings.training.dev_queries, task.stage.seed)
    is_dev = np.array([key in dev for key in examples.queries.take(pa.array(usable)).to_pylist()], bool)
    counts = left_out | {"training_queries": int((~is_dev).sum()), "dev_queries": int(is_dev.sum())}
    for reason, count in left_out.items():
        if count:
            log.warning("%s: %d of %d mined queries are not trained on: %s", where, count, len(examples), reason)
    return usable[~is_dev], usable[is_dev], counts


def _add_low_rank(model: Any, rank: int, stage: Stage) -> None:
    """Train additions to the towers that are trained.

    Raises:
        ConfigError: it is no plain bi-encoder.
    """
    if type(model) is not BiEncoder:
        problem = f"training.lora_rank is for bi-encoders, this trains a {type(model).__name__}"
        raise ConfigError(stage.spec.name(), problem, "leave training.lora_rank out")
    for tower in model.towers.values():
        if any(weight.requires_grad for weight in tower.parameters()):
            add_low_rank(tower.transformer, rank, stage.seed)


def _take_moments(optimizer: Optimizer, parent: Path) -> None:
    path = parent / MOMENTS
    if not path.exists():
        raise ArtifactError(
            parent,
            f"has no optimiser moments ({MOMENTS}), which keep_optimizer continues with",
            "set keep_optimizer: false",
        )
    saved = read_tensors(path)
    if not moments_fit(optimizer, saved):
        raise ArtifactError(path, "holds moments of other weights or of another optimiser", "set keep_optimizer: false")
    load_moments(optimizer, saved)
