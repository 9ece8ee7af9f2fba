"""Compiled layers: same numbers, same files; refusals. torch's plainest backends stand in for a GPU's."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.training_helpers import finetune_spec, lay_out, load_tiny, tiny_model, tiny_settings, weights_in
from torch import nn

from zerodr.artifacts.stage import run_spec
from zerodr.config.base import validate
from zerodr.config.params import FinetuneParams
from zerodr.config.training import TrainingSettings
from zerodr.errors import ConfigError
from zerodr.training.loop.speed import compile_layers, layers_of, why_not_compiled

IDS = [torch.arange(1, 1 + count * length).view(count, length) % 20 for count, length in ((3, 7), (5, 4))]
CPU = "the CPU has kernels of its own (oneDNN)"


@pytest.fixture
def model(tmp_path: Path) -> Any:
    return load_tiny(tiny_model(tmp_path / "model"))


def one_pass(model: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    """Hidden states of all layers, and gradients."""
    model.zero_grad()
    transformer = model.tower("document").transformer
    states = transformer(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True).hidden_states
    sum(state.square().sum() for state in states).backward()
    return [*states, *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]


def test_compiled_layers_give_the_same_numbers_for_texts_of_any_length(model):
    expected, names = [one_pass(model, ids) for ids in IDS], list(model.state_dict())
    assert compile_layers(model, "cpu", backend="eager") is None
    assert [type(layer).__name__ for layer in layers_of(model)] == ["CompiledBertLayer"] * 2
    for ids, plain in zip(IDS, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(plain, one_pass(model, ids), strict=True))
    assert list(model.state_dict()) == names


def test_a_copy_of_a_compiled_model_computes_with_its_own_weights(model):
    compile_layers(model, "cpu", backend="eager")
    states = one_pass(model, IDS[0])
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for weight in twin.parameters():
            weight.zero_()
    assert not any(state.any() for state in one_pass(twin, IDS[0])[:3])
    assert torch.equal(states[2], one_pass(model, IDS[0])[2])


def broken(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("no compiler\nand more")


@pytest.mark.parametrize(
    ("backend", "reason"), [("inductor", CPU), (broken, "torch.compile does not work here (backend='broken' raised")]
)
def test_layers_stay_plain_where_they_can_not_be_compiled(model, backend, reason, caplog):
    with caplog.at_level(logging.WARNING, "zerodr"):
        found = compile_layers(model, "cpu", backend=backend)
    assert found is not None and found.startswith(reason)
    assert f"layers are not compiled: {reason}" in caplog.text
    assert [type(layer).__name__ for layer in layers_of(model)] == ["BertLayer"] * 2


def test_networks_without_known_layers_stay_plain(caplog):
    assert compile_layers(nn.Linear(2, 2), "cpu", backend="eager") == "no layers that torch.compile is known for"
    assert why_not_compiled("cpu", "eager") is None


def test_settings_without_compile_are_those_before_it_existed():
    assert "compile" not in TrainingSettings().model_dump(mode="json")
    assert TrainingSettings(compile=True).model_dump(mode="json")["compile"] is True


def test_compile_does_not_go_with_dropout_that_is_drawn_twice():
    with pytest.raises(ConfigError, match="set dropout: 0, or leave compile or cache_chunk out"):
        validate(TrainingSettings, {"compile": True, "cache_chunk": 8}, "x")
    assert TrainingSettings(compile=True, cache_chunk=8, dropout=0).compile


def test_compile_does_not_go_with_groups_that_read_gradients():
    params = tiny_settings(name="pairwise_nll", compile=True)
    params["settings"] |= {"kind": "finetune", "clusters": {"count": 4}, "groups": {"mode": "balanced"}}
    assert validate(FinetuneParams, params, "x").settings.training.compile
    params["settings"]["groups"] = {"mode": "idro"}
    with pytest.raises(ConfigError, match="groups read gradients inside the layers, which training.compile fuses"):
        validate(FinetuneParams, params, "x")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU compiles them")
def test_lineage_says_why_a_training_is_not_compiled_and_its_weights_are_plain_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(lay_out(tmp_path))
    for place, asked in (("plain", False), ("asked", True)):
        run_spec(finetune_spec(place, steps=2, dev_queries=0, compile=asked))
    notes = [json.loads(Path(f"results/{place}/lineage.json").read_text())["notes"] for place in ("plain", "asked")]
    assert "compiled" not in notes[0] and notes[1]["compiled"] == CPU
    assert weights_in(Path("results/plain")) == weights_in(Path("results/asked"))
