"""What the training loop is told about each kind of model: how to load it, to run it, and to evaluate it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerodr.encoders.cross_encoder.network import CrossEncoder
from zerodr.encoders.network.towers import Precision
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.training.loop.dev import evaluate_dev
from zerodr.training.loop.gradcache import Forward
from zerodr.training.teaching.pairs import PairForward, evaluate_pairs


@dataclass(frozen=True)
class Kind:
    """One kind of model.

    Attributes:
        load: model folder and precision -> module with `save(folder)`.
        forward: how training runs it.
        evaluate: model, examples, dev rows, negatives, device, group -> measures.
    """

    load: Callable[[Path, Precision], Any]
    forward: type[Forward]
    evaluate: Callable[..., dict[str, float]]


def pupil(folder: Path, precision: Precision) -> CrossEncoder:
    """The cross-encoder of a folder, which counts as trained from now on."""
    model = CrossEncoder.load(folder, precision)
    model.contract = model.contract.model_copy(update={"trained": True})
    return model


BI_ENCODER = Kind(BiEncoder.load, Forward, evaluate_dev)
CROSS_ENCODER = Kind(pupil, PairForward, evaluate_pairs)
