"""What is asked of Slurm before the first job: permissions, and folders that nodes see."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from zerodr import submission
from zerodr.cluster import Ask
from zerodr.errors import MachineError
from zerodr.submission import file_system


def test_a_host_without_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert submission.refusal([], tmp_path, "sacct") == ""
    told = submission.refusal([Ask("finetune")], tmp_path, "sacct")
    assert told.startswith(
        "MachineError: Slurm: sbatch, sinfo, squeue, scancel not on PATH: this host is no login node"
    )


def test_a_controller_that_forgets_too_early(monkeypatch):
    def told(words):
        text = f"MinJobAge               = {age} sec\n"
        return CompletedProcess(words, 0, text, "")

    monkeypatch.setattr(submission, "ask_slurm", told)
    age = 300
    submission.check_memory_of_jobs()
    age = 60
    with pytest.raises(MachineError, match=r"forgets finished jobs after 60 s .* --slurm-status-command sacct"):
        submission.check_memory_of_jobs()


def test_the_innermost_mount_tells_the_file_system(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/a / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\ntmpfs /data/me/scratch tmpfs rw 0 0\n")
    assert file_system(Path("/data/me/bench"), mounts) == "nfs4"
    assert file_system(Path("/data/me/scratch/bench"), mounts) == "tmpfs"
    assert file_system(Path("/srv"), mounts) == "ext4"
    assert file_system(Path("/srv"), tmp_path / "absent") == ""
