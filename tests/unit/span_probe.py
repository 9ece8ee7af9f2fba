"""One process of a pretraining gradient, for test_span_forward: `python -m tests.unit.span_probe FOLDER OUT`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tests.unit.pretraining_helpers import forward
from tests.unit.training_helpers import write_tensors

from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import add_gradients, prepare
from zerodr.training.pretraining.passages import PassageStream, split_documents
from zerodr.training.pretraining.span_forward import evaluate_spans, make_span_objective

NAMES = ("coco", "condenser", "mlm", "ict", "tsdae")
BALANCE = {"cut": {"segmenter": "fixed_tokens", "tokens_per_unit": 3}}
CASES: dict[str, tuple[str, dict | None]] = {name: (name, None) for name in NAMES} | {"r1": ("coco", BALANCE)}


def gradients(folder: Path) -> dict[str, torch.Tensor]:
    """Gradients and loss terms of one batch by every objective, with and without caching, and dev measures."""
    group, made = Group(), {}
    for name, (objective_name, balance) in CASES.items():
        for chunk in (None, 3):
            used = forward(folder, objective_name, chunk, balance=balance)
            batch = PassageStream(np.arange(90), 8, [13, 0]).batch(4)
            objective = make_span_objective(used.maker.settings)
            terms = add_gradients(used, objective, prepare(used, batch, group), group, [3])
            found = {key: p.grad for key, p in used.model.named_parameters() if p.grad is not None}
            group.add_gradients(list(found.values()))
            made |= {f"{name}/{chunk}/{key}": value.clone() for key, value in found.items()}
            made |= {f"{name}/{chunk}/term.{key}": value.reshape(1).clone() for key, value in terms.items()}
        measures = evaluate_spans(used, split_documents(used.examples, 5, 13)[1], 13, group)
        made |= {f"{name}/dev/{key}": torch.tensor([value]) for key, value in measures.items()}
    return made


if __name__ == "__main__":
    write_tensors(gradients)
