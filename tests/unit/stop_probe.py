"""One of two processes, of which one is asked to stop: `python -m tests.unit.stop_probe FOLDER OUT`."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.unit.overlap_probe import engine
from tests.unit.training_helpers import write_tensors

from zerodr.training.distributed.processes import Group, Preempted


def stopped(folder: Path) -> dict[str, torch.Tensor]:
    """Steps after which this process stopped, 0 for none, and the checkpoint's; process 1 is asked in step 3 of 9."""
    job, rank = engine(folder, "info_nce", folder / "state", {"steps": 9, "checkpoint_steps": 9}), Group().rank
    begun: list[int] = []
    update = job._update

    def asked(step, *given):
        begun.append(step)
        job.stop.requested = rank == 1 and step >= 2
        return update(step, *given)

    job._update = asked
    try:
        job.fit()
        ended = 0
    except Preempted:
        ended = len(begun)
    saved = [int(path.name[-8:]) for path in (folder / "state").glob("checkpoint-*")]
    return {"stopped": torch.tensor(ended), "saved": torch.tensor(saved)}


if __name__ == "__main__":
    write_tensors(stopped)
