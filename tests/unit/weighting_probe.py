"""Take steps with cluster weights in one process: `python -m tests.unit.weighting_probe FOLDER OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from tests.unit.training_helpers import write_tensors
from tests.unit.weighting_helpers import IN_BATCH, PAIRWISE, batch_of, on_devices, one_step, tiny, weighted, with_groups

from zerodr.training.data.examples import load_examples
from zerodr.training.distributed.processes import Group

STEPS = 3
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "segment": (PAIRWISE, {"engine": "segment", "similarity": "cosine", "temperature": 1.0}),
    "segment-current": (PAIRWISE, {"engine": "segment", "timing": "current"}),
    "segment-others": (PAIRWISE, {"engine": "segment", "exclude_self": True}),
    "segment-cosine-others": (PAIRWISE, {"engine": "segment", "similarity": "cosine", "exclude_self": True}),
    "segment-dot": (PAIRWISE, {"engine": "segment"}),
    "jvp": (PAIRWISE, {"engine": "jvp", "layers": "all"}),
    "jvp-in-batch": (IN_BATCH, {"engine": "jvp"}),
    "loop": (PAIRWISE, {"engine": "loop"}),
    "official": (PAIRWISE, {"mode": "official", "similarity": "cosine", "temperature": 1000.0}),
    "official-devices": (PAIRWISE, {"mode": "official", "similarity": "cosine", "temperature": 1000.0, "devices": 3}),
    "segment-effective": (
        PAIRWISE,
        {"engine": "segment", "similarity": "cosine", "temperature": 1000.0, "effective": 0.7, "kappa": 0.1},
    ),
    "group_dro": (PAIRWISE, {"mode": "group_dro", "similarity": "cosine", "temperature": 1000.0, "layers": 3}),
}


def steps(folder: Path) -> dict[str, torch.Tensor]:
    """Weights of groups and gradients after each step, by case."""
    examples, group = with_groups(load_examples(folder / "mined", folder / "source", " ")), Group()
    made: dict[str, torch.Tensor] = {}
    for name, (chosen, settings) in CASES.items():
        model = tiny(folder / "model")
        objective = weighted(model, examples, chosen, **({"temperature": 300.0} | settings))
        for step in range(STEPS):
            batch = on_devices(batch_of(examples, 12, chosen.negatives_per_query, step), settings.get("devices", 1))
            with patch.object(dist, "all_reduce", wraps=dist.all_reduce) as added:
                found = one_step(model, examples, objective, batch)
            made[f"bytes/{name}/{step}"] = torch.tensor(sum(call.args[0].nbytes for call in added.call_args_list))
            gradients = {key: value for key, value in found.items() if not key.startswith("term.")}
            group.add_gradients(list(gradients.values()))
            objective.on_step(step + 1)
            made |= {f"{name}/{step}/{key}": value for key, value in gradients.items()}
            made[f"{name}/{step}/omega"] = objective.state.omega.clone()
    return made


if __name__ == "__main__":
    write_tensors(steps)
