"""One process of a joint gradient, for test_udalm: `python -m tests.unit.word_probe FOLDER OUT`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tests.unit.encoder_helpers import make_collection
from tests.unit.training_helpers import QUERIES, lay_out, load_tiny, seal, words, write_tensors

from zerodr.papers.udalm.settings import MaskedWordsSettings
from zerodr.papers.udalm.training import JointForward, JointStream, WordEncoder
from zerodr.training.data.batches import Stream
from zerodr.training.data.examples import load_examples
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, add_gradients, prepare
from zerodr.training.objectives.base import Objective, Stack
from zerodr.training.objectives.ranking import InfoNCE
from zerodr.training.pretraining.corpora import PASSAGES, store_passages, whole_documents
from zerodr.training.pretraining.passages import Passages, PassageStream
from zerodr.training.pretraining.span_forward import SpanForward
from zerodr.training.pretraining.views import ViewMaker

TARGET = "results/target"
TEXTS, WEIGHT = 12, 0.6  # 12 documents next to 8 queries
Gradients = dict[str, torch.Tensor]


def make_target(folder: Path, documents: int = 40) -> Path:
    """A collection without queries: 40 documents, one of which has no text."""
    generator = np.random.default_rng(3)
    rows = [(f"t{i}", "", words(generator, 2, 10)) for i in range(documents - 1)]
    make_collection(folder, [*rows, ("empty", "", " ")])
    seal(folder)
    return folder


def lay_out_both(root: Path) -> Path:
    """A project folder with a model, a source, mined queries and a target."""
    lay_out(root)
    make_target(root / TARGET)
    return root


def parts(root: Path, chunk: int | None = None, weight: float = WEIGHT) -> tuple[JointForward, JointStream]:
    """Passes and batches of a stage with masked words, without dropout; `root` has a folder `state`."""
    (root / "state").mkdir(exist_ok=True)
    store_passages(
        root / "state", lambda left_out: whole_documents([root / TARGET], root / "results/init", " ", left_out)
    )
    examples = load_examples(root / "results/mined", root / "results/source", " ")
    model = WordEncoder(load_tiny(root / "results/init"), 5)
    passages, objective = Passages(root / "state" / PASSAGES), MaskedWordsSettings(max_tokens=24).objective
    maker = ViewMaker(model, objective, passages, False, [13, 0, 8], 64, chunk)
    documents = SpanForward(model.headed(), passages, "cpu", chunk, maker=maker)
    main = Forward(model, examples, "cpu", chunk)
    forward = JointForward(model, examples, "cpu", chunk, main=main, words=documents, weight=weight)
    stream = JointStream(
        Stream(examples, np.arange(QUERIES), 8, 2, [0]), PassageStream(np.arange(len(passages)), TEXTS, [0])
    )
    return forward, stream


def gradient(forward: Forward, objective: Objective, batch: object, group: Group) -> tuple[Gradients, Gradients]:
    """Gradients by weight, and loss terms, of the whole group."""
    model = forward.model.encoder if isinstance(forward, SpanForward) else forward.model
    model.zero_grad(set_to_none=True)
    terms = add_gradients(forward, objective, prepare(forward, batch, group), group, [3])
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    group.add_gradients(list(found.values()))
    return {name: value.clone() for name, value in found.items()}, terms


def joint() -> Stack:
    """The stage's loss as UDALM scales it."""
    return Stack({"main": (1 - WEIGHT, InfoNCE())})


def gradients(folder: Path) -> Gradients:
    """Gradients and loss terms of one batch, with and without caching."""
    made: Gradients = {}
    for chunk in (None, 3):
        forward, stream = parts(folder, chunk)
        found, terms = gradient(forward, joint(), stream.batch(2), Group())
        made |= {f"{chunk}/{name}": value for name, value in found.items()}
        made |= {f"{chunk}/term.{name}": value.reshape(1).clone() for name, value in terms.items()}
    return made


if __name__ == "__main__":
    write_tensors(gradients)
