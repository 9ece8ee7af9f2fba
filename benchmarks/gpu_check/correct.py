"""Rows that compare a device with the CPU: one step of each objective, and a training that was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from train import ROOT

from gpu_check.check import Check, deterministic
from gpu_check.killed import KILLED_AT, trained
from gpu_check.lessons import LESSONS, engine
from gpu_check.report import Facts

APART = 2e-2  # largest relative difference of a loss, of gradients and of an objective's state, in float32
FEW = 8  # queries of the one step


def one_step(check: Check, name: str) -> Facts:
    """Compare loss, gradients and the objective's state (queue, classifier, weights of clusters) after one step.

    `repeats` says whether two steps as a training takes them (bf16, dropout, its kernels) have gradients of equal bits.
    """
    losses, gradients, states = [], [], []
    for device in ("cpu", check.device):
        made = engine(
            check,
            LESSONS[name],
            FEW,
            device=device,
            dropout=0.0,
            steps=1,
            max_grad_norm=None,
        )
        curves = {point: value for point, value, _ in made.fit()}
        losses.append(curves["loss"])
        gradients.append(_gradients(made))
        states.append(_numbers(made.objective.state_dict()))
    state = max((apart(states[0][key], states[1][key]) for key in states[0]), default=None)
    found: Facts = {
        "cpu_loss": losses[0],
        "device_loss": losses[1],
        "gradients_apart": apart(*gradients),
        "state_apart": state,
        "weights": gradients[0].numel(),
        "repeats": torch.equal(*(_trained_gradients(check, name) for _ in range(2))),
    }
    near = abs(losses[0] - losses[1]) < APART * abs(losses[0]) and found["gradients_apart"] < APART
    right = near and gradients[0].any() and (state or 0.0) < APART and found["repeats"]
    return {"right": bool(right)} | found


def _trained_gradients(check: Check, name: str) -> Tensor:
    """Compute the gradients of one step in bf16 with dropout, by the kernels that a training takes."""
    with deterministic(check.device):
        made = engine(check, LESSONS[name], FEW, precision="bf16", steps=1, max_grad_norm=None)
        made.fit()
    return _gradients(made)


def _gradients(made: Any) -> Tensor:
    """Join the gradients of an engine's weights."""
    return torch.cat([weight.grad.flatten().cpu() for weight in made.weights if weight.grad is not None])


def _numbers(state: dict[str, Any]) -> dict[str, Tensor]:
    """Keep the tensors of real numbers."""
    kept = {key: value for key, value in state.items() if isinstance(value, Tensor) and value.is_floating_point()}
    return {key: value.detach().cpu().double() for key, value in kept.items()}


def apart(a: Tensor, b: Tensor) -> float:
    """Length of the difference over the length of `a`; infinite where one has no number."""
    if a.shape != b.shape or not bool(a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    return float((a - b).norm() / a.norm().clamp(min=torch.finfo(a.dtype).tiny)) if a.numel() else 0.0


def killed_and_resumed(check: Check, left: Callable[[], float]) -> Facts:
    """Kill a training's process by SIGKILL between two passes of a step, continue it in another one.

    The weights at the end are those of a training that was not killed, bit by bit. `repeats` says whether two trainings
    that nobody kills have equal bits on this device, without which a resumed one can't have them either.

    Args:
        left: seconds for a child process.
    """
    (check.folder / "texts.json").write_text(json.dumps(check.texts), encoding="utf-8")
    check.model_folder("bert")
    whole, again = (trained(check, check.new_folder("whole"), None)["digest"] for _ in range(2))
    state = check.new_folder("killed")
    first = _child(check, state, KILLED_AT, left())
    if first.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the child ended with {first.returncode} before it was killed: {_last(first.stderr)}")
    rest = _child(check, state, None, left())
    if rest.returncode:
        raise RuntimeError(f"the training could not go on: {_last(rest.stderr)}")
    ended = json.loads(rest.stdout.strip().splitlines()[-1])
    return {
        "right": ended["digest"] == whole and ended["resumed_at"] > 0,
        "repeats": whole == again,
        "killed_in_step": KILLED_AT,
        "resumed_at": ended["resumed_at"],
    }


def _child(check: Check, state: Path, kill_at: int | None, seconds: float) -> subprocess.CompletedProcess[str]:
    """Train in a process of its own."""
    given = {"device": check.device, "tiny": check.tiny, "folder": str(check.folder), "state": str(state)}
    given |= {"kill_at": kill_at, "threads": torch.get_num_threads()}
    known = [str(ROOT / "benchmarks"), str(ROOT / "workflow" / "scripts"), os.environ.get("PYTHONPATH", "")]
    paths = os.pathsep.join(filter(None, known))
    command = [sys.executable, "-m", "gpu_check.killed", json.dumps(given)]
    return subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=max(1.0, seconds),
        encoding="utf-8",
    )


def _last(text: str) -> str:
    return (text.strip() or "no message").splitlines()[-1]
