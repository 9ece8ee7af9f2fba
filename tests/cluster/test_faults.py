"""Faults in the middle of trainings on the real Slurm: they end with the digest of a calm run, from their checkpoints.

ZERODR_FAULTS says how many trainings, each with a Snakemake of its own, are hit at once (default 5).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.conftest import LONG, MODEL, Cluster, make_here

from zerodr.training.loop.checkpoint import checkpoints, finished_steps

pytestmark = pytest.mark.cluster
TIMES = int(os.environ.get("ZERODR_FAULTS", "5"))
FIRST_STEP = 10
PATIENCE_S = 900
STEP = re.compile(r"step (\d+), loss")


@dataclass
class Bench:
    """One clone and the Snakemake that runs in it."""

    folder: Path
    target: str = MODEL
    process: subprocess.Popen | None = None

    def said(self) -> str:
        """The end of what Snakemake said."""
        return (self.folder / "snakemake.out").read_text()[-4000:]

    def checkpointed(self, least: int = FIRST_STEP) -> int:
        """Finished steps of the newest checkpoint, once there are that many."""
        deadline = time.time() + PATIENCE_S
        while time.time() < deadline:
            states = self.folder.glob("results/.state/*/work")
            steps = [finished_steps(path) for state in states for path in checkpoints(state)]
            if steps and max(steps) >= least:
                return max(steps)
            time.sleep(0.1)
        raise AssertionError(self.said())

    def finish(self) -> None:
        """Wait for Snakemake, which must succeed."""
        assert self.process is not None
        assert self.process.wait(timeout=PATIENCE_S) == 0, self.said()

    def attempts(self) -> list[list[int]]:
        """Steps that each job logged, in the order of jobs."""
        logs = sorted((self.folder / "results/logs/slurm/rule_finetune").rglob("*.log"), key=lambda log: int(log.stem))
        return [[int(step) for step in STEP.findall(log.read_text())] for log in logs]

    def starts(self, cluster: Cluster) -> int:
        """How often Slurm started the training, jobs that were queued again included."""
        numbers = [log.stem for log in (self.folder / "results/logs/slurm/rule_finetune").rglob("*.log")]
        told = cluster.ask("sacct", "-D", "-X", "-n", "-P", f"--jobs={','.join(numbers)}", "--format=Start,State")
        return len(told.splitlines())

    def weights(self) -> str:
        """Digest of the weights in the target's manifest."""
        return weights(self.folder, self.target)


def weights(folder: Path, target: str) -> str:
    files = json.loads((folder / target).read_text())["files"]
    return next(entry["sha256"] for entry in files if entry["path"].endswith("model.safetensors"))


@pytest.fixture(scope="module")
def calm(prepared: Path) -> str:
    """Digest of the weights that a calm local training made."""
    return weights(prepared, MODEL)


@pytest.fixture(scope="module")
def calm_long(prepared: Path) -> str:
    """The same of the training that takes longer than a minute."""
    make_here(prepared, LONG)
    return weights(prepared, LONG)


@pytest.fixture
def benches(prepared: Path, tmp_path: Path) -> Iterator[list[Bench]]:
    """Copies of the prepared clone without the trained models."""
    made = [Bench(tmp_path / f"bench{number}") for number in range(TIMES)]
    for bench in made:
        shutil.copytree(prepared, bench.folder, symlinks=True, ignore=shutil.ignore_patterns(".snakemake"))
        for target in (MODEL, LONG):
            shutil.rmtree((bench.folder / target).parent, ignore_errors=True)
        shutil.rmtree(bench.folder / "results/logs/slurm", ignore_errors=True)
    yield made
    for bench in made:
        if bench.process and bench.process.poll() is None:
            os.killpg(bench.process.pid, signal.SIGKILL)
            bench.process.wait()


def jobs_of(cluster: Cluster, benches: list[Bench]) -> list[str]:
    """The running job of each bench, by working folder."""
    lines = cluster.ask("squeue", "--noheader", "--states=RUNNING", "--format=%i|%Z").splitlines()
    by_folder = {line.split("|")[1]: line.split("|")[0] for line in lines}
    return [by_folder[str(bench.folder)] for bench in benches]


def under_way(cluster: Cluster, benches: list[Bench], *words: str) -> None:
    """Start a Snakemake in each bench and wait until its training has a checkpoint."""
    for bench in benches:
        bench.process = cluster.start(bench.folder, MODEL, *words)
    for bench in benches:
        bench.checkpointed()


def hit(cluster: Cluster, benches: list[Bench], calm: str, fault: Callable[[list[str]], None]) -> None:
    """Run trainings and do something to their jobs once all have a checkpoint. Nothing finished is done twice."""
    under_way(cluster, benches, "--retries", "3")
    fault(jobs_of(cluster, benches))
    for bench in benches:
        bench.finish()
        assert bench.weights() == calm
        flat = [step for steps in bench.attempts() for step in steps]
        again = [(before, now) for before, now in zip(flat, flat[1:], strict=False) if now <= before]
        assert all(now > FIRST_STEP and before - now < 20 for before, now in again), again
        assert bench.starts(cluster) == 1 if fault.__name__ == "restart" else bench.starts(cluster) > 1


@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_jobs_killed(cluster, calm, benches, name):
    """Every process of the job's step gets the signal."""
    hit(cluster, benches, calm, lambda jobs: cluster.ask("scancel", f"--signal={name}", *jobs))


def test_jobs_preempted(cluster, calm, benches):
    """As preemption does: SIGTERM, after a while SIGKILL, and back into the queue."""
    hit(cluster, benches, calm, lambda jobs: cluster.ask("scontrol", "requeue", ",".join(jobs)))


def test_node_killed(cluster, calm, benches):
    """All processes of a node go at once, its daemon included; jobs go on on the other one."""
    dead: list[str] = []

    def cut(jobs: list[str]) -> None:
        nodes = [cluster.node_of(job) for job in jobs]
        dead.append(max(nodes, key=nodes.count))
        cluster.recipe("kill-node", dead[0])

    cluster.wait_for_nodes()
    try:
        hit(cluster, benches, calm, cut)
    finally:
        cluster.recipe("start-node", dead[0])
        cluster.wait_for_nodes()


def test_controller_restarted(cluster, calm, benches):
    def restart(jobs: list[str]) -> None:
        pid = int((Path(cluster.environment["SLURMTEST_DIR"]) / "run/slurmctld.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        time.sleep(5)
        assert cluster.recipe("start").returncode == 0

    hit(cluster, benches, calm, restart)


def test_snakemake_killed(cluster, calm, benches):
    """The jobs live on; the next runs wait for them and do nothing twice."""
    under_way(cluster, benches)
    for bench in benches:
        assert bench.process is not None
        os.killpg(bench.process.pid, signal.SIGKILL)
        bench.process.wait()
    assert len(jobs_of(cluster, benches)) == TIMES
    for bench in benches:
        bench.process = cluster.start(bench.folder, MODEL)
    for bench in benches:
        bench.finish()
        assert bench.weights() == calm
        flat = [step for steps in bench.attempts() for step in steps]
        assert flat == sorted(set(flat)) and len(flat) == 100, "steps were done twice"


def test_walltime_hit(cluster, calm_long, benches):
    """A walltime of two minutes, which is shorter than the training: attempts make a chain.

    A minute before it is up (Slurm looks every 30 s), a job is asked to stop. One that ended after its time would count
    as failed, also where it had published, and the whole training would be done again.
    """
    for bench in benches:
        bench.target = LONG
        words = (
            "--retries",
            "20",
            "--set-resources",
            "finetune:runtime=2",
            "finetune:slurm_extra='--open-mode=append --signal=TERM@60'",
        )
        bench.process = cluster.start(bench.folder, LONG, *words)
    for bench in benches:
        bench.finish()
        assert bench.weights() == calm_long
        chain = [steps for steps in bench.attempts() if steps]
        assert len(chain) > 1
        flat = [step for steps in chain for step in steps]
        assert flat == sorted(set(flat)), "steps were done twice"


def test_out_of_memory(cluster, calm, benches):
    """The first attempt has too little; later ones ask for more."""
    for bench in benches:
        words = ("--retries", "5", "--set-resources", "finetune:mem_mb=300*attempt**2")
        bench.process = cluster.start(bench.folder, MODEL, *words)
    for bench in benches:
        bench.finish()
        assert bench.weights() == calm
        numbers = sorted(log.stem for log in (bench.folder / "results/logs/slurm/rule_finetune").rglob("*.log"))
        told = cluster.ask("sacct", "-X", "-n", "-P", "--format=State,ReqMem", f"--jobs={','.join(numbers)}")
        states = [line.split("|")[0] for line in told.splitlines()]
        assert len(states) > 1 and states.count("COMPLETED") == 1, told


def test_interrupted_by_hand(cluster, benches):
    """Ctrl-C cancels what was submitted."""
    under_way(cluster, benches)
    for bench in benches:
        assert bench.process is not None
        os.kill(bench.process.pid, signal.SIGINT)
    for bench in benches:
        assert bench.process is not None
        assert bench.process.wait(timeout=120) != 0
    deadline = time.time() + 60
    while cluster.jobs() and time.time() < deadline:
        time.sleep(0.5)
    assert not cluster.jobs()
