"""Wait for Slurm jobs that a killed Snakemake left behind, before new jobs are submitted.

Snakemake deletes the outputs of a job before it runs it. A job submitted while its predecessor runs, and started after
that one has published, would so repeat finished work.
"""

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from zerodr.operations.slurm.cluster import ask_slurm

QUEUE = ["squeue", "--me", "--noheader", "--format=%i|%V|%Z|%k"]
OF_SNAKEMAKE = "rule_"  # start of the executor plugin's comment on each job
POLL_S = 10.0
REPEAT_S = 300.0


@dataclass(frozen=True)
class Lingering:
    """A job in Slurm's queue.

    Attributes:
        number: as `scancel` takes it.
        submitted: time, as Slurm writes it.
        rule: its rule.
    """

    number: str
    submitted: str
    rule: str


def jobs_of(folder: Path) -> list[Lingering] | None:
    """List Snakemake's running and waiting jobs in `folder`; None when Slurm does not answer."""
    if shutil.which(QUEUE[0]) is None:
        return None
    done = ask_slurm(QUEUE)
    return parse_queue(done.stdout, folder) if done.returncode == 0 else None


def parse_queue(text: str, folder: Path) -> list[Lingering]:
    """Parse lines `number|submitted|folder|comment` of `squeue`, without the job of this process."""
    jobs = []
    for line in text.splitlines():
        number, submitted, workdir, comment = line.strip().split("|", 3)
        if comment.startswith(OF_SNAKEMAKE) and number != os.environ.get("SLURM_JOB_ID"):
            if Path(workdir).resolve() == folder.resolve():
                rule = comment.removeprefix(OF_SNAKEMAKE).split("_wildcards_")[0]
                jobs.append(Lingering(number, submitted, rule))
    return jobs


# snakemake issue 4084: a new Snakemake does not attach to jobs of a killed one.
def wait_for_jobs(folder: Path, write: Callable[[str], object] = sys.stderr.write) -> bool:
    """Wait until no job of an earlier run works in `folder`, and report which jobs remain.

    Returns:
        whether there was one, so that the DAG must be planned again from the disk.

    Raises:
        SystemExit: after Ctrl-C; the jobs continue.
    """
    jobs = jobs_of(folder)
    if not jobs:
        return False
    shown: tuple[str, float] = ("", 0.0)
    try:
        while jobs or jobs is None:
            line = _line(jobs) if jobs else shown[0]
            if line != shown[0] or time.monotonic() - shown[1] >= REPEAT_S:
                write(f"{line}\n")
                shown = line, time.monotonic()
            time.sleep(POLL_S)
            jobs = jobs_of(folder)
    except KeyboardInterrupt:
        write("Stopped waiting: those jobs continue.\n")
        raise SystemExit(130) from None
    write("They have ended: planning again from their results.\n")
    return True


def _line(jobs: list[Lingering]) -> str:
    rules = ", ".join(f"{count} {rule}" for rule, count in sorted(Counter(job.rule for job in jobs).items()))
    numbers = sorted(job.number for job in jobs)
    return (
        f"Waiting for {len(jobs)} Slurm jobs of an earlier run in this folder ({rules}; submitted since "
        f"{min(job.submitted for job in jobs)}), so that no work is repeated. Ctrl-C stops waiting; to cancel "
        f"them: scancel {' '.join(numbers[:8])}{' ...' if len(numbers) > 8 else ''}"
    )


# snakemake issue 4084 too: the graph of jobs is fixed before the jobs have ended.
def start_again() -> NoReturn:
    """Replace this process by a new one with the same command line."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
