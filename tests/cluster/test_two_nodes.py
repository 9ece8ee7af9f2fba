"""A training on two nodes learns what one process learns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.cluster.conftest import PLAIN, Cluster, make_here

pytestmark = pytest.mark.cluster
CLOSE = 1e-5
LATER = 5e-3  # Adam divides by the root of the second moment, so rounding of small gradients grows from step to step


def record(folder: Path) -> dict:
    return json.loads(((folder / PLAIN).parent / "lineage.json").read_text())


def curve(told: dict, name: str) -> dict[int, float]:
    return {metric["step"]: metric["value"] for metric in told["metrics"] if metric["name"] == name}


def test_two_nodes_and_one_process(cluster: Cluster, prepared: Path):
    make_here(prepared, PLAIN)
    one, before = record(prepared), load_file((prepared / PLAIN).parent / "model.safetensors")
    done = cluster.snakemake(prepared, PLAIN, "--config", "nodes=2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    two, after = record(prepared), load_file((prepared / PLAIN).parent / "model.safetensors")
    assert two["notes"]["processes"] == 2 and two["spec"]["params"]["nodes"] == 2
    job = max(cluster.batch_jobs(), key=int)
    assert cluster.ask("sacct", "-X", "-n", "-P", f"--jobs={job}", "--format=NNodes,State").strip() == "2|COMPLETED"
    for name in ("loss", "gradient_norm"):
        a, b = curve(one, name), curve(two, name)
        assert a.keys() == b.keys() and len(a) == 20
        assert b[1] == pytest.approx(a[1], rel=CLOSE), f"{name} of the first step, from equal weights"
        assert b == pytest.approx(a, rel=LATER), f"{name} of all steps"
    top = max(float(value.abs().max()) for value in before.values())
    assert all(float((value - after[name]).abs().max()) < LATER * top for name, value in before.items())
