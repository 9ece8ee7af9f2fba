"""Checkpoints of a training run: safetensors and JSON, complete or absent.

Every random choice of the engine is a function of (seed, step, process), so the finished steps are all the random state
there is; an objective with generators puts them in its state.
"""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from zerodr.errors import ArtifactError
from zerodr.training.objectives.base import Objective
from zerodr.training.optimizers import load_moments, moments

PREFIX, WRITING = "checkpoint-", ".checkpoint.writing"


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return weights and buffers, each once even when tied."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def finite(model: nn.Module) -> bool:
    """Check that no weight is NaN or infinite."""
    return all(bool(p.isfinite().all()) for p in model.parameters())


@dataclass(frozen=True)
class Snapshot:
    """State of a run after a step, ready to be written.

    Attributes:
        step: number of finished steps.
        tensors: by file.
        progress: content of progress.json.
    """

    step: int
    tensors: dict[str, dict[str, Tensor]]
    progress: bytes

    def copied(self) -> Snapshot:
        """Copy the tensors to the host, so that training may change them meanwhile."""
        copies = {
            file: {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
            for file, tensors in self.tensors.items()
        }
        return replace(self, tensors=copies)

    def write(self, state: Path) -> Path:
        """Write a checkpoint and drop older ones; returns the checkpoint's folder."""
        partial, folder = state / WRITING, state / f"{PREFIX}{self.step:08d}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for file, tensors in self.tensors.items():
            write_tensors(partial / file, tensors)
        _write(partial / "progress.json", self.progress)
        if folder.exists():
            shutil.rmtree(folder)
        # Renaming a complete folder is atomic; older ones go only afterwards.
        partial.replace(folder)
        for old in checkpoints(state):
            if old != folder:
                shutil.rmtree(old)
        return folder


def snapshot(
    identity: str, facts: dict[str, Any], model: nn.Module, optimizer: Optimizer, objective: Objective
) -> Snapshot:
    """Gather the state of a run.

    Args:
        identity: digest of what decides the run; only the same run may resume.
        facts: JSON values, with `step`: number of finished steps.
    """
    objective_state = objective.state_dict()
    tensors = {key: value for key, value in objective_state.items() if isinstance(value, Tensor)}
    values = {key: value for key, value in objective_state.items() if not isinstance(value, Tensor)}
    files = {"model": weights_of(model), "optimizer": moments(optimizer), "objective": tensors}
    progress = json.dumps(facts | {"identity": identity, "objective": values}).encode()
    return Snapshot(facts["step"], {f"{name}.safetensors": value for name, value in files.items()}, progress)


class Saving:
    """Write checkpoints to the folder `state`, one at a time: in the background, or before `now` returns."""

    def __init__(self, state: Path) -> None:
        self.state = state
        # One thread: two checkpoints at once would write to the same partial folder.
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[Path] | None = None

    def later(self, taken: Snapshot) -> None:
        """Copy the state and write it in the background, after the checkpoint before it is complete."""
        self.wait()
        self._pending = self._thread.submit(taken.copied().write, self.state)

    def now(self, taken: Snapshot) -> Path:
        """Write the state; the checkpoint is complete when this returns."""
        self.wait()
        return taken.write(self.state)

    def check(self) -> None:
        """Raise what went wrong in the background, if it has."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the background. Raises what went wrong there."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Let the background finish."""
        self._thread.shutdown(wait=True)


def checkpoints(state: Path) -> list[Path]:
    """List complete checkpoints, oldest first."""
    return sorted(state.glob(f"{PREFIX}*"))


def finished_steps(folder: Path) -> int:
    """Return the steps of the stage that a checkpoint was written after."""
    return int(folder.name.removeprefix(PREFIX))


def load_checkpoint(
    state: Path, identity: str, model: nn.Module, optimizer: Optimizer, objective: Objective
) -> dict[str, Any] | None:
    """Restore the newest checkpoint in place and return its facts; None when there is none.

    Raises:
        ArtifactError: it belongs to another run, or to a model of other weights.
    """
    saved = checkpoints(state)
    if not saved:
        return None
    folder = saved[-1]
    facts = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
    if facts["identity"] != identity:
        raise ArtifactError(
            folder,
            f"is of another run (settings and kernels {facts['identity'][:12]}, this run {identity[:12]})",
            "take back what you changed (settings, processes), or remove the folder to start afresh",
        )
    restore_weights(model, read_tensors(folder / "model.safetensors"), folder)
    load_moments(optimizer, read_tensors(folder / "optimizer.safetensors"))
    objective.load_state_dict(facts["objective"] | read_tensors(folder / "objective.safetensors"))
    return facts


def restore_weights(model: nn.Module, saved: dict[str, Tensor], folder: Path) -> None:
    """Copy saved weights into the model."""
    current = weights_of(model)
    if {k: v.shape for k, v in current.items()} != {k: v.shape for k, v in saved.items()}:
        strange = sorted(set(current) ^ set(saved)) or [k for k in current if current[k].shape != saved[k].shape]
        raise ArtifactError(
            folder,
            f"holds other weights than this model, the first that differs is {strange[0]}",
            "remove the folder to start afresh",
        )
    with torch.no_grad():
        for name, tensor in current.items():
            tensor.copy_(saved[name])


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors as one safetensors file, on the disk when it returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    _flush(path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors of a safetensors file.

    Raises:
        ArtifactError: it is damaged.
    """
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ArtifactError(path, f"is no whole safetensors file ({error})", "remove its folder") from None


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    _flush(path)


def _flush(path: Path) -> None:
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
