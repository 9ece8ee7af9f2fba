"""Compare a Slurm job with the same job run here: seconds of a whole run, per job, rounds interleaved.

Run from the project's root on a login node, after `make mini`: python benchmarks/scheduling.py [--rounds 3]
It makes one, then all evaluations of results/evaluation again, with the profile `local` and with `slurm`, and divides
the difference by the jobs between them, so that planning does not count. The peer is the local run with as many jobs
at once. Where a job's own work is a second, what is left is the interpreter, Snakemake in the job, and Slurm. Further
words go to the run on Slurm, after `--`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from zerodr.artifacts.record import read_record  # noqa: E402

RULE = "evaluate_run"


def run(targets: list[str], *words: str) -> float:
    """Make the targets again; seconds of the whole command."""
    command = [sys.executable, "-m", "snakemake", *targets, "--forcerun", RULE, "--quiet", "all", *words]
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return time.monotonic() - started


def per_job(targets: list[str], *words: str) -> float:
    """Seconds that each job after the first adds to a run."""
    return (run(targets, *words) - run(targets[:1], *words)) / (len(targets) - 1)


def main() -> None:
    """Print the median of the rounds with their range, and the ratio of each round's two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=2, help="jobs at once, of both")
    parser.add_argument("words", nargs="*", help="further words of the run on Slurm")
    given = parser.parse_args()
    found = sorted((ROOT / "results/evaluation").glob("*/*/*.summary.tsv"))
    targets = [str(path.relative_to(ROOT)) for path in found]
    if len(targets) < 2:
        raise SystemExit("results/evaluation has fewer than two evaluations: run `make mini` first")
    here = ["--profile", "config/profiles/local", "--cores", str(given.at_once)]
    there = ["--profile", "slurm", "--jobs", str(given.at_once), *given.words]
    rounds = [(per_job(targets, *here), per_job(targets, *there)) for _ in range(given.rounds)]
    work = statistics.median(read_record(path)["seconds"] for path in found)
    write = sys.stdout.write
    write(f"{len(targets)} jobs of {RULE}, {given.at_once} at once, {given.rounds} rounds; work of one: {work:.2f} s\n")
    for name, values in (
        ("local, s/job", [a for a, _ in rounds]),
        ("slurm, s/job", [b for _, b in rounds]),
        ("slurm/local", [b / a for a, b in rounds]),
    ):
        write(f"{name:<14} {statistics.median(values):>6.2f}  ({min(values):.2f}-{max(values):.2f})\n")


if __name__ == "__main__":
    main()
