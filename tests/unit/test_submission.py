"""What is asked of Slurm before the first job: permissions, and folders that nodes see."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from zerodr.errors import MachineError
from zerodr.operations.slurm import submission
from zerodr.operations.slurm.cluster import JobRequest
from zerodr.operations.slurm.submission import file_system


def test_a_host_without_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert submission.refusal([], tmp_path, "sacct") == ""
    told = submission.refusal([JobRequest("finetune")], tmp_path, "sacct")
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


@pytest.fixture
def asked(monkeypatch):
    """Words of all commands; sbatch refuses a reservation, and the user has the accounts lab and old."""
    words = []

    def told(command):
        words.append(command)
        refused = any(word.startswith("--reservation") for word in command)
        return CompletedProcess(
            command, int(refused), "lab\nold\n", "sbatch: error: Reservation is invalid\n" * refused
        )

    monkeypatch.setattr(submission, "ask_slurm", told)
    monkeypatch.setattr(submission.shutil, "which", lambda name: f"/usr/bin/{name}")
    return words


def test_permission_is_asked_for_with_everything_that_jobs_are_submitted_with(asked):
    submission.check_permission(
        JobRequest(
            "finetune",
            partition="a,b",
            account="lab,old",
            queue=("--qos=fast",),
            shape=("--gpus=8", "--nodes=1", "--exclude=n1"),
        )
    )
    assert asked[-1] == [
        "sbatch",
        "--test-only",
        "--time=1",
        "--mem=1",
        "--partition=a,b",
        "--account=lab",
        "--qos=fast",
        "--gpus=8",
        "--nodes=1",
        "--exclude=n1",
        "--wrap=true",
    ]


def test_refused_permissions(asked):
    with pytest.raises(MachineError) as error:
        submission.check_permission(JobRequest("finetune", account="lab", queue=("--reservation=monday",)))
    assert "account lab: may not submit to partition (default) with --reservation=monday " in str(error.value)
    assert "(sbatch: error: Reservation is invalid), needed by rule finetune" in str(error.value)
    with pytest.raises(MachineError, match="account gone: may not submit .*your accounts: lab, old"):
        submission.check_permission(JobRequest("finetune", account="Lab,gone"))


def test_a_partition_that_is_not_chosen_yet_is_not_tried(asked):
    submission.check_permission(
        JobRequest("finetune", account="lab", queue=("--reservation=monday",), chosen_later=True)
    )
    assert "sbatch" not in [command[0] for command in asked]
    with pytest.raises(MachineError, match="account gone"):
        submission.check_permission(JobRequest("finetune", account="gone", chosen_later=True))


@pytest.mark.parametrize("linked, asks_a_node", [(False, False), (True, True)])
def test_the_folder_that_results_are_linked_to_counts(linked, asks_a_node, asked, tmp_path, monkeypatch):
    checkout, scratch = tmp_path / "checkout", tmp_path / "scratch"
    checkout.mkdir()
    scratch.mkdir()
    if linked:
        (checkout / "results").symlink_to(scratch)
    kinds = {checkout: "nfs4", scratch: "ext4"}
    monkeypatch.setattr(
        submission,
        "file_system",
        lambda place: next(kind for home, kind in kinds.items() if place.resolve().is_relative_to(home)),
    )
    submission.check_shared(checkout, JobRequest("finetune"))
    assert [command[0] for command in asked] == (["srun"] if asks_a_node else [])
    assert not list((checkout / "results/.state").iterdir()), "nothing is left behind"


def test_a_node_that_does_not_see_the_linked_results(tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout/results").symlink_to(tmp_path / "scratch")
    monkeypatch.setattr(submission, "ask_slurm", lambda words: CompletedProcess(words, 0, "unseen\n", ""))
    monkeypatch.setattr(submission, "file_system", lambda place: "ext4")
    with pytest.raises(MachineError, match=r"does not see the results folder \(.*/scratch\)"):
        submission.check_shared(tmp_path / "checkout", JobRequest("finetune"))


@pytest.mark.parametrize(
    "answer, told",
    [
        (CompletedProcess([], 1, "", "srun: job 7 queued\nsrun: error: Unable to allocate resources: busy\n"), "busy"),
        (CompletedProcess([], 0, "seen\n", ""), None),
    ],
)
def test_no_free_node_is_told_and_refuses_nothing(answer, told, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(submission, "ask_slurm", lambda words: answer)
    monkeypatch.setattr(submission, "file_system", lambda place: "ext4")
    submission.check_shared(tmp_path, JobRequest("finetune"))
    lines = capsys.readouterr().err.splitlines()
    assert not list((tmp_path / "results/.state").iterdir()), "nothing is left behind"
    if told is None:
        assert lines == []
    else:
        (line,) = lines
        assert (
            "could not check" in line
            and "no node answered within 10 s" in line
            and told in line
            and str(tmp_path) in line
        )
