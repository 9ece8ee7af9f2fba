"""One process of some steps, for test_overlap: `python -m tests.unit.overlap_probe FOLDER OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from tests.unit.gradient_probe import WithDirect
from tests.unit.pretraining_helpers import forward
from tests.unit.training_helpers import QUERIES, load_tiny, write_tensors

from zerodr.config.training import TrainingSettings
from zerodr.training.data.batches import Stream
from zerodr.training.data.examples import load_examples
from zerodr.training.distributed import overlap
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.engine import Engine, Run
from zerodr.training.loop.gradcache import Forward
from zerodr.training.objectives.base import Objective
from zerodr.training.objectives.ranking import InfoNCE
from zerodr.training.optimizers import make_optimizer, schedule
from zerodr.training.pretraining.passages import PassageStream
from zerodr.training.pretraining.span_forward import make_span_objective

STEPS = 3
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "info_nce": ("info_nce", {}),
    "info_nce-lamb-clipped": ("info_nce", {"optimizer": "lamb", "max_grad_norm": 0.1}),
    "info_nce-chunk": ("info_nce", {"cache_chunk": 3}),
    "info_nce-accumulation": ("info_nce", {"accumulation": 2}),
    "separate-chunk": ("separate", {"cache_chunk": 3}),
    "coco": ("coco", {}),
    "coco-chunk": ("coco", {"cache_chunk": 3}),
    "mlm": ("mlm", {}),
    "direct": ("direct", {}),
}


def engine(folder: Path, kind: str, state: Path, changes: dict[str, Any]) -> Engine:
    """An engine of a case, with dropout."""
    chosen = TrainingSettings(**({"steps": STEPS, "batch_queries": 8, "learning_rate": 1e-3} | changes))
    objective: Objective
    if kind in ("coco", "mlm"):
        way: Any = forward(folder, kind, chosen.cache_chunk, dropout=0.1)
        stream: Any = PassageStream(np.arange(90), 8, [13, 0])
        objective = make_span_objective(way.maker.settings)
    else:
        examples = load_examples(folder / "mined", folder / "source", " ")
        model = load_tiny(folder / ("separate" if kind == "separate" else "model"), dropout=0.1)
        way, stream = (
            Forward(model, examples, "cpu", chosen.cache_chunk),
            Stream(examples, np.arange(QUERIES), 8, 2, [0]),
        )
        objective = WithDirect() if kind == "direct" else InfoNCE()
    run = Run("test", state, "identity", [13, 0])
    return Engine(way, objective, stream, make_optimizer(way.model, chosen), schedule("linear", 1, 8), chosen, run)


def trained(folder: Path) -> dict[str, torch.Tensor]:
    """Weights after some steps, by case, with sums during the backward pass and after it."""
    made: dict[str, torch.Tensor] = {}
    for name, (kind, changes) in CASES.items():
        for way in ("during", "after"):
            rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
            job = engine(folder, kind, folder / "state" / name / way / str(rank), changes)
            sent: list[int] = []
            close = overlap.GradientSums.close

            def closing(sums: overlap.GradientSums, sent: list[int] = sent, close: Any = close) -> None:
                sent.append(len(sums._travelling))
                close(sums)

            only = type(job.objective).only_vectors if way == "during" else False
            with (
                patch.object(overlap, "BUCKET", 2000),
                patch.object(overlap.GradientSums, "close", closing),
                patch.object(type(job.objective), "only_vectors", only),
            ):
                job.fit()
            made |= {f"{name}/{way}/{key}": p.detach().clone() for key, p in job.model.named_parameters()}
            made[f"sent/{name}/{way}"] = torch.tensor(sent)
    group = Group()
    made["from_first"] = torch.tensor(group.from_first(lambda: [group.rank + 1.5, group.rank], 2))
    return made


if __name__ == "__main__":
    write_tensors(trained)
