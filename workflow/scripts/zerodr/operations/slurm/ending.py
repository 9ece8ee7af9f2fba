"""Say why Slurm ended a job, from the job's Slurm log, which has lines of Slurm's own daemons; or did not take it."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from zerodr.errors import MachineError

DAEMON = re.compile(r"^(?:slurmstepd|srun)\S* error: (.+)$", re.M)
ATTEMPT = "Building DAG of jobs"  # Slurm appends what a job logs after it was queued again
REFUSED = re.compile(r"(?:The error message was '|submission failed with exception: )(.+?)(?:'\.\n|'?\s*$)", re.S)
NEAR_END = "was asked to stop near the end of its time"
CAUSES = (
    (
        re.compile(r"exceeded .*memory limit|oom.kill|out of memory", re.I),
        "needs more memory than it asked for",
        "raise it with --set-resources {rule}:mem_mb=<MiB>; a number there is the same in every attempt",
    ),
    (
        re.compile(r"due to time limit", re.I),
        "ran out of its time",
        "raise it with --set-resources {rule}:runtime=<minutes>, or raise --retries where its rule resumes",
    ),
    (re.compile(r"due to preemption", re.I), "was preempted", "repeat the command"),
    (re.compile(r"due to node failure", re.I), "lost its node", "repeat the command"),
    (re.compile(r"\*\*\* JOB \S+ ON \S+ CANCELLED AT \S+ \*\*\*"), "was cancelled", "repeat the command"),
    (  # the profile's `--signal`; what cancels the whole job has a line of its own, above
        re.compile(r"\*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ \*\*\*"),
        NEAR_END,
        "raise it with --set-resources {rule}:runtime=<minutes>, or raise --retries where its rule resumes",
    ),
)


class Ending(NamedTuple):
    """Why Slurm ended a job.

    Attributes:
        reason: such as `ran out of its time`.
        next_step: what the user can do.
    """

    reason: str
    next_step: str

    @property
    def verb(self) -> str:
        """Its word on the screen: a chain of attempts is planned, and none of its links failed."""
        return "stopped" if self.reason == NEAR_END else "failed"

    def error(self, log: str) -> str:
        """Format it as an error; attempts of a job that ended alike have equal ones.

        Args:
            log: the Slurm log of one attempt.
        """
        return str(MachineError(Path(log).parent, f"Slurm ended the job, which {self.reason}", self.next_step))


def refused_by(message: str, name: str) -> MachineError | None:
    """Read from the executor's message why a job was never submitted; None where it was, or no job of Slurm's.

    Args:
        message: of Snakemake's error.
        name: of the job.
    """
    match = REFUSED.search(message)
    if match is None:
        return None
    reason = "; ".join(line.removeprefix("sbatch: error: ").strip() for line in match[1].splitlines() if line.strip())
    fewer = (
        "submit fewer jobs at once than it allows (--jobs 20)" if "submit" in reason.lower() else "change what it names"
    )
    return MachineError(name, f"was not submitted to Slurm ({reason})", f"{fewer}, and repeat the command")


def slurm_log(logs: Iterable[str], stage_log: str) -> str:
    """Return the Slurm log among the log files of Snakemake's error: the last one, unless it is the `stage_log`."""
    last = list(logs)[-1:]
    return _here(last[0]) if last and last[0] not in stage_log.split(", ") else ""


def _here(path: str) -> str:
    """Shorten a path below this folder."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path


def ending_of(log: Path, rule: str) -> Ending | None:
    """Read why Slurm ended the last attempt of a job; None where its log can't be read or says nothing about that."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:  # absent, or on a share that is gone: the screen goes on
        return None
    messages = DAEMON.findall(text.rpartition(ATTEMPT)[2])
    for pattern, reason, step in CAUSES:
        if any(map(pattern.search, messages)):
            return Ending(reason, step.replace("{rule}", rule))
    return None
