"""Whether Slurm would take the jobs: permissions and shared folders, asked once, before the first job is submitted."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

from zerodr.cluster import PROFILE, Ask, ask_slurm, check_fit, last_words, read_partitions
from zerodr.errors import MachineError, ZerodrError

PROBE_S = 10
LONGEST_POLL_S = 180
SHARED_TYPES = ("nfs", "lustre", "gpfs", "beegfs", "ceph", "gluster", "smb", "cifs", "orangefs", "panfs", "wekafs")


def refusal(asks: Iterable[Ask], folder: Path, status_command: str) -> str:
    """What speaks against submitting, as one message; empty when nothing does."""
    try:
        check_cluster(asks, folder)
        if status_command == "squeue":
            check_memory_of_jobs()
    except ZerodrError as error:
        return str(error)
    return ""


def check_cluster(asks: Iterable[Ask], folder: Path) -> None:
    """Everything that can be known before a job is submitted.

    Args:
        asks: of all jobs that go to Slurm.
        folder: the checkout, which compute nodes must see.

    Raises:
        MachineError: no Slurm, no such partition, a job that no node can hold, an account that may not submit, or a
            folder that the nodes don't see.
    """
    distinct = sorted(set(asks))
    if not distinct:
        return
    partitions = read_partitions()
    check_fit(distinct, partitions)
    for ask in {(ask.partition, ask.account, ask.queue, ask.shape): ask for ask in distinct}.values():
        check_permission(ask)
    check_shared(folder, distinct[0])


def check_memory_of_jobs(least_s: int = LONGEST_POLL_S) -> None:
    """The controller remembers a finished job for longer than Snakemake looks away (`squeue` as status command).

    Raises:
        MachineError: it forgets earlier, so that Snakemake would wait for a finished job for ever.
    """
    found = re.search(r"^MinJobAge\s*=\s*(\d+)", ask_slurm(["scontrol", "show", "config"]).stdout, re.M)
    if found and int(found[1]) <= least_s:
        raise MachineError(
            "Slurm",
            f"forgets finished jobs after {found[1]} s (MinJobAge), Snakemake asks every {least_s} s at worst",
            "use --slurm-status-command sacct; then cancel no job by hand",
        )


def check_permission(ask: Ask) -> None:
    """Slurm would take a small job with the ask's options (`sbatch --test-only` submits nothing).

    Of a job whose partition is chosen when it is submitted, only the account is looked at.

    Raises:
        MachineError: it would not, or an account is none of this user's.
    """
    own = accounts()
    unknown = [name for name in _accounts_of(ask) if own and name.lower() not in own]
    words = ["sbatch", "--test-only", "--time=1", "--mem=1", *_where(ask), *ask.shape, "--wrap=true"]
    refused = "" if unknown or ask.chosen_later else _refused(words)
    if unknown or refused:
        name = unknown[0] if unknown else ask.account
        options = f" with {' '.join((*ask.queue, *ask.shape))}" if refused and (ask.queue or ask.shape) else ""
        raise MachineError(
            f"account {name}" if name else "the default account",
            f"may not submit to partition {ask.partition or '(default)'}{options} "
            f"({refused or 'none of your accounts'}), as rule {ask.rule} would",
            f"set slurm_account{' or these options' if options else ''} in {PROFILE}; your accounts: "
            f"{', '.join(own) or 'none'}",
        )


def _refused(words: list[str]) -> str:
    """Why a command failed; empty where it did not."""
    done = ask_slurm(words)
    return last_words(done.stderr) if done.returncode else ""


def _accounts_of(ask: Ask) -> list[str]:
    return [name for name in re.split(r"[,\s]+", ask.account) if name]


def accounts() -> list[str]:
    """Accounts that this user has, as far as Slurm tells."""
    if shutil.which("sacctmgr") is None:
        return []
    import getpass

    done = ask_slurm(["sacctmgr", "-n", "-P", "show", "assoc", f"user={getpass.getuser()}", "format=account"])
    return sorted(set(done.stdout.split())) if done.returncode == 0 else []


def _where(ask: Ask) -> list[str]:
    partition = [f"--partition={ask.partition}"] if ask.partition else []
    return [*partition, *(f"--account={name}" for name in _accounts_of(ask)[:1]), *ask.queue]


def check_shared(folder: Path, ask: Ask) -> None:
    """The compute nodes see the checkout and its results folder, which may be a link to another file system.

    Told by both file systems, else by a look from one node if one is free now. Where none is, a warning says that it
    is not known, and the run goes on.

    Raises:
        MachineError: a node does not see it.
    """
    results = folder / "results"
    token = results / ".state" / f"seen-{uuid.uuid4().hex[:12]}"
    token.parent.mkdir(parents=True, exist_ok=True)
    if all(file_system(place).startswith(SHARED_TYPES) for place in (folder, results)):
        return
    token.touch()
    try:
        words = [
            "srun",
            f"--immediate={PROBE_S}",
            "--quiet",
            "-N1",
            "-n1",
            "--time=1",
            "--mem=16",
            "--chdir=/",
            *_where(ask),
            "sh",
            "-c",
            'test -f "$1" && echo seen || echo unseen',
            "sh",
            str(token),
        ]
        done = ask_slurm(words)
    finally:
        with contextlib.suppress(FileNotFoundError):
            token.unlink()
    said = done.stdout.split()
    if "seen" not in said and "unseen" not in said:
        why = f"no node answered within {PROBE_S} s ({last_words(done.stderr)})"
        sys.stderr.write(f"Warning: {folder}: could not check that compute nodes see the results folder: {why}\n")
    if "unseen" in said:
        target = f" ({results.resolve()})" if results.is_symlink() else ""
        raise MachineError(
            folder,
            f"is not shared: a compute node does not see the results folder{target}",
            "move both to a file system that all nodes mount",
        )


def file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Type of the file system that holds a folder, such as `ext4` or `nfs4`; empty when it can't be told."""
    if not mounts.exists():
        return ""
    fields = [line.split() for line in mounts.read_text().splitlines()]
    place = folder.resolve()
    over = [(entry[1], entry[2]) for entry in fields if place.is_relative_to(entry[1])]
    return max(over, key=lambda entry: len(entry[0]), default=("", ""))[1]
