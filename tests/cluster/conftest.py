"""A real Slurm with two nodes on this machine, and Snakemake that submits to it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.dag.conftest import clone
from tests.e2e.conftest import configure, snakemake_in

HERE = Path(__file__).parent
EXTRA = r"AccountingStorageEnforce=associations,limits\nAccountingStoreFlags=job_comment"
MODEL = "results/models/tiny/shared/ep0/manifest.json"
LONG, PLAIN = MODEL.replace("tiny", "tiny+long"), MODEL.replace("tiny", "tiny+plain")
KEPT = os.environ.get("ZERODR_CALM_BENCH")
PROFILE = (
    "--profile",
    "slurm",
    "--slurm-init-seconds-before-status-checks",
    "1",
    "--latency-wait",
    "10",
    "--max-threads",
    "2",
)


def heed_ctrl_c() -> None:
    """A background shell starts its children deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class Cluster:
    """The running cluster: its recipe (cluster.sh) and the environment that its commands need."""

    environment: dict[str, str]

    def recipe(self, *words: str) -> subprocess.CompletedProcess:
        """A command of cluster.sh."""
        command = ["bash", str(HERE / "cluster.sh"), *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def ask(self, *words: str) -> str:
        """Standard output of one of Slurm's commands."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout

    def start(self, folder: Path, *words: str) -> subprocess.Popen:
        """Snakemake with the Slurm profile, in the background; its output goes to snakemake.out."""
        command = [sys.executable, "-m", "snakemake", *PROFILE, *words]
        with open(folder / "snakemake.out", "a") as stream:
            return subprocess.Popen(
                command,
                cwd=folder,
                env=self.environment,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                preexec_fn=heed_ctrl_c,
            )

    def snakemake(self, folder: Path, *words: str) -> subprocess.CompletedProcess:
        """Snakemake with the Slurm profile, to its end."""
        command = [sys.executable, "-m", "snakemake", *PROFILE, *words]
        return subprocess.run(command, cwd=folder, env=self.environment, capture_output=True, text=True, check=False)

    def jobs(self, state: str = "RUNNING,PENDING") -> list[str]:
        """Numbers of jobs in these states."""
        return self.ask("squeue", "--noheader", "--format=%i", f"--states={state}").split()

    def batch_jobs(self) -> list[str]:
        """Numbers of all jobs that Snakemake ever submitted, by the comment that it gives them."""
        lines = self.ask("sacct", "-X", "-n", "-P", "--format=JobID,Comment").splitlines()
        return [line.split("|")[0] for line in lines if "|rule_" in line]

    def node_of(self, job: str) -> str:
        """The node that a job runs on."""
        return self.ask("squeue", "--noheader", "--format=%N", f"--job={job}").strip()

    def wait_for_nodes(self, count: int = 2, seconds: float = 120) -> None:
        """Until that many nodes take jobs."""
        deadline = time.time() + seconds
        while time.time() < deadline:
            states = self.ask("sinfo", "--noheader", "--Node", "--format=%T").split()
            if sum(state in ("idle", "mixed", "allocated") for state in states) == count:
                return
            time.sleep(1)
        raise AssertionError(f"nodes did not come up: {states}")


def slurm_environment(folder: Path, port: int) -> dict[str, str]:
    """What cluster.sh and all Slurm commands need. Jobs get it too, so no library path may leak in."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and "SLURM" not in name}
    python = str(Path(sys.executable).parent)
    return kept | {
        "SLURMTEST_DIR": str(folder),
        "SLURMTEST_PORT0": str(port),
        "SLURMTEST_MEM_MB": "64000",
        "SLURMTEST_EXTRA": EXTRA,
        "SLURM_CONF": str(folder / "etc/slurm.conf"),
        "PATH": os.pathsep.join([str(folder / "bin"), python, kept["PATH"], "/usr/sbin"]),
    }


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes with two count-only GPUs each, taken down at the end."""
    if shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin") is None:
        pytest.skip("Slurm is not installed: make check-cluster installs it")
    folder = Path(tempfile.mkdtemp(prefix="zs", dir="/tmp"))
    made = Cluster(slurm_environment(folder, 20000 + os.getpid() % 20000))
    started = made.recipe("start")
    try:
        assert started.returncode == 0, started.stderr
        yield made
    finally:
        made.recipe("stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def prepared(root: Path, mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which `tiny` and the row of BM25 were made on this machine, without Slurm.

    ZERODR_CALM_BENCH names a folder that keeps it for the next time; it holds the code as it was then.
    """
    folder = Path(KEPT) if KEPT else tmp_path_factory.mktemp("local") / "bench"
    if folder.exists():
        shutil.copy(HERE / "tiny.yaml", folder / "config/methods/tiny.yaml")
        return folder
    clone(root, folder)
    shutil.copy(HERE / "tiny.yaml", folder / "config/methods/tiny.yaml")
    configure(folder, mirror, collections=["nfcorpus"], source="nfcorpus")
    make_here(folder, MODEL, "results/beir/bm25-flat.tsv")
    return folder


def make_here(folder: Path, *targets: str) -> None:
    """Make targets in a clone without Slurm."""
    done = snakemake_in(folder)(*targets)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
