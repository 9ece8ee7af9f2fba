"""kill -9 at random moments of the main job, then run again: nothing lost, nothing repeated, the same bytes."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.dag.conftest import clone
from tests.e2e.conftest import configure, snakemake_in

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("ZERODR_KILLS", "20"))
LONGEST_S = float(os.environ.get("ZERODR_KILL_AFTER_S", "35"))


def digests(folder: Path) -> dict[str, str]:
    """Artifact -> digest, from every lineage record."""
    records = [
        json.loads(p.read_text()) for top in ("results", "resources") for p in (folder / top).rglob("*lineage.json")
    ]
    return {record["artifact"]: record["digest"] for record in records}


def start_and_kill(folder: Path, after_s: float) -> bool:
    """Start the main job and kill its whole process group after `after_s`; True when it was still running."""
    command = [sys.executable, "-m", "snakemake", "--profile", "config/profiles/mini", "all"]
    job = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        job.wait(timeout=after_s)
        return False
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        return True


def finished_outputs(log: str) -> list[str]:
    """First output of every job that Snakemake's log calls finished."""
    outputs = {}
    for block in re.split(r"\n(?=\[)", log):
        found = re.search(r"output: (\S+?),?(?:\s.*)?\n(?:.*\n)*?    jobid: (\d+)", block)
        if found:
            outputs[found[2]] = found[1]
    done = re.findall(r"Finished jobid: (\d+)", log)
    return [outputs[job] for job in done if job in outputs]


def test_kills_at_random_moments_change_nothing(root, mirror, tmp_path):
    calm, chaos = clone(root, tmp_path / "calm"), clone(root, tmp_path / "chaos")
    for folder in (calm, chaos):
        configure(folder, mirror)
    assert snakemake_in(calm)("all").returncode == 0
    moments = random.Random(int(os.environ.get("ZERODR_CHAOS_SEED", "1")))
    killed = 0
    while killed < KILLS and start_and_kill(chaos, moments.uniform(1, LONGEST_S)):
        killed += 1
        time.sleep(1)
    done = snakemake_in(chaos)("all")
    assert done.returncode == 0, done.stderr[-4000:]
    assert killed == KILLS, f"the job finished after {killed} kills: lower ZERODR_KILL_AFTER_S"
    assert digests(chaos) == digests(calm)
    logs = sorted((chaos / ".snakemake/log").glob("*.log"))
    finished = [output for log in logs for output in finished_outputs(log.read_text())]
    assert len(finished) > 40
    repeated = {output for output in finished if finished.count(output) > 1}
    assert not repeated


def test_a_killed_scheduler_and_its_surviving_stage_agree(root, mirror, tmp_path):
    """Only Snakemake dies, the stage lives on: the next run waits for it instead of doing the work twice."""
    folder = clone(root, tmp_path / "orphan")
    configure(folder, mirror, collections=["scifact"], methods=["all-minilm-l6-v2"], source="scifact")
    target = "results/embeddings/all-minilm-l6-v2/shared/scifact/standard/corpus-00000-of-00001.npy"
    command = [sys.executable, "-m", "snakemake", "--profile", "config/profiles/mini", target]
    job = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 300
    while not list((folder / "results/.state").glob("*/work/*.npy")) and time.time() < deadline:
        time.sleep(0.5)
    job.kill()
    job.wait()
    done = snakemake_in(folder)(target)
    assert done.returncode == 0, done.stderr[-4000:]
    log = next((folder / "results/logs/embed_corpus").rglob("*.log")).read_text()
    assert "waiting for it" in log
    assert "already published from the same spec" in log
