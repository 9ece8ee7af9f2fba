"""Stages of a reader: `init_reader`, `train_reader`. The loop is the engine's; the work is `train(stage)`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pydantic import model_validator

from zerodr.artifacts.digest import object_digest
from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.params import Workers
from zerodr.config.training import TrainingSettings
from zerodr.encoders.network.trainable import parameter_count
from zerodr.encoders.start.importing import resolve
from zerodr.papers.berm.reader_data import QuestionStream, ReadForward, evaluate_reader, load_questions
from zerodr.papers.berm.reader_network import InitReaderSettings, Reader, reader_from_checkpoint
from zerodr.papers.berm.settings import check_reader_training
from zerodr.training.distributed.processes import Group, check_gpus
from zerodr.training.jobs import device_of, run_work
from zerodr.training.loop.engine import Engine, Run
from zerodr.training.loop.speed import set_dropout, speed_up
from zerodr.training.objectives.base import Objective
from zerodr.training.optimization.optimizers import make_optimizer
from zerodr.training.optimization.schedules import schedule

HELD_OUT = 3  # first word of a seed: which dev questions are asked


class TrainReaderSettings(Workers):
    """Params of rule train_reader."""

    training: TrainingSettings
    """How it is optimised; `dev_queries` are questions of dev_split (a seeded sample)."""
    source_split: str
    """The split with questions to learn from."""
    dev_split: str
    """The split with questions for exact match and F1."""
    title_join: str | None = " "
    """What stands between a document's title and text. None: text alone."""

    @model_validator(mode="after")
    def _read(self) -> TrainReaderSettings:
        check_reader_training(self.training)
        return self


def init_reader(stage: Stage) -> None:
    """Stage: input `parent` (a model folder of the bench) or none; output `reader`, trained or to be trained."""
    settings = validate(InitReaderSettings, stage.params, stage.spec.name())
    if "parent" in stage.spec.inputs:
        folder, revision = stage.path("parent"), None
    else:
        folder, revision = resolve(settings.init, settings.revision, bool(stage.spec.site.get("offline", False)))
    model, fresh = reader_from_checkpoint(settings, folder, revision, stage.seed)
    model.save(stage.output("reader"))
    Reader.load(stage.output("reader"))
    stage.note(contract=model.contract.model_dump(mode="json"), parameters=parameter_count(model), fresh_weights=fresh)


def train_reader(stage: Stage) -> None:
    """Stage: inputs `reader` (of init_reader), `source` with answers; output `reader`.

    Curves: loss, and dev.exact_match, dev.f1 in [0, 1].

    Raises:
        CollectionError: a split has no answer that stands in its passage.
        ConfigError: fewer questions than a batch.
    """
    settings = validate(TrainReaderSettings, stage.params, stage.spec.name())
    check_gpus(settings.gpus_of_a_node, stage.spec.name())
    run_work(stage, settings, train)


def train(stage: Stage) -> dict[str, Any]:
    """Train and save the reader, as one of the processes of the group.

    Returns:
        `curves`: points (name, value, step); `notes`: facts for lineage.
    """
    settings, group = validate(TrainReaderSettings, stage.params, stage.spec.name()), Group()
    training, source = settings.training, stage.path("source")
    torch.set_num_threads(max(1, stage.threads // settings.workers_of_a_node))
    device = device_of(settings.gpus, group)
    model = Reader.load(stage.path("reader"), training.precision)
    model.contract = model.contract.model_copy(update={"trained": True})
    model.to(device)
    if training.dropout is not None:
        set_dropout(model, training.dropout)
    kernels = speed_up(model, device, training.precision)
    questions, displaced = load_questions(source, settings.source_split, settings.title_join)
    evaluate, dev_count = None, 0
    if training.dev_queries:
        dev, _ = load_questions(source, settings.dev_split, settings.title_join)
        dev_count = min(training.dev_queries, len(dev))
        chosen = np.random.default_rng([HELD_OUT, stage.seed]).choice(len(dev), dev_count, replace=False)
        rows = np.sort(chosen).tolist()

        def evaluate() -> dict[str, float]:
            return evaluate_reader(model, dev, rows, device, group)

    stream = QuestionStream(len(questions), training.batch_queries, (stage.seed,))
    identity = object_digest({"params": stage.params, "seed": stage.seed, "processes": group.world})
    run = Run(stage.spec.name(), stage.state, identity, [stage.seed], 0, evaluate)
    factor = schedule(training.schedule, training.warmup_steps, training.schedule_steps or training.steps)
    engine = Engine(
        ReadForward(model, questions, device),
        Objective(),
        stream,
        make_optimizer(model, training),
        factor,
        training,
        run,
        group,
    )
    curves = engine.fit()
    if group.rank == 0:
        model.save(stage.output("reader"))
    facts = {
        "kernels": kernels,
        "device": device,
        "processes": group.world,
        "training_questions": len(questions),
        "displaced_answers": displaced,
        "dev_questions": dev_count,
        "parameters": parameter_count(model),
        "epochs": round(training.steps / stream.steps_per_epoch, 3),
        "questions_per_second": round(engine.rate(), 2),
    }
    return {"curves": curves, "notes": facts}
