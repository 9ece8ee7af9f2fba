"""A failed Slurm job: the screen says what Slurm says, and names a log that is not empty."""

import errno
from pathlib import Path

import pytest
from tests.unit.test_screen import clock, record, shown, started  # noqa: F401

from zerodr.artifacts import guard
from zerodr.operations.slurm.ending import ending_of, refused_by, slurm_log

START = "Building DAG of jobs...\nsrun: cluster configuration lacks support for cpu binding\nBuilding DAG of jobs...\n"
KILLED = "slurmstepd-gpu1: error: *** STEP 59.0 ON gpu1 CANCELLED AT 2026-11-28T07:43:56 ***\n"
MEMORY = "slurmstepd-gpu1: error: StepId=59.0 exceeded memory limit (438476800 > 419430400), being killed\n"
TIME = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-28T07:43:56 DUE TO TIME LIMIT ***\n"
NODE = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-28T07:43:56 DUE TO NODE FAILURE ***\n"
KERNEL = "slurmstepd: error: Detected 1 oom_kill event in StepId=59.0. Some of the step tasks have been OOM Killed.\n"


@pytest.fixture(autouse=True)
def checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("results/.state").mkdir(parents=True)


@pytest.mark.parametrize(
    "text, reason",
    [
        (KILLED + MEMORY, "needs more memory than it asked for"),
        (KERNEL, "needs more memory than it asked for"),
        ("srun: error: n1: task 0: Out Of Memory\n", "needs more memory than it asked for"),
        (TIME, "ran out of its time"),
        (NODE, "lost its node"),
        (KILLED + "slurmstepd: error: *** JOB 59 ON gpu1 CANCELLED AT 2026-11-28T07:43:56 ***\n", "was cancelled"),
        (KILLED, "was asked to stop near the end of its time"),
    ],
)
def test_what_slurm_says_of_a_job(text, reason):
    Path("7.log").write_text(START + text + "srun: error: n1: task 0: Killed\n")
    ending = ending_of(Path("7.log"), "finetune")
    assert ending is not None and ending.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory\nsrun: error: gpu1: task 0: Exited with exit code 1\n",
        NODE + START + "ModelError: x: is no folder\n",  # queued again since
    ],
)
def test_a_job_that_ended_by_itself_was_not_ended_by_slurm(text):
    Path("7.log").write_text(START + text)
    assert ending_of(Path("7.log"), "finetune") is None
    assert ending_of(Path("none.log"), "finetune") is None


def test_a_log_on_a_share_that_is_gone_says_nothing(monkeypatch):
    def gone(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    Path("7.log").write_text(START + TIME)
    monkeypatch.setattr(Path, "read_text", gone)
    assert ending_of(Path("7.log"), "finetune") is None


def test_the_slurm_log_is_the_one_that_is_not_the_jobs_own():
    assert slurm_log(["a.log", str(Path.cwd() / "b/7.log")], "a.log") == "b/7.log"
    assert slurm_log(["a.log"], "a.log") == "" == slurm_log([], "")


def test_a_job_that_slurm_ended_says_why_once_on_the_screen_at_the_end_and_in_its_log(clock, capsys):  # noqa: F811
    own, ours = Path("results/logs/finetune.log"), []
    own.parent.mkdir(parents=True)
    for number in (58, 59):
        log = Path(f"results/logs/slurm/rule_finetune/dpr/{number}.log").absolute()
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(START + KILLED + MEMORY)
        own.write_text("")
        failed = record(event="job_error", jobid=1, rule_name="finetune", log=[str(own), str(log)])
        ours += shown(started(1, "finetune", model="dpr"), failed)
    assert ours[1].endswith(
        "failed: finetune dpr: needs more memory than it asked for (log: results/logs/slurm/rule_finetune/dpr/59.log)"
    )
    guard.repeat_errors()
    end = capsys.readouterr().err
    assert end.count("MachineError: results/logs/slurm/rule_finetune/dpr: Slurm ended the job, which needs") == 1
    assert "--set-resources finetune:mem_mb=" in end and own.read_text().rstrip().endswith("in every attempt")


def test_a_slurm_job_that_failed_by_itself_names_the_log_that_stays(clock):  # noqa: F811
    log = Path("results/logs/slurm/9.log").absolute()
    failed = record(event="job_error", jobid=1, rule_name="finetune", log=["results/logs/finetune.log", str(log)])
    (line,) = shown(started(1, "finetune", model="dpr"), failed)
    assert line.endswith("failed: finetune dpr (log: results/logs/slurm/9.log)")


def test_a_link_of_a_chain_of_attempts_stopped_and_did_not_fail(clock):  # noqa: F811
    log = Path("results/logs/slurm/9.log").absolute()
    log.parent.mkdir(parents=True)
    log.write_text(START + KILLED)
    failed = record(event="job_error", jobid=1, rule_name="finetune", log=["results/logs/finetune.log", str(log)])
    (line,) = shown(started(1, "finetune", model="dpr"), failed)
    assert "stopped: finetune dpr: was asked to stop near the end of its time (log: " in line


SBATCH = """SLURM sbatch failed. The error message was 'sbatch: error: AssocMaxSubmitJobLimit
sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)'.
    sbatch call:
        sbatch --parsable
For further error details see the cluster/cloud log and the log files of the involved rule(s)."""  # noqa: E501


def test_a_job_that_slurm_did_not_take_says_why_on_the_screen_at_the_end_and_in_its_log(clock, capsys):  # noqa: F811
    """It has no Slurm log, and its own was never written."""
    log = Path("results/logs/finetune.log")
    log.parent.mkdir(parents=True)
    for message, words in (
        (SBATCH, "AssocMaxSubmitJobLimit; Batch job"),
        ("Job submission failed with exception: x", "x"),
    ):
        failed = record(event="job_error", jobid=1, rule_name="finetune", log=[str(log)], rule_msg=message)
        (line,) = shown(started(1, "finetune", model="dpr"), failed)
        assert f"failed: finetune dpr: was not submitted to Slurm ({words}" in line
        assert "MachineError: finetune dpr: was not submitted to Slurm" in log.read_text().splitlines()[-1]
    guard.repeat_errors()
    end = capsys.readouterr().err
    assert "user's size and/or time limits)): submit fewer jobs at once than it allows (--jobs 20), and repeat" in end
    assert refused_by("SLURM-job '5' failed, SLURM status is: 'FAILED'.", "a") is None
