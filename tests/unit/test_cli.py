"""The command line as a user runs it: output, errors in one line, exit status, start-up imports."""

from __future__ import annotations

import base64
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from tiny_bench import ARCHIVE, COLLECTION, TABLE, make_bench
from typer.testing import CliRunner

from zerodr import __main__ as main_module
from zerodr.artifacts.record import read_record, record_path
from zerodr.checkout import split_config
from zerodr.config.words import parse_words
from zerodr.errors import ArtifactError, ConfigError, ZerodrError
from zerodr.operations import cli
from zerodr.operations.estimate import sizes
from zerodr.operations.estimate.jobs import Job, planned_jobs
from zerodr.operations.lookup_commands import app
from zerodr.plan import paths

RUNS = [paths.run(model, "toy", "standard") for model in ("bm25-flat", "dense")]
HEAVY = ["torch", "pandas", "numpy", "pyarrow", "mlflow", "pydantic", "yaml", "snakemake"]


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return make_bench(tmp_path)


def call(*words: str, status: int = 0) -> str:
    """Output of a command; errors that the user can mend are raised, as `main` gets them."""
    done = CliRunner().invoke(app, list(words))
    if isinstance(done.exception, ZerodrError):
        raise done.exception
    assert done.exit_code == status, done.output
    return done.stdout


def process(folder: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "zerodr", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_help_lists_the_commands_and_imports_nothing_heavy(tmp_path):
    script = f"import sys, zerodr.__main__; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "[]"
    text = call("--help")
    for command in ("lineage", "explain", "verify", "diff", "publish", "plan", "targets", "doctor", "show", "schema"):
        assert f" {command} " in text


def test_a_users_error_is_one_line_and_status_1(tmp_path):
    done = process(tmp_path, "explain", "results/beir/all.tsv")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "ArtifactError: results/beir/all.tsv: was not made here: run: make mini\n"


def test_a_wrong_call_is_status_2(tmp_path):
    done = process(tmp_path, "lineage")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_mistyped_kind_of_addition_is_answered_with_the_nearest(tmp_path):
    done = process(tmp_path, "new", "los", "x")
    assert done.returncode == 1 and "zerodr new: kind 'los': is not known: did you mean loss?" in done.stderr


def test_lineage_up_and_down(plan):
    assert ARCHIVE in call("lineage", TABLE)
    assert call("lineage", TABLE) == call("lineage", TABLE, "--up")
    assert TABLE in call("lineage", "--down", read_record(ARCHIVE)["digest"][:10])
    assert len(call("lineage", TABLE, "--depth", "1").splitlines()) == 7


def test_explain_takes_configuration_words(plan):
    assert "Current:" in call("explain", RUNS[0])
    summary = paths.summary("dense", "toy", "standard")
    text = call("explain", summary, "--config", "seed=9", "--config", "protocol=standard")
    assert "seed: 7 then, 9 now" in text
    assert "--config seed=9 protocol=standard" in text.replace("\\\n      ", "")
    with pytest.raises(ConfigError, match="did you mean seed"):
        call("explain", RUNS[0], "--config", "sede=9")
    with pytest.raises(ConfigError, match="is no KEY=VALUE"):
        call("explain", RUNS[0], "--config", "seed")


def test_verify_one_and_all(plan):
    assert "problems: 0" in call("verify", "--all")
    Path(RUNS[1]).write_text("damaged")
    assert "problems: 0" in call("verify", RUNS[0])
    text = call("verify", TABLE, status=1)
    assert f"{RUNS[1]}: has 7 bytes" in text
    assert "problems: 1" in text
    for words in ([], [TABLE, "--all"]):
        with pytest.raises(ConfigError, match="needs either artifacts or --all"):
            call("verify", *words)


def test_diff(plan):
    text = call("diff", *RUNS, "--queries", "1")
    assert "biggest gains" in text and "+0.7000" in text
    assert "recall_100" in text


def test_publish_all_that_is_final(plan):
    assert call("publish") == "19 artifacts added to sqlite:///results/lineage/mlflow.db\n"


@pytest.mark.parametrize("words", [("verify", "--all"), ("publish",)])
def test_an_empty_folder_is_one_message_and_stays_empty(tmp_path, words):
    done = process(tmp_path, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"ArtifactError: {tmp_path}: holds no artifact with a lineage record: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def remove_evaluations(plan):
    for path in map(Path, plan.evaluations("summary")):
        path.unlink(missing_ok=True)


def test_show(plan):
    remove_evaluations(plan)
    with pytest.raises(ZerodrError, match="make mini"):
        call("show")
    Path(paths.beir("all.md")).write_text("| method | toy |\n")
    text = call("show")
    assert "| method | toy |" in text and "zerodr publish, then make mlflow" in text
    assert f"Page       snakemake --profile config/profiles/mini {paths.beir('all.html')}" in text
    assert "Report" not in text
    Path(paths.beir("all.html")).touch()
    assert f"Page       {paths.beir('all.html')}" in call("show") and "make report" in call("show")
    with pytest.raises(ZerodrError, match=r"run: snakemake .* results/beir/toy\.tsv --config collections=toy seed=14"):
        call("show", "--config", "collections=toy", "--config", "seed=14")


def test_show_before_the_table_is_whole(plan):
    remove_evaluations(plan)
    finished = Path(plan.evaluations("summary")[0])
    finished.parent.mkdir(parents=True, exist_ok=True)
    header = "model collection split protocol depth exclude_self metric value low high queries".split()
    model, collection, protocol = finished.parts[2:5]
    row = [model, collection, "test", protocol.partition(".")[0], "1000", "False", "ndcg_cut_10", ".25", "", "", "4"]
    finished.write_text("\t".join(header) + "\n" + "\t".join(row) + "\n")
    record_path(finished).unlink(missing_ok=True)  # that of another one: a summary that was changed is refused
    text = call("show")
    assert "0.2500" in text and "not the whole table: 1 of " in text
    assert plan.methods[-1] not in text


def test_schema_is_printed_and_written(plan):
    text = call("schema")
    assert json.loads(text)["additionalProperties"] is False
    call("schema", "--write")
    assert Path("config/schema.json").read_text() == text


def test_targets_are_listed_and_checked(plan):
    assert "results/beir/{method}.tsv" in call("targets")
    assert call("targets", RUNS[0], "all") == f"{RUNS[0]}: is a target\nall: is a target\n"
    text = call("targets", "all", "results/beir/al.tsv", status=1)
    assert "results/beir/al.tsv: did you mean results/beir/all.tsv" in text


def test_words_are_read_like_snakemake_does():
    assert parse_words(["a=1", "b=[x, y]", "c=null", "d=a=b"]) == {
        "a": 1,
        "b": ["x", "y"],
        "c": None,
        "d": "a=b",
    }
    with pytest.raises(ConfigError, match="no YAML"):
        parse_words(["a=[1"])
    with pytest.raises(ConfigError, match="--config methods=: has no value: give one, leave the word out"):
        parse_words(["methods="])  # of an unset variable: everything would run


JOBS = """
from zerodr.operations.estimate.jobs import Job, planned_jobs
from zerodr.operations.lookup_commands import app
rule all:
    input: "r, all.gz"
rule merge:
    input: expand("{shard}.npy", shard=["a", "b"])
    output: "{name}, {what}.gz"
rule embed:
    output: temp("{shard}.npy")
    params: given=config["given"]
"""


def test_jobs_come_from_snakemake_with_their_files(tmp_path, monkeypatch, capfd):
    """A comma in a path is part of it; nothing is shown on the screen; a stop of this process stays its own."""
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").write_text(JOBS)
    before = signal.getsignal(signal.SIGTERM)
    jobs = sorted(planned_jobs("all", {"given": ["x", "y"]}, None), key=lambda job: job.rule)  # type: ignore[arg-type]
    names = ("a.npy", "b.npy")
    assert jobs[0] == Job("all", {}, ("r, all.gz",))
    assert sorted(jobs[1:3], key=lambda job: job.outputs) == [Job("embed", {"shard": n[0]}, (), (n,)) for n in names]
    assert jobs[3:] == [Job("merge", {"name": "r", "what": "all"}, names, ("r, all.gz",))]
    assert capfd.readouterr() == ("", "") and not Path(".snakemake/log").exists()
    assert signal.getsignal(signal.SIGTERM) == before


def test_jobs_are_planned_after_a_stop(tmp_path, monkeypatch, capfd):
    """A plan makes anew outputs that Snakemake marked as incomplete, as the profiles do."""
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").write_text(JOBS)
    for name in ("a.npy", "b.npy", "r, all.gz"):
        Path(name).touch()
    marks = Path(".snakemake/incomplete")
    marks.mkdir(parents=True)
    (marks / base64.b64encode(b"r, all.gz").decode()).touch()
    jobs = planned_jobs("all", {"given": ["x"]}, None)  # type: ignore[arg-type]
    assert "merge" in {job.rule for job in jobs}


def test_a_forecast_adds_up(plan, tmp_path):
    lab = cli.plan_of(["scale=lab"])
    where = {"model": "dense", "scope": "shared", "collection": "other", "protocol": "standard"}
    jobs = [Job("fetch_archive", {"archive": "other.zip"}), Job("fetch_archive", {"archive": "toy.zip"})]
    jobs += [Job("embed_corpus", where | {"shard": f"{n:05d}-of-00003"}) for n in range(3)]
    jobs += [Job("embed_queries", where | {"split": "test"}), Job("all", {})]
    needs = sizes.sizes_of(jobs, lab)
    assert needs.jobs == {"fetch_archive": 2, "embed_corpus": 3, "embed_queries": 1, "all": 1}
    assert needs.shards == {"dense/other": 3}
    assert needs.download_bytes == {"other.zip": 5_000_000, "toy.zip": 2_000_000}
    assert needs.embedding_bytes == {"dense": (3_000_000 + 10) * 16 * 4}
    assert needs.assumed == () and needs.text_bytes == 0
    assert needs.largest["embed_corpus"] == (6000 + 3500, 1_000_000 * 16 * 4)
    assert needs.largest["fetch_archive"] == (500, 5_000_000)
    text = sizes.render("x", needs)
    assert "dense/other: 3" in text and "7 MiB in 2 archives" in text and "0.179 GiB" in text
    assert sizes.render("x", sizes.sizes_of([], lab)) == "x: nothing to be done"
    Path("results/models/dense/shared/imported/config.json").unlink()
    assert sizes.sizes_of(jobs, lab).embedding_bytes == {"dense": (3_000_000 + 10) * 768 * 4}
    text = sizes.render("x", sizes.sizes_of(jobs, lab))
    assert "(768 dimensions assumed for models that do not exist yet: dense)" in text


def test_collections_that_are_here_already_and_memories_are_counted(plan):
    lab = cli.plan_of(["scale=lab"])
    texts = [Job("normalize_collection", {"collection": "other"}), Job("index_bm25", {"collection": "toy"})]
    needs = sizes.sizes_of(texts, lab)
    assert needs.text_bytes == 2 * 5_000_000 + 12 * 1000, "by archive or by documents, whichever is less"
    assert needs.download_bytes == {} and "0.01 GiB with archives, collections and indexes" in sizes.render("x", needs)
    where = {"model": "dense", "scope": "shared", "stage": "ep1", "collection": "other", "shard": "00000-of-00003"}
    needs = sizes.sizes_of([Job("embed_memory", where)], lab)
    assert needs.embedding_bytes == {"dense": 1_000_000 * 16 * 4} and needs.shards == {"dense@ep1/other": 1}
    line = next(line for line in sizes.render("x", needs).splitlines() if "embed_memory" in line)
    assert line.split() == ["embed_memory", "1", "9500", "MiB", "61", "MiB", "of", "disk"]


def test_archives_in_a_mirror_are_no_downloads(plan, tmp_path):
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/toy.zip").write_text("archive")
    needs = sizes.sizes_of([Job("fetch_archive", {"archive": "toy.zip"})], cli.plan_of(["mirrors=[mirror]"]))
    assert needs.local == ("toy.zip",)
    assert "0 MiB in 0 archives; 1 more are in a mirror folder" in sizes.render("x", needs)


def test_a_recipe_is_compared_with_a_scale_or_a_method_and_others_are_refused(root, monkeypatch):
    monkeypatch.chdir(root)
    assert "scale lab" in call("recipe", "dpr", "--diff", "lab")
    with pytest.raises(ConfigError, match=r"--diff: scale or method 'anc': is not known: did you mean ance"):
        call("recipe", "dpr", "--diff", "anc")


def test_plan_asks_snakemake(root, monkeypatch):
    monkeypatch.chdir(root)
    text = call("plan", "--scale", "paper", "results/beir/bm25-flat.tsv", "--config", "offline=true")
    assert "build_row" in text and "search_bm25" in text and "MiB for the largest job" in text
    assert " 10 s for the start" in text
    text = call(
        "plan", "--scale", "paper", "--profile", "local", "results/beir/bm25-flat.tsv", "--config", "offline=true"
    )
    assert " 1 s for the start" in text
    row = ("plan", "results/beir/bm25-flat.tsv", "--config", "offline=true", "--profile", "slurm")
    counts = [call(*row, *more).split(" needs ")[1].split(" jobs")[0] for more in ([], ["--scale", "paper"])]
    assert counts[0] == counts[1], "a plan is that of `snakemake --profile slurm`"
    told = "can't be planned: results/beir/al.tsv: is no target: did you mean results/beir/all.tsv"
    with pytest.raises(ConfigError, match=told):
        call("plan", "results/beir/al.tsv")
    told = "can't be planned: results/moma/figure9.tsv: is no target: did you mean results/moma/figure"
    with pytest.raises(ConfigError, match=told):
        call("plan", "results/moma/figure9.tsv")


def test_the_collection_is_found_by_its_folder(plan):
    assert call("lineage", "results/collections/toy").startswith(COLLECTION)


def test_commands_work_in_any_folder_of_the_checkout(plan, tmp_path, monkeypatch):
    (tmp_path / "Snakefile").touch()
    (tmp_path / "deep/er").mkdir(parents=True)
    whole = call("verify", TABLE)
    assert "problems: 0" in whole
    for folder, artifact in (("deep/er", TABLE), ("deep/er", f"../../{TABLE}"), ("results/beir", "all.tsv")):
        monkeypatch.chdir(tmp_path / folder)
        assert call("verify", artifact) == whole
        monkeypatch.chdir(tmp_path / folder)
        assert call("lineage", artifact).startswith(TABLE)


def test_config_takes_several_words_as_snakemake_does():
    assert split_config("plan x --config a=1 b=[2,3] --scale lab".split()) == (
        "plan x --config a=1 --config b=[2,3] --scale lab".split()
    )
    for words in ("plan --config=a=1 x", "plan --config a=1 x --config b=2", "plan --config a x=1", "x=1 y=2"):
        assert split_config(words.split()) == words.split()


def test_values_without_their_option_are_told_where_they_go(tmp_path):
    done = process(tmp_path, "plan", "x", "scale=lab", "gpus=0")
    assert done.returncode == 2
    assert done.stderr.endswith("values of the configuration follow --config: --config scale=lab gpus=0\n")
    assert "--config" not in process(tmp_path, "plan", "x", "--bogus", "--set", "dpr.ep0.x=1").stderr


def test_lineage_of_something_damaged_ends_with_status_1(plan, tmp_path):
    assert call("lineage", TABLE)
    run = Path(RUNS[0])
    run.write_bytes(run.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=f"1 of its artifacts are missing or damaged, the first is {RUNS[0]}"):
        call("lineage", TABLE)


@pytest.mark.parametrize("readable, told", [(True, "written"), (False, "read")])
def test_a_refusal_of_the_system_is_one_line(tmp_path, monkeypatch, capsys, readable, told):
    """A colleague's checkout: `zerodr report` may not write there, nor `zerodr verify` read all."""
    (tmp_path / "x").touch()
    refusal = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "x"))
    monkeypatch.setattr(main_module, "app", Mock(side_effect=refusal))
    monkeypatch.setattr(os, "access", lambda path, mode: readable)
    with pytest.raises(SystemExit, match="1"):
        main_module.main()
    assert capsys.readouterr().err.startswith(f"MachineError: {tmp_path}/x: can't be {told} (Permission denied): ")


@pytest.mark.parametrize("name, step", [("uvicorn", "run: pip install 'path/to/zerodr[serve]', or, "), ("scipy", "")])
def test_a_command_whose_package_is_not_installed_says_how_to_get_it(monkeypatch, capsys, name, step):
    monkeypatch.setattr(main_module, "app", Mock(side_effect=ModuleNotFoundError(name=f"{name}.config")))
    with pytest.raises(SystemExit, match="1"):
        main_module.main()
    expected = f"MachineError: package {name}: is not installed, and this command needs it: {step}in the checkout: "
    assert capsys.readouterr().err.startswith(expected)


def test_a_module_of_the_library_that_is_missing_is_no_package_to_install(monkeypatch):
    monkeypatch.setattr(main_module, "app", Mock(side_effect=ModuleNotFoundError(name="zerodr.gone")))
    with pytest.raises(ModuleNotFoundError):
        main_module.main()


def test_the_version_is_printed():
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("zerodr 0.")


def test_a_shell_completes_commands_and_options():
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'zerodr'; from zerodr.__main__ import main; main()"]
    words = {"_ZERODR_COMPLETE": "complete_bash", "COMP_WORDS": "zerodr adapt --b", "COMP_CWORD": "2"}
    done = subprocess.run(command, env=os.environ | words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["--budget"]


def test_one_name_for_two_folders_is_refused(plan):
    with pytest.raises(ConfigError, match="--name x: names one folder, found 2: leave it out"):
        CliRunner().invoke(app, ["adapt", "a", "b", "--name", "x"], catch_exceptions=False)
