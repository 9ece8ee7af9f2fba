"""Each kind of model: how it is made, loaded, run and evaluated, and what it learns from. Stage `init_model`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zerodr.artifacts.stage import Stage
from zerodr.config.training import CrossEncoderSettings
from zerodr.encoders.cross_encoder.initial import init_pair_model
from zerodr.encoders.cross_encoder.network import CrossEncoder
from zerodr.encoders.folder.contract import Precision
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.start.initial import init_bi_encoder
from zerodr.papers import modules
from zerodr.training.loop.dev import evaluate_dev
from zerodr.training.loop.gradcache import Forward
from zerodr.training.teaching.pairs import PairForward, evaluate_pairs


class Lessons(NamedTuple):
    """What a stage learns from.

    Attributes:
        examples: read by Forward; rows: those that are trained on.
        dev_examples: of the evaluation; dev: their rows.
        stream: the batches of each step, with `steps_per_epoch`.
        facts: for lineage.
    """

    examples: Any
    rows: np.ndarray
    dev_examples: Any
    dev: np.ndarray
    stream: Any
    facts: dict[str, Any]


@dataclass(frozen=True)
class ModelKind:
    """One kind of model.

    Attributes:
        create: the stage that makes an initial model.
        load: model folder and precision -> module with `save(folder)`.
        forward: how training runs it.
        evaluate: forward, dev examples, dev rows, negatives, group -> measures.
        lessons: task and model -> what it learns from; None: mined queries.
    """

    create: Callable[[Stage], None]
    load: Callable[[Path, Precision], Any]
    forward: type[Forward]
    evaluate: Callable[..., dict[str, float]]
    lessons: Callable[[Any, Any], Lessons] | None = None


CREATE_CROSS_ENCODER = partial(init_pair_model, model_type=CrossEncoder, settings_type=CrossEncoderSettings)
BI_ENCODER = ModelKind(init_bi_encoder, BiEncoder.load, Forward, evaluate_dev)
CROSS_ENCODER = ModelKind(CREATE_CROSS_ENCODER, CrossEncoder.load_to_train, PairForward, evaluate_pairs)


def kind_of(encoder: str) -> ModelKind:
    """The kind of a model by the type in its settings, of the core or of a paper."""
    every = {"bi_encoder": BI_ENCODER, "cross_encoder": CROSS_ENCODER}
    for paper in modules("training"):
        every |= paper.TRAINING.kinds
    return every[encoder]


def init_model(stage: Stage) -> None:
    """Stage: the initial model of any kind; params.type says which (none: a bi-encoder)."""
    kind_of(stage.params.get("type", "bi_encoder")).create(stage)
