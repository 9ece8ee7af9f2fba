"""Stages of a teacher: `init_teacher`, `train_teacher`, and `score_pairs` for distillation."""

from __future__ import annotations

import os
import time
from typing import Any, Literal

import pyarrow.parquet as pq
import torch
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.params import FinetuneParams
from zerodr.encoders.cross_encoder.initial import InitTeacherSettings, cross_from_checkpoint
from zerodr.encoders.cross_encoder.network import CrossEncoder
from zerodr.encoders.cross_encoder.scorer import Scorer
from zerodr.encoders.inference.malloc import keep_freed_memory
from zerodr.encoders.network.trainable import parameter_count
from zerodr.encoders.start.importing import resolve
from zerodr.errors import ArtifactError, ConfigError, ModelError
from zerodr.training.data.examples import MINED, SCORED, load_examples
from zerodr.training.distributed.processes import check_gpus
from zerodr.training.finetune import Task, fit
from zerodr.training.jobs import run_work
from zerodr.training.kinds import CROSS_ENCODER
from zerodr.training.teaching.scoring import ScoreStore, pairs_of, score_all, score_statistics, warn_of_guessing


class ScoreSettings(Settings):
    """Params of rule score_pairs."""

    title_join: str | None = " "
    """What stands between a document's title and text. None: text alone."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the network; logits are float32."""
    batch_pairs: int = Field(64, ge=1)
    """Most pairs of a batch."""


def init_teacher(stage: Stage) -> None:
    """Stage: input `parent` (a model folder of the bench) or none; output `teacher`, trained or to be trained."""
    settings = validate(InitTeacherSettings, stage.params, stage.spec.name())
    if "parent" in stage.spec.inputs:
        folder, revision = stage.path("parent"), None
    else:
        folder, revision = resolve(settings.init, settings.revision, bool(stage.spec.site.get("offline", False)))
    model, facts = cross_from_checkpoint(settings, folder, revision, stage.seed)
    model.save(stage.output("teacher"))
    CrossEncoder.load(stage.output("teacher"))
    stage.note(contract=model.contract.model_dump(mode="json"), parameters=parameter_count(model), **facts)


def train_teacher(stage: Stage) -> None:
    """Stage: inputs `teacher` (of init_teacher), `mined`, `source`; output `teacher`."""
    task = teacher_task(stage)
    check_gpus(task.params.gpus_of_a_node, stage.spec.name())
    training = task.params.settings.training
    if training.save_steps or training.keep_optimizer:
        raise ConfigError(
            stage.spec.name(),
            "training.save_steps and keep_optimizer are not for a teacher, which is trained in one stage",
            "leave them out",
        )
    run_work(stage, task.params, train)


def teacher_task(stage: Stage) -> Task:
    """What a cross-encoder learns from."""
    params = validate(FinetuneParams, stage.params, stage.spec.name())
    paths = (stage.path("teacher"), stage.path("mined"), stage.path("source"), stage.output("teacher"))
    return Task(stage, params, *paths, kind=CROSS_ENCODER)


def train(stage: Stage) -> dict[str, Any]:
    """Train a cross-encoder as one of the processes of the group."""
    return fit(teacher_task(stage))


def score_pairs(stage: Stage) -> None:
    """Stage: inputs `teacher`, `mined`, `source`; output `scored`: scored.parquet, the mined rows with `scores`.

    Raises:
        ModelError: the teacher was never trained.
        ArtifactError: the mined file is of another corpus, or has scores already.
        NonFiniteScore: names the first pair that has no finite score.
    """
    settings = validate(ScoreSettings, stage.params, stage.spec.name())
    os.environ.setdefault("RAYON_NUM_THREADS", str(stage.threads))  # threads of the tokenizer
    keep_freed_memory()
    model = CrossEncoder.load(stage.path("teacher"), settings.precision)
    if not model.contract.trained:
        raise ModelError(
            stage.path("teacher"),
            "has a head that was never trained, its scores would be arbitrary",
            "train it with stage train_teacher",
        )
    file = stage.path("mined") / MINED
    examples = load_examples(stage.path("mined"), stage.path("source"), settings.title_join)
    table, pairs = pq.read_table(file), pairs_of(examples)
    if "scores" in table.column_names:
        raise ArtifactError(file, "has a column scores already", "give the mining stage's own output")
    scorer = Scorer(model, "cuda" if torch.cuda.is_available() else "cpu")
    facts = {"device": scorer.device, "backend": scorer.backend}
    store = ScoreStore(stage.state, facts | {"torch": torch.__version__, "pairs": len(pairs.rows)})
    resumed, started = store.done, time.monotonic()
    scores = score_all(scorer, examples, pairs, store, settings.batch_pairs, stage.threads, stage.spec.name())
    slots = pairs.spread(scores)
    pq.write_table(table.append_column("scores", pairs.column(slots)), stage.output("scored") / SCORED)
    stage.metric("pairs_per_second", (len(scores) - resumed) / max(time.monotonic() - started, 1e-9))
    statistics = score_statistics(slots, pairs)
    for name, value in statistics.items():
        stage.metric(name, value)
    warn_of_guessing(stage.spec.name(), statistics)
    stage.note(
        **facts,
        precision=settings.precision,
        queries=len(examples),
        pairs=int(pairs.known.sum()),
        distinct_pairs=len(scores),
        queries_without_positive=int((examples.positives.sizes == 0).sum()),
        queries_without_negative=int((examples.negatives.sizes == 0).sum()),
        resumed_at=resumed,
        **store.totals,
    )
