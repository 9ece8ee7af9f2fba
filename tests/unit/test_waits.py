"""Waits of the host in a training step, counted on torch's meta device."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from tests.unit.pretraining_helpers import forward, lay_out, passages
from tests.unit.training_helpers import QUERIES, load_tiny, tiny_examples, tiny_model

from zerodr.training.data.batches import Stream
from zerodr.training.data.examples import Examples
from zerodr.training.loop.gradcache import Forward
from zerodr.training.objectives.ranking import InfoNCE, PairwiseNLL
from zerodr.training.pretraining.passages import PassageStream
from zerodr.training.pretraining.span_forward import make_span_objective

CHANGES = [{}, {"batch_queries": 4, "cache_chunk": 3}, {"accumulation": 4}, {"optimizer": "lamb"}]


@pytest.fixture(scope="module")
def counting() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "counting.py"
    spec = importlib.util.spec_from_file_location("counting", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> tuple[Path, Examples]:
    root = tmp_path_factory.mktemp("tiny")
    return tiny_model(root / "model"), tiny_examples(root)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("objective", [InfoNCE, PairwiseNLL, partial(InfoNCE, False)])
def test_the_host_waits_once_a_step(counting, tiny, objective, changes, processes):
    model, examples = load_tiny(tiny[0]), tiny[1]
    settings = {"batch_queries": 8} | changes
    stream = Stream(examples, np.arange(QUERIES), settings["batch_queries"], 1, [13, 0])
    counts = counting.step_counts(Forward(model, examples, "meta"), objective(), stream, settings, processes)
    assert counts.waits == {"tolist": 1}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"cache_chunk": 3, "accumulation": 2}], ids=str)
@pytest.mark.parametrize("name", ["coco", "mlm", "ict", "tsdae"])
def test_the_host_waits_once_a_step_of_pretraining(counting, world, name, changes, processes):
    used, stream = forward(world, name), PassageStream(np.arange(90), 8, [13, 0])
    objective = make_span_objective(used.maker.settings)
    counts = counting.step_counts(used, objective, stream, {"batch_queries": 8} | changes, processes)
    assert counts.waits == {"tolist": 1}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    root = lay_out(tmp_path_factory.mktemp("waits"))
    passages(root)
    return root


def test_waits_are_seen(counting):
    x = torch.ones(3, device="meta")
    with counting.counted() as counts:
        float(x[0]), bool(x[0]), x.tolist(), x[0].item()
        torch.ones(2).to("meta"), torch.ones(2).to("meta", non_blocking=True)
        torch.tensor([1], device="meta"), torch.tensor([1]), x[torch.tensor([0])], x * torch.tensor(2.0)
    assert sum(counts.waits.values()) == 7
