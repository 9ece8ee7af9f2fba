"""A training on two nodes learns what it learns on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.cluster.conftest import MODEL, Cluster

pytestmark = pytest.mark.cluster


def trained(folder: Path) -> dict[str, torch.Tensor]:
    return load_file((folder / MODEL).parent / "model.safetensors")


def test_two_nodes_and_one_process(cluster: Cluster, prepared: Path):
    one = trained(prepared)
    done = cluster.snakemake(prepared, MODEL, "--config", "nodes=2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    record = json.loads(((prepared / MODEL).parent / "lineage.json").read_text())
    assert record["notes"]["processes"] == 2 and record["spec"]["params"]["nodes"] == 2
    job = max(cluster.batch_jobs(), key=int)
    assert cluster.ask("sacct", "-X", "-n", "-P", f"--jobs={job}", "--format=NNodes,State").strip() == "2|COMPLETED"
    two = trained(prepared)
    top = max(float(value.abs().max()) for value in one.values())
    for name, value in one.items():
        assert float((value - two[name]).abs().max()) < 1e-3 * top, name
