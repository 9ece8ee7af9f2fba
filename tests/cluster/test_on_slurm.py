"""The main job on Slurm: the digests of the local run, and never more GPUs at once than a node has."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.cluster.conftest import Cluster
from tests.dag.conftest import clone
from tests.e2e.conftest import configure, snakemake_in
from tests.e2e.test_chaos import digests

pytestmark = pytest.mark.cluster
TARGET = "results/beir/nfcorpus+scifact.tsv"
GPUS = ("--set-resources", "embed_corpus:gpu=1", "embed_queries:gpu=1")  # count-only ones: models work on the CPU
OF_A_NODE = 2


def most_gpus(cluster: Cluster, folder: Path) -> dict[str, int]:
    """Node -> most GPUs that jobs of a checkout held there at once."""
    lines = cluster.ask("sacct", "-X", "-n", "-P", "--format=Start,End,NodeList,AllocTRES,WorkDir").splitlines()
    events = []
    for line in lines:
        start, end, node, held, place = line.split("|")
        gpus = re.search(r"gres/gpu=(\d+)", held)
        if gpus and place == str(folder):
            events += [(start, int(gpus[1]), node), (end, -int(gpus[1]), node)]
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for _, change, node in sorted(events):  # at one second, what ends comes before what starts
        now[node] += change
        most[node] = max(most[node], now[node])
    return dict(most)


def test_the_main_job_as_on_this_machine(cluster, root, mirror, tmp_path):
    """All rows of `mini` on two collections in shards, so that more jobs want a GPU than there are."""
    here, there = (clone(root, tmp_path / name) for name in ("here", "there"))
    for folder in (here, there):
        configure(folder, mirror, collections=["nfcorpus", "scifact"], shard_documents=1000)
    done = snakemake_in(here)(TARGET)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    done = cluster.snakemake(there, TARGET, *GPUS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert (there / TARGET).read_bytes() == (here / TARGET).read_bytes()
    assert digests(there) == digests(here)
    most = most_gpus(cluster, there)
    assert sorted(most) == ["gpu1", "gpu2"] and set(most.values()) == {OF_A_NODE}
