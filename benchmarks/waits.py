"""Compare what a person waits for, apart from the work itself, with the code of an earlier commit.

Run from the project's root: python benchmarks/waits.py --ref 2d75d37c [--queries 5000] [--entries 200]
It makes runs up, fuses them by both codes and compares the digests; loads and plans the configuration at scale `paper`;
starts empty jobs, each as a process that imports what such a job needs, and as a fork of the warm process.
It prints processor seconds and their ratio. Memory is that of the largest process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from zerodr.artifacts.trec import write_run  # noqa: E402
from zerodr.operations.warm import WarmProcess  # noqa: E402

MEASURED = """
import json, resource, sys
code, begun = sys.argv[1], resource.getrusage(resource.RUSAGE_SELF)
found = {}
exec(code)
used = resource.getrusage(resource.RUSAGE_SELF)
seconds = used.ru_utime + used.ru_stime - begun.ru_utime - begun.ru_stime
print(json.dumps({"seconds": seconds, "mib": used.ru_maxrss / 1024, "digest": found.get("digest")}))
"""
FUSE = """
import hashlib
from pathlib import Path
from types import SimpleNamespace
import pandas as pd
from zerodr.retrieval import fuse
fuse.split_queries = lambda folder, split: pd.DataFrame({"id": [f"query-{n}" for n in range(%d)]})
names = {"runs": ["a", "b"], "collection": "made-up", "split": "test", "tag": "both", "exclude_self": False}
stage = SimpleNamespace(params=names | {"depth": %d}, spec=SimpleNamespace(rule="fuse_runs"), note=lambda **facts: None,
    path=Path, paths=lambda name: [Path("0.trec.gz"), Path("1.trec.gz")], output=lambda name: Path("fused.trec.gz"))
fuse.fuse_runs(stage)
found["digest"] = hashlib.sha256(Path("fused.trec.gz").read_bytes()).hexdigest()
"""
PLAN = """
import os
from pathlib import Path
os.chdir(%r)
from zerodr.config.load import load_bench
from zerodr.plan import Plan
Plan(load_bench(Path("."), {"scale": "paper"}))
"""
JOBS = {
    "job without a network": ("merge_run", "import zerodr.artifacts.adapter, zerodr.retrieval.merge"),
    "job that embeds": (
        "embed_queries",
        "import zerodr.artifacts.adapter, zerodr.retrieval.embed, transformers.models.bert.modeling_bert",
    ),
}


def measured(code: str, tree: Path, folder: Path) -> dict:
    """Run code with the library of a checkout; processor seconds, peak memory and digest."""
    environment = os.environ | {"PYTHONPATH": str(tree / "workflow/scripts"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEASURED, code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def make_runs(folder: Path, queries: int, entries: int) -> None:
    """Write two rankings with many equal scores."""
    draw = np.random.default_rng(0)
    for number in range(2):
        ids = np.concatenate([draw.choice(20 * entries, entries, replace=False) for _ in range(queries)])
        scores = -np.sort(-draw.normal(size=(queries, entries)).round(3), axis=1).ravel()
        names = np.repeat([f"query-{n}" for n in range(queries)], entries)
        run = pd.DataFrame({"query": names, "document": [f"document-{n}" for n in ids], "score": scores})
        write_run(folder / f"{number}.trec.gz", run.astype({"score": "float32"}), "made-up")


def forked(rule: str, script: str, folder: Path) -> float:
    """Processor seconds of a job that is forked; the warm process has imported before."""
    from snakemake.benchmark import BenchmarkRecord

    (folder / "job.py").write_text(script, encoding="utf-8")
    warm, record = WarmProcess(), BenchmarkRecord()
    request = {"script": str(folder / "job.py"), "rule": rule, "threads": 1, "environment": dict(os.environ)}
    for _ in range(2):
        warm.run(request, record)
    return record.cpu_time


def show(what: str, before: float, after: float, more: str = "") -> None:
    """Print a row."""
    sys.stdout.write(f"{what:32}{before:8.2f}{after:8.2f}{before / max(after, 0.01):8.1f} x  {more}\n")
    sys.stdout.flush()


def main(words: Sequence[str] | None = None) -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ref", default="2d75d37c", help="commit to compare with")
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--entries", type=int, default=200)
    given = parser.parse_args(words)
    sys.stdout.write(f"{'processor seconds':32}{'before':>8}{'after':>8}{'ratio':>8}\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old = folder / "old"
        old.mkdir()
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", given.ref], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(old)], input=archive.stdout, check=True)
        for what, (rule, script) in JOBS.items():
            show(what, measured(script, ROOT, folder)["seconds"], forked(rule, script, folder))
        show("plan", *(measured(PLAN % str(tree), tree, folder)["seconds"] for tree in (old, ROOT)))
        make_runs(folder, given.queries, given.entries)
        code = FUSE % (given.queries, given.entries)
        before, after = (measured(code, tree, folder) for tree in (old, ROOT))
        same = "equal digests" if before["digest"] == after["digest"] else "DIGESTS DIFFER"
        memory = f"{before['mib']:.0f} -> {after['mib']:.0f} MiB, {same}"
        show(f"fuse {given.queries} x {given.entries}", before["seconds"], after["seconds"], memory)


if __name__ == "__main__":
    main()
