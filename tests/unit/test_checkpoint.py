"""Checkpoints hold everything, as safetensors and JSON, and are of one run."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from zerodr.config.training import TrainingSettings
from zerodr.errors import ArtifactError
from zerodr.training.loop import checkpoint
from zerodr.training.loop.checkpoint import WRITING, Saving, checkpoints, load_checkpoint, snapshot
from zerodr.training.objectives.base import Objective
from zerodr.training.optimizers import load_moments, make_optimizer, moments, moments_fit


class Remembers(Objective):
    def __init__(self) -> None:
        self.seen, self.queue = 0, torch.zeros(3)

    def state_dict(self):
        return {"seen": self.seen, "queue": self.queue}

    def load_state_dict(self, state):
        self.seen, self.queue = state["seen"], state["queue"]


class Tied(nn.Module):
    """Two names for one weight, and a buffer."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)
        self.second.weight = self.first.weight
        self.register_buffer("positions", torch.arange(size))

    def forward(self, x):
        return self.second(self.first(x))


def trained(optimizer: str = "adamw", steps: int = 3, seed: int = 0) -> tuple:
    torch.manual_seed(seed)
    model, objective = Tied(), Remembers()
    made = make_optimizer(model, TrainingSettings(optimizer=optimizer, weight_decay=0.1))
    step(model, made, steps)
    objective.seen, objective.queue = steps, torch.arange(3.0)
    return model, made, objective


def save_checkpoint(state: Path, identity: str, facts: dict, *trained) -> Path:
    return snapshot(identity, facts, *trained).write(state)


def step(model: nn.Module, optimizer, count: int = 1) -> None:
    for number in range(count):
        optimizer.zero_grad()
        model(torch.ones(2, 4) + number).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_a_restored_run_takes_the_same_next_step(tmp_path, optimizer):
    model, made, objective = trained(optimizer)
    facts = {"step": 3, "curves": [("loss", 0.1 + 0.2, 1)], "sums": {}}
    place = save_checkpoint(tmp_path, "run", facts, model, made, objective)
    assert sorted(path.suffix for path in place.iterdir()) == [".json", *[".safetensors"] * 3]
    other, other_made, other_objective = trained(optimizer, steps=1, seed=9)
    found = load_checkpoint(tmp_path, "run", other, other_made, other_objective)
    assert found["step"] == 3 and found["curves"][0][1] == 0.1 + 0.2
    assert other_objective.seen == 3 and torch.equal(other_objective.queue, objective.queue)
    assert other.first.weight is other.second.weight
    step(model, made)
    step(other, other_made)
    for key, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key


def test_only_the_newest_is_kept_and_half_written_ones_do_not_count(tmp_path):
    model, made, objective = trained()
    for number in (3, 6):
        save_checkpoint(tmp_path, "run", {"step": number}, model, made, objective)
    (tmp_path / WRITING).mkdir()
    (tmp_path / WRITING / "model.safetensors").write_bytes(b"half")
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-00000006"]
    assert load_checkpoint(tmp_path, "run", model, made, objective)["step"] == 6
    save_checkpoint(tmp_path, "run", {"step": 7}, model, made, objective)
    assert not (tmp_path / WRITING).exists()


def test_what_is_written_in_the_background_is_the_state_when_it_was_taken(tmp_path, monkeypatch):
    """Training goes on while files are written; the next checkpoint waits for them."""
    model, made, objective = trained()
    weights, go, saving = model.first.weight.detach().clone(), threading.Event(), Saving(tmp_path)
    write = checkpoint.write_tensors
    monkeypatch.setattr(checkpoint, "write_tensors", lambda *words: (go.wait(30), write(*words)))
    saving.later(snapshot("run", {"step": 3}, model, made, objective))
    step(model, made)
    objective.queue.zero_()
    saving.check()
    assert checkpoints(tmp_path) == []
    go.set()
    saving.wait()
    found, found_made, found_objective = trained(seed=9)
    assert load_checkpoint(tmp_path, "run", found, found_made, found_objective)["step"] == 3
    assert torch.equal(found.first.weight, weights) and found_objective.queue.tolist() == [0, 1, 2]
    saving.later(snapshot("run", {"step": 4}, model, made, objective))
    place = saving.now(snapshot("run", {"step": 5}, model, made, objective))
    assert checkpoints(tmp_path) == [place] and place.name == "checkpoint-00000005"
    saving.close()


def test_a_background_that_fails_is_told_and_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    saving, state = Saving(tmp_path), trained()
    first = saving.now(snapshot("run", {"step": 3}, *state))

    def full(*words):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_tensors", full)
    saving.later(snapshot("run", {"step": 4}, *state))
    with pytest.raises(OSError, match="No space left"):
        saving.now(snapshot("run", {"step": 5}, *state))
    saving.later(snapshot("run", {"step": 6}, *state))
    saving.close()
    with pytest.raises(OSError, match="No space left"):
        saving.check()
    assert checkpoints(tmp_path) == [first]


def test_the_start_has_no_checkpoint(tmp_path):
    assert load_checkpoint(tmp_path, "run", *trained()) is None


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    save_checkpoint(tmp_path, "a" * 64, {"step": 3}, *trained())
    with pytest.raises(
        ArtifactError, match="is of another run .settings and kernels aaaaaaaaaaaa, this run bbbbbbbbbbbb"
    ):
        load_checkpoint(tmp_path, "b" * 64, *trained())


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    save_checkpoint(tmp_path, "run", {"step": 3}, *trained())
    model, objective = Tied(5), Remembers()
    with pytest.raises(ArtifactError, match="other weights than this model, the first that differs is first.weight"):
        load_checkpoint(tmp_path, "run", model, make_optimizer(model, TrainingSettings()), objective)


def test_a_damaged_checkpoint_is_told(tmp_path):
    place = save_checkpoint(tmp_path, "run", {"step": 3}, *trained())
    path: Path = place / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ArtifactError, match="no whole safetensors file"):
        load_checkpoint(tmp_path, "run", *trained())


def test_facts_are_json(tmp_path):
    place = save_checkpoint(tmp_path, "run", {"step": 3}, *trained())
    assert json.loads((place / "progress.json").read_text()) == {"step": 3, "identity": "run", "objective": {"seen": 3}}


def test_moments_of_other_weights_do_not_fit():
    model, made, _ = trained()
    kept = moments(made)
    assert moments_fit(made, kept)
    other = Tied(5)
    larger = make_optimizer(other, TrainingSettings(weight_decay=0.1))
    assert not moments_fit(larger, kept)
    assert not moments_fit(made, {})
    assert not moments_fit(make_optimizer(model, TrainingSettings(weight_decay=0.1, optimizer="lamb")), kept)
    load_moments(made, kept)
    assert all(torch.equal(value, kept[key]) for key, value in moments(made).items())


def test_weight_decay_spares_vectors():
    _, made, _ = trained()
    decay = {tuple(p.ndim for p in group["params"]): group["weight_decay"] for group in made.param_groups}
    assert decay == {(2,): 0.1, (1, 1): 0.0}
    assert make_optimizer(Tied(), TrainingSettings()).defaults["fused"] is True
