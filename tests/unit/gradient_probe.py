"""One process of a gradient computation, for test_distributed: `python -m tests.unit.gradient_probe FOLDER OUT`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from tests.unit.training_helpers import QUERIES, load_tiny, write_tensors

from zerodr.training.data.batches import Stream
from zerodr.training.data.examples import load_examples
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, add_gradients, prepare
from zerodr.training.objectives.base import Objective
from zerodr.training.objectives.ranking import InfoNCE, PairwiseNLL, ScoreLoss

OBJECTIVES = {"info_nce": InfoNCE, "pairwise_nll": PairwiseNLL, "margin_mse": partial(ScoreLoss, "margin_mse")}


class WithDirect(Objective):
    """A loss of vectors and one of the model itself, on data that processes share out."""

    def __call__(self, batch):
        return InfoNCE()(batch)

    def direct(self, model, step, rank, world):
        texts = [f"text {number}" for number in range(4)][rank::world]
        vectors = model.encode(model.pad(model.tokenize(texts, "document")), "document")
        return {"norm": vectors.square().mean(1).sum() / 4}


def gradients(folder: Path) -> dict[str, torch.Tensor]:
    """Gradients and loss terms of one batch by every objective, with and without caching."""
    examples = load_examples(folder / "mined", folder / "source", " ", folder / "scored")
    stream, group, made = Stream(examples, np.arange(QUERIES), 8, 2, [0]), Group(), {}
    for name, make in (OBJECTIVES | {"direct": WithDirect}).items():
        for chunk in (None, 3):
            model = load_tiny(folder / "model")
            forward = Forward(model, examples, "cpu", chunk)
            terms = add_gradients(forward, make(), prepare(forward, stream.batch(0), group), group, [3])
            found = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
            group.add_gradients(list(found.values()))
            made |= {f"{name}/{chunk}/{key}": value.clone() for key, value in found.items()}
            made |= {f"{name}/{chunk}/term.{key}": value.reshape(1).clone() for key, value in terms.items()}
    return made


if __name__ == "__main__":
    write_tensors(gradients)
