"""Jobs of a killed Snakemake are waited for, with a squeue that is written down instead of running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.training_helpers import alone

from zerodr.operations.slurm import submission
from zerodr.operations.slurm.submission import Lingering, jobs_of, parse_queue, wait_for_jobs

SQUEUE = """#!/bin/sh
echo "$*" >>asked
count=$(wc -l <asked)
[ "$count" = 2 ] && { echo "controller does not answer" >&2; exit 1; }
[ "$count" -gt 3 ] && exit 0
echo "12|2026-01-02T03:04:05|$PWD|rule_finetune_wildcards_dpr_ep0"
echo "13|2026-01-02T03:04:04|$PWD|rule_embed_corpus_wildcards_a|b"
echo "14|2026-01-02T03:04:03|$PWD/other|rule_finetune"
echo "15|2026-01-02T03:04:02|$PWD|my own shell"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a squeue whose second answer fails and whose fourth has no jobs."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/squeue").write_text(SQUEUE)
    (tmp_path / "bin/squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(submission, "POLL_S", 0.01)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_waits_until_all_are_gone_and_says_once_for_what(folder):
    said: list[str] = []
    assert wait_for_jobs(folder, said.append)
    assert len(said) == 2 and said[1].startswith("They have ended")
    assert "2 Slurm jobs" in said[0] and "(1 embed_corpus, 1 finetune; submitted since 2026-01-02T03:04:04)" in said[0]
    assert said[0].endswith("scancel 12 13\n")
    asked = (folder / "asked").read_text().splitlines()
    assert len(asked) == 4, "one that fails counts neither as jobs nor as none"
    assert asked[0].startswith("--me --noheader")


def test_only_snakemakes_jobs_of_this_folder_count(folder, monkeypatch):
    own = [f"1|t|{folder}|rule_a", f"2|t|{folder}|", f"3|t|{folder.parent}|rule_a", f"4|t|{folder}|rule_main"]
    (folder / "link").symlink_to(folder)
    text = "\n".join([*own, f"5|t|{folder}/link|rule_b_wildcards_x"])
    monkeypatch.setenv("SLURM_JOB_ID", "4")
    assert parse_queue(text, folder) == [Lingering("1", "t", "a"), Lingering("5", "t", "b")]
    assert parse_queue("", folder) == []


def test_without_slurm_nothing_happens(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert jobs_of(tmp_path) is None
    assert not wait_for_jobs(tmp_path, pytest.fail)


def test_one_job_is_no_plural():
    line = submission._waiting([submission.Lingering("23", "2026-11-28T07:23:23", "finetune")])
    assert line.startswith("Waiting for 1 Slurm job of an earlier run in this folder (1 finetune; submitted since ")


def test_ctrl_c_leaves_the_jobs(folder):
    program = (
        "import signal; from pathlib import Path; from zerodr.operations.slurm import submission\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background shell has switched off\n"
        "submission.POLL_S = 60.0; submission.wait_for_jobs(Path.cwd())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, env=alone()) as child:
        assert "Waiting for 2 Slurm jobs" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        assert child.stderr.read() == "Stopped waiting: those jobs continue.\n"
    assert child.returncode == 130


def test_the_same_command_line_starts_again(tmp_path):
    program = tmp_path / "main.py"
    program.write_text(
        "import os, sys\nfrom zerodr.operations.slurm.submission import start_again\n"
        "sys.stdout.write(f'{sys.argv[1:]} {os.getpid()}\\n')\n"
        "if 'AGAIN' not in os.environ:\n    os.environ['AGAIN'] = '1'\n    start_again()\n"
    )
    command = [sys.executable, str(program), "--config", "a b", "x=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=alone())
    first, second = done.stdout.splitlines()
    assert first == second and first.startswith("['--config', 'a b', 'x=1']")


def test_lines_about_clusters_are_no_jobs(tmp_path):
    text = f"CLUSTER: cm2\n12|2026-01-02T03:04:05|{tmp_path}|rule_finetune_wildcards_dpr_ep0\n"
    assert [job.number for job in parse_queue(text, tmp_path)] == ["12"]
