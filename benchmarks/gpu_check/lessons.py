"""Trainings of all objectives on the check's texts: the real forward passes, batches and losses of fine-tuning,
pretraining and the papers, without the stages that would prepare their data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import feed
import numpy as np
import pyarrow as pa
import torch

from gpu_check.check import SEED, Check

WORDS = [SEED, 0]  # words that random numbers come from
UNITS, CLUSTERS = 4, 4
DOCUMENTS = {True: 2, False: 10}  # of a query (MoMA), by `tiny`
HEAD_LAYERS = 2  # Condenser's


@dataclass
class Lesson:
    """Parts that an engine trains with: the forward pass, the batches, the loss."""

    forward: Any
    stream: Any
    objective: Any


def queries(check: Check, batch: int, folder: Path) -> Lesson:
    """In-batch softmax of short queries, each with a positive and a negative (DPR)."""
    from zerodr.training.objectives.ranking import InfoNCE

    return Lesson(*feed.finetuning(batch, folder, check.model(), check.texts), InfoNCE())


def pairs(check: Check, batch: int, folder: Path) -> Lesson:
    """The same of pairs of long texts, without negatives: what the peer's trainer is given."""
    from zerodr.training.data.batches import Stream
    from zerodr.training.data.examples import Examples, Ragged
    from zerodr.training.loop.gradcache import Forward
    from zerodr.training.objectives.ranking import InfoNCE

    anchors, positives = check.texts[::2], check.texts[1::2]
    names, numbers = pa.array([str(n) for n in range(len(anchors))]), np.arange(len(anchors), dtype=np.int32)
    one, none = Ragged(numbers, np.arange(len(anchors) + 1)), Ragged(numbers[:0], np.zeros(len(anchors) + 1, np.int64))
    examples = Examples(names, pa.array(anchors), names, pa.array(positives), one, none)
    return Lesson(Forward(check.model(), examples, "cpu"), Stream(examples, numbers, batch, 0, WORDS), InfoNCE())


def coco(check: Check, batch: int, folder: Path) -> Lesson:
    """Contrast of two spans of a document, and masked tokens by Condenser's head (COCO-DR)."""
    return _spans("coco", check, batch, folder)


def mlm(check: Check, batch: int, folder: Path) -> Lesson:
    """Masked tokens (DDR's domain module)."""
    return _spans("mlm", check, batch, folder)


def _spans(name: str, check: Check, batch: int, folder: Path) -> Lesson:
    from zerodr.encoders.pretraining.condenser import HeadedEncoder
    from zerodr.training.pretraining.span_forward import make_span_objective

    forward, stream = feed.pretraining(name, batch, folder, check.model(), check.texts, max_tokens=check.length)
    if name == "coco":
        forward.model = HeadedEncoder(forward.model.encoder, "condenser", HEAD_LAYERS, seed=SEED)
    return Lesson(forward, stream, make_span_objective(forward.maker.settings))


def modir(check: Check, batch: int, folder: Path) -> Lesson:
    """The softmax and an adversary over texts of a target: a momentum queue, a domain classifier (MoDIR)."""
    from zerodr.papers.modir.objective import Adversary
    from zerodr.papers.modir.settings import AdversarySettings
    from zerodr.papers.modir.target_texts import DrawnTexts, TargetSizes, TargetStream
    from zerodr.papers.modir.training import DomainForward, DomainStream
    from zerodr.training.objectives.base import Stack
    from zerodr.training.optimizers import schedule

    plain, half = queries(check, batch, folder), len(check.texts) // 2
    asked = [" ".join(text.split()[:8]) for text in check.texts[half:]]
    target = DrawnTexts(np.arange(half), pa.array(check.texts[half:]), asked)
    model, examples = plain.forward.model, plain.forward.examples
    settings = AdversarySettings(queue_length=50, updates=5)
    adversary = Adversary("modir", settings, batch, model.contract.dimension, WORDS, schedule("constant", 0, 10**6))
    return Lesson(
        DomainForward(model, examples, "cpu", target=target),
        DomainStream(plain.stream, TargetStream(TargetSizes(half, half), batch, WORDS)),
        Stack({"ranking": (1.0, plain.objective), "adversary": (1.0, adversary)}),
    )


def berm(check: Check, batch: int, folder: Path) -> Lesson:
    """The softmax with R1 and R2 over units of the positives, here runs of tokens of equal number (BERM)."""
    from zerodr.papers.berm.settings import BermSettings
    from zerodr.papers.berm.training import BermTerms, UnitForward
    from zerodr.papers.berm.unit_table import UnitTable
    from zerodr.training.data.examples import Ragged
    from zerodr.training.objectives.base import Stack

    plain = queries(check, batch, folder)
    model, examples = plain.forward.model, plain.forward.examples
    lengths = np.array([len(row) for row in model.tokenize(check.texts, "document")])
    ends = np.linspace(np.ones(len(lengths)), lengths - 1, UNITS + 1, axis=1).astype(np.int64)  # no special tokens
    offsets = UNITS * np.arange(len(lengths) + 1)
    first, stop = (Ragged(np.ascontiguousarray(part).ravel(), offsets) for part in (ends[:, :-1], ends[:, 1:]))
    labels = np.random.default_rng(SEED).integers(0, UNITS, len(examples))
    forward = UnitForward(model, examples, "cpu", table=UnitTable(first, stop, labels), head=False)
    terms = BermTerms(BermSettings())
    return Lesson(forward, plain.stream, Stack({"main": (1.0, plain.objective), "berm": (1.0, terms)}))


def idro(check: Check, batch: int, folder: Path) -> Lesson:
    """A loss of queries weighted by clusters whose gradients are compared (COCO-DR's iDRO)."""
    from zerodr.config.training import ObjectiveSettings
    from zerodr.papers.coco_dr.settings import GroupSettings
    from zerodr.papers.coco_dr.training import weigh_clusters
    from zerodr.training.data.batches import Stream
    from zerodr.training.loop.gradcache import Forward
    from zerodr.training.objectives.ranking import make_objective

    plain, settings = queries(check, batch, folder), ObjectiveSettings(name="pairwise_nll")
    rows = np.arange(len(check.texts))
    examples = replace(plain.forward.examples, groups=(rows % CLUSTERS).astype(np.int32))
    model, groups = plain.forward.model, GroupSettings(layers=min(3, check.layers))
    objective = weigh_clusters(make_objective(settings), groups, settings, model, range(CLUSTERS))
    return Lesson(Forward(model, examples, "cpu"), Stream(examples, rows, batch, 1, WORDS), objective)


def ddr(check: Check, batch: int, folder: Path) -> Lesson:
    """The softmax with a relevance module in the frozen network: LoRA and parallel adapters (DDR)."""
    from zerodr.papers.ddr.modular import ModularEncoder
    from zerodr.papers.ddr.settings import RemSettings

    plain = queries(check, batch, folder)
    width = check.hidden // 4
    model = ModularEncoder.of(plain.forward.model, RemSettings(rank=width, bottleneck=width), SEED)
    random = torch.Generator().manual_seed(SEED)
    with torch.no_grad():  # fresh modules are zero at one end, so half of their gradients would be, too
        for weight in model.parameters():
            if weight.requires_grad and not weight.any():
                weight.normal_(0, 0.02, generator=random)
    plain.forward.model = model
    return plain


def moma(check: Check, batch: int, folder: Path) -> Lesson:
    """The softmax of a T5 whose queries are fused with documents (MoMA)."""
    from zerodr.papers.moma.augmented_encoder import FusionContract
    from zerodr.papers.moma.fusion_encoder import FusionEncoder
    from zerodr.papers.moma.grounding import Grounding
    from zerodr.papers.moma.training import FusedForward, GroundedExamples
    from zerodr.training.data.batches import Stream
    from zerodr.training.objectives.ranking import InfoNCE

    model = check.model("t5", FusionEncoder)
    examples = feed.finetuning(batch, folder, model, check.texts)[0].examples
    number, size = DOCUMENTS[check.tiny], len(check.texts)
    model.fusion = FusionContract(documents=number, document_tokens=check.length)
    numbers = (np.arange(size * number) % size).astype(np.int32)
    grounding = Grounding(number * np.arange(size + 1), numbers, examples.documents, examples.document_texts)
    values = {entry.name: getattr(examples, entry.name) for entry in fields(examples)}
    grounded = GroundedExamples(**values, grounding=grounding)
    stream = Stream(grounded, np.arange(size), batch, 1, WORDS)
    return Lesson(FusedForward(model, grounded, "cpu"), stream, InfoNCE())


LESSONS: dict[str, Callable[[Check, int, Path], Lesson]] = {
    made.__name__: made for made in (queries, coco, mlm, modir, berm, idro, ddr, moma)
}


def engine(
    check: Check,
    lesson: Callable[[Check, int, Path], Lesson],
    batch: int,
    *,
    device: str | None = None,
    precision: str = "fp32",
    dropout: float = 0.1,
    state: Path | None = None,
    **training: Any,
) -> Any:
    """Make the engine of one training, with a model of its own on the device.

    Args:
        batch: queries, or documents, of a step.
        device: None: the one that is checked.
        state: folder of checkpoints. None: a new one.
        training: further settings.
    """
    from zerodr.config.training import TrainingSettings
    from zerodr.training.loop.engine import Engine, Run
    from zerodr.training.loop.speed import set_dropout, speed_up
    from zerodr.training.optimizers import make_optimizer, schedule

    device, folder = device or check.device, check.new_folder(lesson.__name__)
    made = lesson(check, batch, folder)
    forward = made.forward
    forward.device = device
    model = forward.model.to(device)
    getattr(model, "encoder", model).precision = precision
    set_dropout(model, dropout)
    speed_up(model, device, precision)
    fixed = {"steps": check.warm + check.steps, "learning_rate": 1e-4, "checkpoint_steps": 10**6}
    settings = TrainingSettings(**fixed | {"batch_queries": batch, "precision": precision} | training)  # type: ignore[arg-type]
    run = Run(lesson.__name__, state or folder / "state", "gpu", WORDS)
    optimizer = make_optimizer(model, settings)
    return Engine(forward, made.objective, made.stream, optimizer, schedule("constant", 0, 10**6), settings, run)
