"""Slurm jobs that a killed Snakemake left behind: waited for before anything is submitted.

Snakemake deletes the outputs of a job before it runs it. A job submitted beside its own predecessor, and started after
that one has published, would so do finished work again.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from zerodr.cluster import ask_slurm

QUEUE = ["squeue", "--me", "--noheader", "--format=%i|%V|%Z|%k"]
OF_SNAKEMAKE = "rule_"  # how the executor plugin's comment on each job begins
POLL_S = 10.0
REPEAT_S = 300.0


@dataclass(frozen=True)
class Lingering:
    """A job in Slurm's queue.

    Attributes:
        number: as `scancel` takes it.
        submitted: when, as Slurm writes it.
        rule: what it runs.
    """

    number: str
    submitted: str
    rule: str


def jobs_of(folder: Path) -> list[Lingering] | None:
    """Snakemake's jobs, running or waiting, that work in `folder`; None where Slurm does not tell."""
    if shutil.which(QUEUE[0]) is None:
        return None
    done = ask_slurm(QUEUE)
    return parse_queue(done.stdout, folder) if done.returncode == 0 else None


def parse_queue(text: str, folder: Path) -> list[Lingering]:
    """Lines `number|submitted|folder|comment` of `squeue`; this process's own job is no lingering one."""
    found = []
    for line in text.splitlines():
        number, submitted, place, comment = line.strip().split("|", 3)
        if comment.startswith(OF_SNAKEMAKE) and number != os.environ.get("SLURM_JOB_ID"):
            if Path(place).resolve() == folder.resolve():
                rule = comment.removeprefix(OF_SNAKEMAKE).split("_wildcards_")[0]
                found.append(Lingering(number, submitted, rule))
    return found


def wait_for_jobs(folder: Path, say: Callable[[str], object] = sys.stderr.write) -> bool:
    """Wait until no job of an earlier run works in `folder`, with a line on what is waited for.

    Returns:
        whether there was one, so that what is on the disk is no longer what the DAG was made from.

    Raises:
        SystemExit: after Ctrl-C; the jobs run on.
    """
    found = jobs_of(folder)
    if not found:
        return False
    shown: tuple[str, float] = ("", 0.0)
    try:
        while found or found is None:
            line = _line(found) if found else shown[0]
            if line != shown[0] or time.monotonic() - shown[1] >= REPEAT_S:
                say(f"{line}\n")
                shown = line, time.monotonic()
            time.sleep(POLL_S)
            found = jobs_of(folder)
    except KeyboardInterrupt:
        say("Stopped waiting: those jobs run on.\n")
        raise SystemExit(130) from None
    say("They are gone: planning again from what they left.\n")
    return True


def _line(jobs: list[Lingering]) -> str:
    rules = ", ".join(f"{count} {rule}" for rule, count in sorted(Counter(job.rule for job in jobs).items()))
    numbers = sorted(job.number for job in jobs)
    return (
        f"Waiting for {len(jobs)} Slurm jobs of an earlier run in this folder ({rules}; submitted since "
        f"{min(job.submitted for job in jobs)}), so that nothing is done twice. Ctrl-C leaves them; to do without "
        f"them: scancel {' '.join(numbers[:8])}{' ...' if len(numbers) > 8 else ''}"
    )


def start_again() -> NoReturn:
    """Replace this process by a new one with the same command line."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
