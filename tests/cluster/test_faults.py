"""Faults in the middle of a training on the real Slurm: it ends with the digest of a calm run, from its checkpoint.

ZERODR_FAULTS says how often each fault is tried (default 5).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.conftest import MODEL, Cluster

pytestmark = pytest.mark.cluster
TIMES = int(os.environ.get("ZERODR_FAULTS", "5"))
LONG = MODEL.replace("tiny", "tiny+long")
FIRST_STEP = 40
PATIENCE_S = 600


@pytest.fixture
def bench(prepared: Path) -> Path:
    """The prepared clone without the models, whose records are kept aside."""
    for target in (MODEL, LONG):
        shutil.rmtree((prepared / target).parent, ignore_errors=True)
    for work in prepared.glob("results/.state/*/work"):
        shutil.rmtree(work)
    shutil.rmtree(prepared / "results/logs/slurm", ignore_errors=True)
    return prepared


@pytest.fixture(scope="module")
def calm(prepared: Path) -> dict[str, str]:
    """Digests of the weights that calm local trainings made."""
    return {target: weights(prepared, target) for target in (MODEL, LONG)}


def weights(folder: Path, target: str) -> str:
    """Digest of the weights in a model folder's manifest."""
    files = json.loads((folder / target).read_text())["files"]
    return next(entry["sha256"] for entry in files if entry["path"].endswith("model.safetensors"))


def checkpointed(folder: Path, least: int) -> int:
    """Finished steps of the newest checkpoint, once there are that many."""
    deadline = time.time() + PATIENCE_S
    while time.time() < deadline:
        steps = [int(path.name[-8:]) for path in folder.glob("results/.state/*/work/checkpoint-*")]
        if steps and max(steps) >= least:
            return max(steps)
        time.sleep(0.2)
    raise AssertionError((folder / "snakemake.out").read_text()[-3000:])


def attempts(folder: Path) -> list[list[int]]:
    """Steps that each attempt logged, in the order of attempts (a requeued one goes on in the same file)."""
    logs = sorted((folder / "results/logs/slurm/rule_finetune").rglob("*.log"), key=lambda log: int(log.stem))
    return [[int(step) for step in re.findall(r"step (\d+), loss", log.read_text())] for log in logs]


def finish(process: subprocess.Popen, folder: Path) -> None:
    status = process.wait(timeout=PATIENCE_S)
    assert status == 0, (folder / "snakemake.out").read_text()[-4000:]


def check(folder: Path, target: str, calm: dict[str, str], kept: int) -> None:
    """The same weights, and no finished step up to the checkpoint was done again."""
    assert weights(folder, target) == calm[target]
    flat = [step for steps in attempts(folder) for step in steps]
    starts = [flat[0], *(now for before, now in zip(flat, flat[1:], strict=False) if now <= before)]
    assert all(start > kept for start in starts[1:]), (kept, starts)


def hit(cluster: Cluster, bench: Path, calm: dict[str, str], fault: Callable[[str], None]) -> None:
    """Run the training and do something to its job once it has a checkpoint."""
    process = cluster.start(bench, MODEL, "--retries", "3")
    kept = checkpointed(bench, FIRST_STEP)
    fault(cluster.jobs()[0])
    finish(process, bench)
    check(bench, MODEL, calm, kept)


@pytest.mark.parametrize("number", range(TIMES))
@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_job_killed(cluster, calm, bench, name, number):
    hit(cluster, bench, calm, lambda job: cluster.ask("scancel", f"--signal={name}", job))


@pytest.mark.parametrize("number", range(TIMES))
def test_job_preempted(cluster, calm, bench, number):
    """As preemption does: SIGTERM, after a while SIGKILL, and back into the queue."""
    hit(cluster, bench, calm, lambda job: cluster.ask("scontrol", "requeue", job))


@pytest.mark.parametrize("number", range(TIMES))
def test_node_killed(cluster, calm, bench, number):
    cluster.wait_for_nodes()

    def cut(job: str) -> None:
        node = cluster.node_of(job)
        cluster.recipe("kill-node", node)
        dead.append(node)

    dead: list[str] = []
    try:
        hit(cluster, bench, calm, cut)
    finally:
        for node in dead:
            cluster.recipe("start-node", node)
        cluster.wait_for_nodes()


@pytest.mark.parametrize("number", range(TIMES))
def test_controller_restarted(cluster, calm, bench, number):
    def restart(job: str) -> None:
        pid = int((Path(cluster.environment["SLURMTEST_DIR"]) / "run/slurmctld.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        time.sleep(3)
        assert cluster.recipe("start").returncode == 0

    hit(cluster, bench, calm, restart)


@pytest.mark.parametrize("number", range(TIMES))
def test_snakemake_killed(cluster, calm, bench, number):
    """The job lives on; the next run waits for it and does nothing twice."""
    process = cluster.start(bench, MODEL)
    checkpointed(bench, FIRST_STEP)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(cluster.jobs()) == 1
    finish(cluster.start(bench, MODEL), bench)
    assert weights(bench, MODEL) == calm[MODEL]
    flat = [step for steps in attempts(bench) for step in steps]
    assert flat == sorted(set(flat)), "steps were done twice"


@pytest.mark.parametrize("number", range(TIMES))
def test_walltime_hit(cluster, calm, bench, number):
    """A walltime of a minute, which is shorter than the training: attempts make a chain."""
    finish(cluster.start(bench, LONG, "--retries", "8", "--set-resources", "finetune:runtime=1"), bench)
    assert weights(bench, LONG) == calm[LONG]
    chain = attempts(bench)
    assert len(chain) > 1
    assert all(after[0] > before[-1] - 20 for before, after in zip(chain, chain[1:], strict=False))


@pytest.mark.parametrize("number", range(TIMES))
def test_out_of_memory(cluster, calm, bench, number):
    """The first attempt has too little; the next one asks for more."""
    before = len(cluster.batch_jobs())
    finish(cluster.start(bench, MODEL, "--retries", "3", "--set-resources", "finetune:mem_mb=300*attempt**2"), bench)
    assert weights(bench, MODEL) == calm[MODEL]
    asked = cluster.ask("sacct", "-X", "-n", "-P", "--format=State,ReqMem,Comment").splitlines()[before:]
    ours = [line.split("|") for line in asked if "|rule_finetune" in line]
    assert len(ours) > 1 and ours[-1][0] == "COMPLETED"
    assert {line[0] for line in ours[:-1]} <= {"OUT_OF_MEMORY", "CANCELLED", "FAILED", "CANCELLED by 0"}


def test_interrupted_by_hand(cluster, prepared, bench):
    """Ctrl-C cancels what was submitted."""
    process = cluster.start(bench, MODEL)
    checkpointed(bench, FIRST_STEP)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=120)
    deadline = time.time() + 60
    while cluster.jobs() and time.time() < deadline:
        time.sleep(0.5)
    assert not cluster.jobs()
