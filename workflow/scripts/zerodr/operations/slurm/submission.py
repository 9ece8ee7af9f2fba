"""Check before the first job is submitted that Slurm accepts the jobs, and wait for those that a killed Snakemake left.

Snakemake deletes the outputs of a job before it runs it. A job submitted while its predecessor runs, and started after
that one has published, would so repeat finished work.
"""

import contextlib
import os
import re
import shutil
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from zerodr.config.quantities import counted
from zerodr.errors import MachineError, ZerodrError
from zerodr.operations.slurm.cluster import PROFILE, JobRequest, ask_slurm, check_fit, last_line, read_partitions

QUEUE = ["squeue", "--me", "--noheader", "--format=%i|%V|%Z|%k"]
OF_SNAKEMAKE = "rule_"  # start of the executor plugin's comment on each job
POLL_S = 10.0
REPEAT_S = 300.0
PROBE_S = 10
LONGEST_POLL_S = 180
SHARED_TYPES = ("nfs", "lustre", "gpfs", "beegfs", "ceph", "gluster", "smb", "cifs", "orangefs", "panfs", "wekafs")


def refusal(requests: Iterable[JobRequest], folder: Path, status_command: str) -> str:
    """Return the reason against submitting as one message; empty without any."""
    try:
        check_cluster(requests, folder)
        if status_command == "squeue":
            check_memory_of_jobs()
    except ZerodrError as error:
        return str(error)
    return ""


def check_cluster(requests: Iterable[JobRequest], folder: Path) -> None:
    """Check everything that can be known before a job is submitted.

    Args:
        requests: of all jobs that go to Slurm.
        folder: the checkout, which compute nodes must see.

    Raises:
        MachineError: no Slurm, no such partition, a job that no node can hold, an account that may not submit, or a
            folder that the nodes don't see.
    """
    distinct = sorted(set(requests))
    if not distinct:
        return
    partitions = read_partitions()
    check_fit(distinct, partitions)
    for request in {(r.partition, r.account, r.queue, r.shape): r for r in distinct}.values():
        check_permission(request)
    check_shared(folder, distinct[0])


# snakemake-executor-plugin-slurm pull request 339: the plugin falls back to sacct below three polls of 40 s, but it
# polls every 180 s at worst, and without sacct it does not fall back.
def check_memory_of_jobs() -> None:
    """Check that the controller lists a finished job until Snakemake polls again (`squeue` as status command).

    Raises:
        MachineError: it forgets earlier, so that Snakemake would wait for a finished job for ever.
    """
    match = re.search(r"^MinJobAge\s*=\s*(\d+)", ask_slurm(["scontrol", "show", "config"]).stdout, re.M)
    if match and int(match[1]) <= LONGEST_POLL_S:
        problem = (
            f"forgets finished jobs after {match[1]} s (MinJobAge), Snakemake polls every {LONGEST_POLL_S} s at worst"
        )
        raise MachineError("Slurm", problem, "use --slurm-status-command sacct; then cancel no job by hand")


# snakemake-executor-plugin-slurm issues 320 and 341: the plugin tests the account alone, without partition and
# options, and stops the run at the first refusal.
def check_permission(request: JobRequest) -> None:
    """Check that Slurm accepts a small job with the request's options (`sbatch --test-only` submits nothing).

    For a job whose partition is chosen at submission, only the account is checked.

    Raises:
        MachineError: Slurm refuses it, or this user has no such account.
    """
    known = accounts()
    unknown = [name for name in _accounts_of(request) if known and name.lower() not in known]
    command = ["sbatch", "--test-only", "--time=1", "--mem=1", *_where(request), *request.shape, "--wrap=true"]
    done = None if unknown or request.chosen_later else ask_slurm(command)
    refused = last_line(done.stderr) if done and done.returncode else ""
    if unknown or refused:
        name = unknown[0] if unknown else request.account
        where = f"account {name}" if name else "the default account"
        chosen = (*request.queue, *request.shape) if refused else ()
        options = f" with {' '.join(chosen)}" if chosen else ""
        reason = f"({refused or 'none of your accounts'}), needed by rule {request.rule}"
        problem = f"may not submit to partition {request.partition or '(default)'}{options} {reason}"
        step = f"set slurm_account{' or these options' if options else ''} in {PROFILE}"
        raise MachineError(where, problem, f"{step}; your accounts: {', '.join(known) or 'none'}")


def _accounts_of(request: JobRequest) -> list[str]:
    return [name for name in re.split(r"[,\s]+", request.account) if name]


def accounts() -> list[str]:
    """List the accounts of this user, if Slurm reports them."""
    if shutil.which("sacctmgr") is None:
        return []
    import getpass

    done = ask_slurm(["sacctmgr", "-n", "-P", "show", "assoc", f"user={getpass.getuser()}", "format=account"])
    return sorted(set(done.stdout.split())) if done.returncode == 0 else []


def _where(request: JobRequest) -> list[str]:
    partition = [f"--partition={request.partition}"] if request.partition else []
    return [*partition, *(f"--account={name}" for name in _accounts_of(request)[:1]), *request.queue]


# No issue known: the plugin's jobs fail one by one where nodes do not see the checkout.
def check_shared(folder: Path, request: JobRequest) -> None:
    """Check that compute nodes see the checkout and its results folder, which may link to another file system.

    Both file systems decide, else a probe on one node if one is free now. Without a free node, a warning says that it
    is not known, and the run continues.

    Raises:
        MachineError: a node does not see it.
    """
    results = folder / "results"
    token = results / ".state" / f"seen-{uuid.uuid4().hex[:12]}"
    token.parent.mkdir(parents=True, exist_ok=True)
    if all(file_system(path).startswith(SHARED_TYPES) for path in (folder, results)):
        return
    token.touch()
    try:
        probe = ["sh", "-c", 'test -f "$1" && echo seen || echo unseen', "sh", str(token)]
        # `/` is on every node; the checkout may not be, which is the question.
        limits = f"--immediate={PROBE_S} --quiet -N1 -n1 --time=1 --mem=16 --chdir=/".split()
        done = ask_slurm(["srun", *limits, *_where(request), *probe])
    finally:
        with contextlib.suppress(FileNotFoundError):
            token.unlink()
    answer = done.stdout.split()
    if "seen" not in answer and "unseen" not in answer:
        reason = f"no node answered within {PROBE_S} s ({last_line(done.stderr)})"
        sys.stderr.write(f"Warning: {folder}: could not check that compute nodes see the results folder: {reason}\n")
    if "unseen" in answer:
        target = f" ({results.resolve()})" if results.is_symlink() else ""
        problem = f"is not shared: a compute node does not see the results folder{target}"
        raise MachineError(folder, problem, "move both to a file system that all nodes mount")


def file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Return the type of a folder's file system, such as `ext4` or `nfs4`; empty when unknown."""
    if not mounts.exists():
        return ""
    fields = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
    above = [(entry[1], entry[2]) for entry in fields if folder.resolve().is_relative_to(entry[1])]
    return max(above, key=lambda entry: len(entry[0]), default=("", ""))[1]


# ---- jobs of an earlier run --------------------------------------------------------------------------------------
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
    """Parse lines `number|submitted|folder|comment` of `squeue`, without others and without the job of this process."""
    jobs = []
    for line in (line for line in text.splitlines() if line.count("|") >= 3):
        # The comment comes last and may hold `|` itself (wildcards).
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
            line = _waiting(jobs) if jobs else shown[0]
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


def _waiting(jobs: list[Lingering]) -> str:
    rules = ", ".join(f"{count} {rule}" for rule, count in sorted(Counter(job.rule for job in jobs).items()))
    numbers = sorted(job.number for job in jobs)
    return (
        f"Waiting for {counted(len(jobs), 'Slurm job')} of an earlier run in this folder ({rules}; submitted since "
        f"{min(job.submitted for job in jobs)}), so that no work is repeated. Ctrl-C stops waiting; to cancel "
        f"them: scancel {' '.join(numbers[:8])}{' ...' if len(numbers) > 8 else ''}"
    )


# snakemake issue 4084 too: the graph of jobs is fixed before the jobs have ended.
def start_again(words: Sequence[str] = ()) -> NoReturn:
    """Replace this process by a new one with the same command line, or with other `words` after the interpreter."""
    sys.stdout.flush()
    sys.stderr.flush()
    # `orig_argv` has Python's own options too, which `argv` has lost.
    os.execv(sys.executable, [sys.executable, *(words or sys.orig_argv[1:])])
