"""Waits of the host in a training step, counted on torch's meta device."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from tests.unit.training_helpers import QUERIES, load_tiny, tiny_examples, tiny_model

from zerodr.training.data.batches import Stream
from zerodr.training.loop.gradcache import Forward
from zerodr.training.objectives.ranking import InfoNCE, PairwiseNLL


@pytest.fixture(scope="module")
def counting() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "counting.py"
    spec = importlib.util.spec_from_file_location("counting", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("changes", [{}, {"cache_chunk": 3}, {"accumulation": 4}, {"optimizer": "lamb"}], ids=str)
@pytest.mark.parametrize("objective", [InfoNCE, PairwiseNLL])
def test_the_host_waits_once_a_step(counting, tmp_path, objective, changes):
    model, examples = load_tiny(tiny_model(tmp_path / "model")), tiny_examples(tmp_path)
    stream = Stream(examples, np.arange(QUERIES), 8, 1, [13, 0])
    counts = counting.step_counts(Forward(model, examples, "meta"), objective(), stream, {"batch_queries": 8} | changes)
    assert counts.waits == {"tolist": 1}


def test_waits_are_seen(counting):
    x = torch.ones(3, device="meta")
    with counting.counted() as counts:
        float(x[0]), bool(x[0]), x.tolist(), x[0].item()
        torch.ones(2).to("meta"), torch.ones(2).to("meta", non_blocking=True)
    assert sum(counts.waits.values()) == 5
