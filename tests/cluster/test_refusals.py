"""What can't run is refused before a job is submitted, with one sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.conftest import MODEL, Cluster

pytestmark = pytest.mark.cluster
ROW = "results/beir/bm25-flat.tsv"
AGAIN = (ROW, "--forcerun", "evaluate_run")


def refused(cluster: Cluster, folder: Path, *words: str) -> str:
    """The last line of a run that submitted nothing."""
    before = cluster.batch_jobs()
    done = cluster.snakemake(folder, *words)
    assert done.returncode == 1
    assert [job for job in cluster.batch_jobs() if job not in before] == []
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_more_gpus_than_any_node_has(cluster, prepared):
    told = refused(cluster, prepared, MODEL, "--forcerun", "finetune", "--config", "gpus=8")
    assert (
        told.startswith("MachineError: ")
        and "requests 8 GPUs on a node, the largest node of partition gpu has 2" in told
    )


def test_unknown_partition(cluster, prepared):
    told = refused(cluster, prepared, *AGAIN, "--default-resources", "slurm_partition=gpuu")
    assert "partition gpuu" in told and "did you mean gpu?" in told


def test_unknown_and_expired_accounts(cluster, prepared):
    told = refused(cluster, prepared, *AGAIN, "--default-resources", "slurm_account=gone")
    assert "account gone: may not submit" in told and "your accounts: lab" in told
    cluster.ask("sacctmgr", "-i", "add", "account", "old", "cluster=test")
    cluster.ask("sacctmgr", "-i", "add", "user", "root", "account=old")
    cluster.ask("sacctmgr", "-i", "modify", "account", "old", "set", "MaxSubmitJobs=0")
    told = refused(cluster, prepared, *AGAIN, "--default-resources", "slurm_account=old")
    assert "account old: may not submit" in told


def test_more_memory_and_time_than_there_is(cluster, prepared):
    told = refused(cluster, prepared, *AGAIN, "--set-resources", "evaluate_run:mem_mb=900000")
    assert "requests 900000 MiB of memory, the largest node of partition gpu has 64000" in told


def test_no_slurm_on_this_host(cluster, prepared, tmp_path):
    """Only the commands that Snakemake itself needs are on PATH."""
    for name in ("bash", "sh", "env", "git", "which"):
        (tmp_path / name).symlink_to(shutil.which(name))
    environment = {"PATH": f"{Path(sys.executable).parent}:{tmp_path}", "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--profile", "slurm", *AGAIN],
        cwd=prepared,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    told = (done.stdout + done.stderr).strip().splitlines()[-1]
    assert done.returncode == 1 and "this host is no login node of a Slurm cluster" in told


def test_nodes_that_do_not_see_the_results(cluster, prepared):
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    hidden = Path(cluster.environment["SLURMTEST_DIR"])
    started = []
    for node in ("gpu1", "gpu2"):
        cluster.recipe("kill-node", node)
        words = f'mount -t tmpfs none "{prepared}" && exec slurmd -D -N {node}'
        log = open(hidden / f"log/slurmd.{node}.log", "a")
        started.append(
            subprocess.Popen(
                ["unshare", "-m", "sh", "-c", words],
                env=cluster.environment | {"SLURMTEST_MARK": str(hidden)},
                stdout=log,
                stderr=log,
            )
        )
    try:
        cluster.wait_for_nodes()
        told = refused(cluster, prepared, *AGAIN)
        assert "is not shared: a compute node does not see the results folder" in told
    finally:
        for node, process in zip(("gpu1", "gpu2"), started, strict=True):
            cluster.recipe("kill-node", node)
            process.wait(timeout=30)
            cluster.recipe("start-node", node)
        cluster.wait_for_nodes()
