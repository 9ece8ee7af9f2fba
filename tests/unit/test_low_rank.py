"""LoRA in place of training all weights: what changes, what is saved, resume, memory, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.training_helpers import cut_and_resumed, finetune_spec, lay_out, weights_in

from zerodr.artifacts.stage import run_spec
from zerodr.errors import ConfigError
from zerodr.plan.memory import BatchSize, Data, Network, training_mib

RANK = 2


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return lay_out(tmp_path)


def test_linear_layers_change_by_the_rank_and_nothing_else(project: Path) -> None:
    run_spec(finetune_spec(lora_rank=RANK, learning_rate=1e-2))
    before, after = (load_file(project / f"results/{place}/model.safetensors") for place in ("init", "ep0"))
    assert before.keys() == after.keys(), "the saved model is a plain one"
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "encoder.layer" in name and before[name].ndim == 2}
    ranks = [torch.linalg.matrix_rank(after[name] - before[name], atol=1e-5) for name in changed]
    assert max(map(int, ranks)) == RANK


def test_a_run_that_stopped_ends_with_the_same_bits(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_and_resumed(finetune_spec, monkeypatch, lora_rank=RANK, checkpoint_steps=4)
    assert weights_in(project / "results/whole") == weights_in(project / "results/cut")


def test_what_trains_other_weights_takes_none(project: Path) -> None:
    spec = finetune_spec(lora_rank=RANK)
    spec.params["settings"]["rem"] = {"shape": "lora"}
    with pytest.raises(ConfigError, match="training.lora_rank is for models without rem: leave it out"):
        run_spec(spec)


def test_frozen_weights_take_a_quarter() -> None:
    network, batch = Network(1024, 24, 16, 250_000), BatchSize(8, 64)
    whole, frozen = (training_mib(network, batch, Data(0.001), 1, False, lora) for lora in (False, True))
    state = network.parameters / 2**20
    assert whole - frozen > 12 * state
