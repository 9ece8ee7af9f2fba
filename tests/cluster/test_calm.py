"""What Slurm makes is what this machine makes by itself."""

from __future__ import annotations

import pytest
from tests.cluster.conftest import HERE, MODEL
from tests.dag.conftest import clone
from tests.e2e.conftest import configure
from tests.e2e.test_chaos import digests

pytestmark = pytest.mark.cluster


def test_the_same_digests_as_a_local_run(cluster, prepared, root, mirror, tmp_path):
    folder = clone(root, tmp_path / "slurm")
    (folder / "config/methods/tiny.yaml").write_text((HERE / "tiny.yaml").read_text())
    configure(folder, mirror, collections=["nfcorpus"], source="nfcorpus")
    done = cluster.snakemake(folder, MODEL, "results/beir/bm25-flat.tsv")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    here, there = digests(folder), digests(prepared)
    assert len(here) >= 12
    assert here == {name: there[name] for name in here}
    assert not cluster.jobs()
    states = cluster.ask("sacct", "-X", "-n", "-P", "--format=State,Comment,WorkDir").splitlines()
    ours = [line.split("|")[0] for line in states if "|rule_" in line and line.endswith(str(folder))]
    assert len(ours) >= 7 and set(ours) == {"COMPLETED"}
    assert list((folder / "results/logs/slurm").rglob("*.log"))
    again = cluster.snakemake(folder, MODEL, "results/beir/bm25-flat.tsv")
    assert "Nothing to be done" in again.stdout + again.stderr
