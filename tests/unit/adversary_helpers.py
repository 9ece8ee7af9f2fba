"""A target and a small stage that adapts to it, for the tests of MoDIR's adversary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.unit.encoder_helpers import make_collection
from tests.unit.training_helpers import finetune_spec, words

from zerodr.artifacts.stage import StageSpec
from zerodr.papers.modir.domain_classifier import MomentumQueue

SMALL = {
    "queue_length": 4,
    "updates": 3,
    "minibatch": 8,
    "learning_rate": 0.05,
    "optimizer": "adamw",
    "half_life_steps": 10,
}
OFFICIAL = {"mode": "official", "minibatch": None, "updates": 2}


def oldest_first(queue: MomentumQueue) -> torch.Tensor:
    """Embeddings from the oldest batch to the newest, (filled B, G, D)."""
    first = queue.next * queue.size if queue.filled == queue.length else 0
    return torch.cat([queue.rows[first : queue.filled * queue.size], queue.rows[:first]])


def make_target(folder: Path, documents: int = 30, queries: int = 6) -> Path:
    generator = np.random.default_rng(3)
    make_collection(
        folder,
        [(f"t{i}", "", words(generator, 2, 10)) for i in range(documents)],
        [(f"s{i}", words(generator, 1, 4)) for i in range(queries)],
    )
    return folder


def spec(place: str = "ep0", adversary: dict[str, Any] | None = None, targets: Any = None, **changes: Any) -> StageSpec:
    named = {"target": {"split": "test"}} if targets is None else targets
    made = finetune_spec(place, inputs={"targets": ["results/target/manifest.json"]}, **changes)
    made.params["targets"] = named
    made.params["settings"] |= {"adversary": SMALL | (adversary or {}), "scope": "target"}
    return made
