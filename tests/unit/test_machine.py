"""What a machine refuses while a stage runs: full disks, read-only folders, lost shares, missing locks."""

from __future__ import annotations

import contextlib
import errno
import gzip
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file
from tests.unit.stage_helpers import FILE, checkout, making, repeat, spec_of  # noqa: F401
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from zerodr.artifacts import adapter, guard, machine
from zerodr.artifacts.stage import Stage, run_spec
from zerodr.errors import ConfigError, MachineError


@pytest.fixture
def snakemake_log() -> Iterator[logging.Logger]:
    """Snakemake's logger, which has its filters of before after the test, as Python has its report of errors."""
    logger = logging.getLogger("snakemake.logging")
    before, hook = list(logger.filters), sys.excepthook
    yield logger
    logger.filters[:], sys.excepthook = before, hook


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB for the results; tests are skipped where mounting is refused."""
    results = tmp_path / "results"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(results)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mounting a tmpfs is refused: {done.stderr.decode().strip()}")
    try:
        (results / "in").mkdir()
        (results / "in/a.txt").write_text("a")
        yield results
    finally:
        subprocess.run(["umount", "-l", str(results)], check=True)


def pack(path: Path) -> None:
    with gzip.open(path, "wb") as stream:
        stream.write(BIG.tobytes())


BIG = np.random.default_rng(0).standard_normal(1_000_000)
FILL = {
    "bytes": lambda path: path.write_bytes(BIG.tobytes()),
    "npy": lambda path: np.save(open(path, "wb"), BIG),
    "parquet": lambda path: pq.write_table(pa.table({"x": BIG}), path),
    "gzip": lambda path: pack(path),
    "safetensors": lambda path: save_file({"x": BIG}, path),
    "tokenizer": lambda path: Tokenizer(WordLevel({f"word{i}": i for i in range(100_000)}, unk_token="word0")).save(
        str(path)
    ),
}


@pytest.mark.parametrize("how", FILL)
def test_full_disk_is_one_error_and_publishes_nothing(small_disk, how):
    run_spec(spec_of(outputs={"out": "results/out/before.txt"}), repeat)
    with pytest.raises(MachineError, match=r"the disk is full \(\d MiB free\); nothing was published: free space"):
        run_spec(spec_of(), lambda stage: FILL[how](stage.output("out")))
    assert not Path(FILE).exists() and making() == []
    assert Path("results/out/before.txt").read_text() == "aa"
    run_spec(spec_of(), repeat)  # the same command continues when there is space
    assert Path(FILE).read_text() == "aa"


def test_disk_that_fills_at_publication(small_disk):
    """The last free block goes to the output itself: there is none for its record, so it is not published either."""

    def fill(stage: Stage) -> None:
        stage.output("small").write_text("1")
        with pytest.raises(OSError), open(stage.output("out"), "wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))

    with pytest.raises(MachineError, match="the disk is full"):
        run_spec(spec_of(outputs={"small": "results/out/small.txt", "out": FILE}), fill)
    assert not Path(FILE).exists() and not Path("results/out/small.txt").exists()
    assert making() == []


def test_read_only_results(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(MachineError, match=r"can't be written \(Read-only file system\): make the folder writable"):
        run_spec(spec_of(), repeat)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission():
    Path("results/out").mkdir()
    Path("results/out").chmod(0o500)
    with pytest.raises(MachineError, match=r"can't be written \(Permission denied\)"):
        run_spec(spec_of(), repeat)


@pytest.mark.parametrize("name", ["ESTALE", "EIO", "ENOTCONN", "ETIMEDOUT", "EHOSTDOWN"])
def test_a_lost_share_is_one_error(name):
    def lose(stage: Stage) -> None:
        stage.output("out").write_text("half")
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)), "results/out/x.txt")

    with pytest.raises(
        MachineError, match=r"x\.txt: the file system does not answer any more \(.+\): check that its share"
    ):
        run_spec(spec_of(), lose)
    assert not Path(FILE).exists() and making() == []


def test_a_share_that_is_lost_before_the_first_look(monkeypatch):
    def stale(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), "results")

    monkeypatch.setattr(Path, "mkdir", stale)
    with pytest.raises(MachineError, match=r"results: the file system does not answer any more \(Stale file handle\)"):
        run_spec(spec_of(), repeat)


def test_other_errors_stay_what_they_are():
    for error in (OSError(errno.EINVAL, "odd"), ValueError("odd"), RuntimeError("took (os error 22)")):

        def fail(stage: Stage, error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error), match=re.escape(str(error))):
            run_spec(spec_of(), fail)


@pytest.mark.parametrize("name", ["ENOSYS", "ENOLCK"])
def test_a_file_system_without_locks(monkeypatch, capsys, name):
    def refuse(*_: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    monkeypatch.setattr(machine.fcntl, "flock", refuse)
    with pytest.raises(MachineError, match=r"results/\.state/locks/\w+: its file system has no locks \(.+\): mount it"):
        run_spec(spec_of(), repeat)
    with pytest.raises(SystemExit):
        guard.ask_for_single_run()
    assert "MachineError: results/.state/run.lock: its file system has no locks" in capsys.readouterr().err
    assert not Path(FILE).exists()


def test_a_refused_run_leaves_the_errors_of_the_one_that_runs(monkeypatch, capsys):
    monkeypatch.setattr(guard, "_HELD", [])
    guard.ask_for_single_run()
    adapter.report_error("embed_corpus dpr", "MachineError: it failed")
    with pytest.raises(SystemExit):
        guard.ask_for_single_run()
    assert re.search(rf"is running in this folder \(process {os.getpid()} on .+, since \d", capsys.readouterr().err)
    guard.repeat_errors()
    assert "it failed" in capsys.readouterr().err


def test_a_second_run_is_refused_where_the_lock_file_cannot_be_read(monkeypatch, capsys):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(guard, "_HELD", [])
    guard.ask_for_single_run()
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(SystemExit):
        guard.ask_for_single_run()
    assert "is running in this folder: wait for it" in capsys.readouterr().err


@pytest.mark.parametrize("name, told", [("ENOSPC", r"the disk is full \(\d+ MiB free\)"), ("EIO", "not answer")])
def test_the_guard_says_the_same(monkeypatch, capsys, name, told):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(SystemExit):
        guard.ask_for_single_run()
    assert re.search(f"MachineError: results: .*{told}", capsys.readouterr().err)


def test_a_log_on_a_full_disk_says_nothing_of_itself(small_disk, capsys):
    level = adapter.log.level
    adapter.configure_logging("make x", "results/log")
    with pytest.raises(OSError), open(small_disk / "fill", "wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
    for _ in range(3):
        adapter.log.error("%s", "words " * 1000)
    said = capsys.readouterr().err
    assert said.count("[make x] words") == 3 and "Traceback" not in said
    with contextlib.suppress(OSError):
        adapter.log.handlers[-1].close()
    adapter.log.handlers.clear()
    adapter.log.propagate = True
    adapter.log.setLevel(level)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_stopped_run_says_how_it_resumes(snakemake_log, stopped):
    guard.spare_tracebacks(str)
    said = ["Terminating processes on user request, this might take some time."] if stopped else []
    for line in [*said, f"WorkflowError:\n{guard.FAILED}"]:
        record = snakemake_log.makeRecord(snakemake_log.name, logging.ERROR, "x", 1, line, (), None)
        assert snakemake_log.filter(record)
    assert record.getMessage() == (guard.STOPPED if stopped else f"WorkflowError:\n{guard.FAILED}")
    assert guard.run_stopped() is stopped


def test_ctrl_c_while_jobs_are_planned_has_no_traceback(snakemake_log, capsys):
    sys.excepthook = sys.__excepthook__
    guard.spare_tracebacks(str)
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == f"{guard.STOPPED}\n"
    sys.excepthook(ValueError, ValueError("x"), None)
    assert capsys.readouterr().err == "ValueError: x\n"


def test_tables_of_an_earlier_run_are_withdrawn():
    outputs = {rule: Path(f"results/{rule}.tsv") for rule in ("build_table", "plot_table", "evaluate_run")}
    for rule, path in outputs.items():
        run_spec(spec_of(rule=rule, outputs={"out": str(path)}, params={"times": 2, "scale": "mini"}), repeat)
    planned = [(rule, [str(path), "results/absent.md"]) for rule, path in outputs.items()]
    line = "made anew, and gone until the run has ended: results/plot_table.tsv and 1 more"
    assert guard.replaced_reports(planned, "mini") == line
    assert guard.replaced_reports(planned, "lab") == f"{line}, of scale mini: a clone for each scale keeps both"
    guard.withdraw_reports(planned)
    assert guard.replaced_reports(planned, "lab") == ""
    left = sorted(path.name for path in Path("results").glob("*.tsv*"))
    assert left == ["evaluate_run.tsv", "evaluate_run.tsv.lineage.json"]


def test_errors_of_rule_functions_are_told_without_traceback_and_others_with_it(snakemake_log):
    said = "Error:\n  {0}: {0}: moma: item 'x': is not known\nWildcards:\n  item=x\nTraceback:\n"
    said += '  File "a", line 3, in f\n'
    said += '  File "b", line 4, in g (rule build_item, line 63, papers.smk)\nAfter'
    plain = "Error:\n  ConfigError: moma: item 'x': is not known\nWildcards:\n  item=x\nAfter"
    assert guard.plainly(said.format("ConfigError")) == plain
    assert guard.plainly(said.format("KeyError")) == said.format("KeyError")
    guard.spare_tracebacks(lambda target: f"did you mean {target[:-1]}?")
    record = snakemake_log.makeRecord(snakemake_log.name, logging.ERROR, "x", 1, said.format("ConfigError"), (), None)
    assert snakemake_log.filter(record) and record.getMessage() == plain
    missing = "MissingRuleException:\nNo rule to produce allx (if you use input functions ...)."
    record = snakemake_log.makeRecord(snakemake_log.name, logging.ERROR, "x", 1, missing, (), None)
    assert snakemake_log.filter(record) and record.getMessage() == "ConfigError: allx: is no target: did you mean all?"


def test_too_few_gpus_are_a_reason_before_the_first_job(monkeypatch):
    asked = [("merge_run", 0), ("finetune", 4), ("embed_corpus", 1)]
    monkeypatch.setattr(guard, "count_gpus", lambda: 1)
    assert guard.missing_gpus([]) == guard.missing_gpus(asked[::2]) == ""
    assert guard.missing_gpus(asked) == (
        "MachineError: finetune: asks for 4 GPUs (gpus, or the scale's), this machine shows 1: "
        "--config gpus=1 uses what there is; or run it where 4 are (--profile slurm)"
    )
    monkeypatch.setattr(guard, "count_gpus", lambda: 0)
    assert "asks for 1 GPU (gpus, or the scale's), this machine shows 0: --config gpus=0" in guard.missing_gpus(
        asked[2:]
    )


def test_gpus_are_those_that_the_environment_leaves(monkeypatch):
    import pynvml

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert guard.count_gpus() == 4
    for visible, count in (("", 0), ("-1", 0), ("0,2", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert guard.count_gpus() == count


def test_a_run_without_profile_is_advised(capsys):
    guard.advise_profile(["mtime", "params", "input"])
    assert capsys.readouterr().err == ""
    guard.advise_profile(["mtime", "code"])
    assert "snakemake --profile config/profiles/local" in capsys.readouterr().err


def test_an_absent_input_file_is_one_sentence_that_says_where_it_is_from(snakemake_log):
    said = "MissingInputException in rule mine in file 'x', line 9:\nMissing input files for rule mine:\n"
    said += "    output: results/a\n    wildcards: model=m+v, scope=s\n    affected files:\n        in/negatives.gz"
    for remark, tail in (
        ("reads negatives.gz of example.org", "; m+v reads negatives.gz of example.org"),
        ("else", ""),
    ):
        record = snakemake_log.makeRecord(snakemake_log.name, logging.ERROR, "x", 1, said, (), None)
        assert guard._Plain(str, lambda model, remark=remark: remark).filter(record)
        told = "ConfigError: mine: reads in/negatives.gz, which is no file and which no rule makes: put it there"
        assert record.getMessage() == f"{told}, or name another{tail}"


def test_default_resources_that_change_the_scale_of_a_slurm_profile_are_refused(monkeypatch):
    """They replace all of the profile's: the whole table at scale paper would be the small one, without a word."""
    words = ["snakemake", "--profile", "slurm", "results/beir/all.tsv"]
    for more in (["--default-resources", "runtime=60"], ["--default-res", "runtime=60", "--profile=my/slurm-a100"]):
        monkeypatch.setattr(sys, "argv", [*words, *more])
        with pytest.raises(ConfigError, match="replaces those of the profile, .*scale paper: this"):
            guard.require_defaults("mini")
        guard.require_defaults("paper")
    for allowed in (words, ["snakemake", "--profile", "config/profiles/mini", "--default-resources", "runtime=60"]):
        monkeypatch.setattr(sys, "argv", allowed)
        guard.require_defaults("mini")
