"""A training in a process of its own, which may kill itself: `python -m gpu_check.killed '{"device": ..., ...}'`."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from train import quiet, say

from gpu_check.check import Check, deterministic
from gpu_check.lessons import engine, modir

BATCH, STEPS, CHECKPOINT_STEPS, KILLED_AT = 8, 8, 2, 5


def trained(check: Check, state: Path, kill_at: int | None) -> dict[str, Any]:
    """Train with an objective that has a state of its own (MoDIR's), from the newest checkpoint in `state`.

    Args:
        kill_at: number of the step, from 0, in which the process kills itself, after the network's forward pass.

    Returns:
        `digest` of all weights and of the objective's state, and `resumed_at`: steps of the checkpoint, 0 for none.
    """
    from zerodr.training.loop.checkpoint import checkpoints, finished_steps

    found = checkpoints(state)
    settings = {"steps": STEPS, "checkpoint_steps": CHECKPOINT_STEPS}
    made = engine(check, modir, BATCH, state=state, **settings)
    plain = made.objective.before

    def before(turn: Any) -> None:
        if turn.batch.step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(turn)

    made.objective.before = before
    with deterministic(check.device):
        made.fit()
    total = hashlib.sha256()
    kept = {key: value for key, value in made.objective.state_dict().items() if isinstance(value, torch.Tensor)}
    for tensor in [*made.weights, *(kept[key] for key in sorted(kept))]:
        total.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return {"digest": total.hexdigest(), "resumed_at": finished_steps(found[-1]) if found else 0}


def main() -> None:
    """Train as the parent asks, and print the result."""
    given = json.loads(sys.argv[1])
    quiet()
    torch.set_num_threads(given["threads"])
    folder = Path(given["folder"])
    check = Check(
        given["device"], given["tiny"], folder, json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    )
    say(json.dumps(trained(check, Path(given["state"]), given["kill_at"])))


if __name__ == "__main__":
    main()
