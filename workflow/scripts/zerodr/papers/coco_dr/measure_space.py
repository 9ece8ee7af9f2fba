"""Stage `measure_space`: compute contrastive loss, alignment and uniformity of a model on held-out documents.

Two spans of a document are a pair (COCO-DR sections 4.1 and 5.4). The documents are those that every pretraining
stage with this seed holds out, so no model of the DAG has learned from them.
"""

import logging
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.pretraining import PretrainSettings
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.pretraining.condenser import HeadedEncoder
from zerodr.errors import CollectionError
from zerodr.training.data.grouping import WASTE
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.speed import speed_up
from zerodr.training.pretraining.passages import (
    Passages,
    sizes_path,
    span_folders,
    spans_of,
    split_documents,
    write_passages,
)
from zerodr.training.pretraining.span_dev import evaluate_spans
from zerodr.training.pretraining.span_forward import SpanForward
from zerodr.training.pretraining.views import ViewMaker

log = logging.getLogger("zerodr")
MEASURES = ("contrastive", "alignment", "uniformity")


class SpaceSettings(Settings):
    """Params of rule measure_space."""

    model: str
    """`<method>@<stage>`."""
    documents: int = Field(ge=2)
    """Held-out documents, at most a tenth of the corpus."""
    max_tokens: int = Field(ge=3)
    """Longest span."""
    similarity: Literal["dot", "cosine"] | None = None
    """How vectors are compared in the contrastive loss. None: by inner product."""
    inverse_temperature: float | None = Field(None, gt=0)
    """Factor on similarities. None: 1."""


def measure_space(stage: Stage) -> None:
    """Inputs `model`, `spans` (a folder of cut_spans); output `measures` (JSON).

    Raises:
        CollectionError: fewer than two documents can be held out.
    """
    settings = validate(SpaceSettings, stage.params, stage.spec.name())
    file = stage.state / "passages.arrow"
    folders = span_folders([stage.path("spans")])
    (corpus,) = folders
    if not sizes_path(file).exists():
        write_passages(file, {corpus: spans_of(folders[corpus])})
    passages = Passages(file)
    _, dev = split_documents(passages, settings.documents, stage.seed)
    count = len(dev.get(corpus, ()))
    if count < 2:
        raise CollectionError(
            corpus,
            f"has {len(passages)} documents of two spans, of which {count} can be held out, expected at least 2",
            "leave it out of the item's collections",
        )
    torch.set_num_threads(stage.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    measures = measure(BiEncoder.load(stage.path("model")), passages, dev, settings, stage.seed, device)
    facts = {"model": settings.model, "collection": corpus, "documents": count, "seed": stage.seed}
    write_json(stage.output("measures"), facts | measures)
    for name, value in measures.items():
        stage.metric(name, value)
    log.info(
        "%s on %d documents of %s: %s",
        settings.model,
        count,
        corpus,
        ", ".join(f"{name} {value:.4f}" for name, value in measures.items()),
    )


def measure(
    encoder: BiEncoder, passages: Passages, dev: dict[str, np.ndarray], settings: SpaceSettings, seed: int, device: str
) -> dict[str, float]:
    """Measure held-out documents."""
    model = HeadedEncoder(encoder, predicts=False).to(device)
    speed_up(model, device, "fp32")
    rules = PretrainSettings(
        name="ict",
        max_tokens=min(settings.max_tokens, encoder.contract.max_tokens),
        similarity=settings.similarity,
        inverse_temperature=settings.inverse_temperature,
    )  # spans as they are
    maker = ViewMaker(encoder, rules, passages, True, [seed], WASTE[torch.device(device).type])
    measured = evaluate_spans(SpanForward(model, passages, device, maker=maker), dev, seed, Group())
    return {name: measured[name] for name in MEASURES}
