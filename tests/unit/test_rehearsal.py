"""Rehearsals: few steps, documents and questions under the same plan, in a folder of links."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_bench import plan_of, write_config

from zerodr.artifacts.stage import Stage, StageSpec
from zerodr.collections.first_part import FirstPart
from zerodr.collections.readers import Reader
from zerodr.collections.readers.base import Document, Judgement, Query
from zerodr.config.load import load_bench, mirrors_of, read_config, with_scale
from zerodr.config.pins import read_lock
from zerodr.config.rehearsal import Rehearsal
from zerodr.errors import ArtifactError
from zerodr.operations import rehearsal_report, starting
from zerodr.operations.estimate import rehearsed
from zerodr.operations.estimate.jobs import Job
from zerodr.operations.estimate.work import work_of as rehearsed_work
from zerodr.operations.rehearse import make_folder, movable, rehearse
from zerodr.pages.html import fill
from zerodr.plan import Plan
from zerodr.plan.training import uneven_batches


class Rows(Reader):
    """Thirty documents; questions q0 to q9, each with a bad document before its good one."""

    def __init__(self) -> None:
        pass

    def documents(self):
        return (Document(f"d{n}", "", f"text {n}", "corpus", n) for n in range(30))

    def queries(self):
        return (Query(f"q{n}", f"question {n}", "queries", n) for n in range(10))

    def splits(self):
        return ["test", "train"]

    def judgements(self, split):
        rows = [(f"q{n}", f"d{29 - n}", grade) for n in range(10) for grade in (0, 1)]
        return (Judgement(*row, "qrels", n) for n, row in enumerate(rows))


def test_first_part_has_the_first_questions_their_documents_and_the_first_documents():
    part = FirstPart(Rows(), ["test"], Rehearsal(documents=3, judged=1), 2)
    assert [row.id for row in part.queries()] == ["q0", "q1"]
    assert [row.id for row in part.documents()] == ["d0", "d1", "d2", "d28", "d29"]
    assert [(row.query, row.grade) for row in part.judgements("test")] == [("q0", 1), ("q1", 1)]


def test_a_rehearsal_shortens_trainings_alone():
    training = {"steps": 9000, "learning_rate": 1.0, "batch_queries": 2048}
    params = {"settings": {"training": training, "steps": 70}, "count": 5000}
    assert Rehearsal().shorten(params, "count") == {
        "settings": {"training": training | {"steps": 4}, "steps": 70},
        "count": 200,
    }
    assert Rehearsal(steps=10**6).shorten(params) == params


def test_params_hold_the_cut_and_a_run_has_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path)
    wildcards = SimpleNamespace(collection="toy")
    usual = json.loads(plan_of(tmp_path).settings("normalize_collection")(wildcards))
    bench = load_bench(tmp_path, {"scale": "mini", "rehearse": True})
    rehearsed = json.loads(Plan(bench).settings("normalize_collection")(wildcards))
    assert rehearsed == usual | {"rehearsal": Rehearsal().model_dump()}
    fetched = Plan(bench).settings("fetch_archive")(SimpleNamespace(archive="toy.zip"))
    assert "rehearsal" not in fetched, "a run takes over what a rehearsal downloaded"


def test_a_rehearsal_is_part_of_a_spec_and_a_run_is_what_it_was(tmp_path):
    def spec(**more):
        return StageSpec("finetune", 1, {}, {}, {}, {"training": {"steps": 90, "learning_rate": 1.0}}, **more)

    rehearsed = spec(rehearsal=Rehearsal().model_dump())
    assert rehearsed.digest({}) != spec().digest({})
    assert Stage(rehearsed, tmp_path).params["training"]["steps"] == 4
    assert Stage(spec(), tmp_path).params["training"]["steps"] == 90


def test_folder_links_the_checkout_and_has_its_own_settings_and_results(tmp_path):
    write_config(tmp_path)
    for name in ("workflow", "envs", "resources/mirror", "resources/reference"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "Snakefile").write_text("rule all:\n")
    (tmp_path / "config/config.yaml").write_text("{scale: mini, mirrors: [resources/mirror]}\n")
    folder = make_folder(tmp_path)
    before = (folder / "config/config.yaml").stat().st_mtime_ns
    assert make_folder(tmp_path) == folder and (folder / "config/config.yaml").stat().st_mtime_ns == before
    assert (folder / "Snakefile").read_text() == "rule all:\n" and not (folder / "results").exists()
    assert (folder / "resources/mirror").samefile(tmp_path / "resources/mirror")
    bench = load_bench(folder)
    assert bench.config.rehearse and str(tmp_path / "resources/mirror") in bench.config.mirrors


def test_words_of_a_command_mean_the_same_in_the_folder(tmp_path, monkeypatch):
    write_config(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("notes", "models/mine", "results"):
        Path(name).mkdir(parents=True)
    for name in ("Snakefile", "mine.yaml", "results/table.tsv"):
        Path(name).touch()
    Path("config/config.yaml").write_text("byo: [notes]\n")
    folder = make_folder(tmp_path)
    assert read_config(folder / "config")["byo"] == [str(tmp_path / "notes")]
    assert (folder / "models/mine").is_dir()
    words = ["--configfile", "mine.yaml", "--configfile=mine.yaml", "-s", "Snakefile"]
    words.append(f"--snakefile={tmp_path}/Snakefile")
    here, file = str(tmp_path / "notes"), str(tmp_path / "mine.yaml")
    moved = ["--configfile", file, f"--configfile={file}", "-s", "Snakefile", "--snakefile=Snakefile"]
    assert list(map(movable, words)) == moved
    assert movable("byo=notes,/a") == f"byo={here},/a" and movable("byo=[notes]") == f"byo={here}"
    for word in ("results/table.tsv", "scale=mini", "--profile", "slurm", "set=[dpr.training.steps=9]", ""):
        assert movable(word) == word


def test_a_slurm_profile_means_scale_paper_unless_a_word_or_the_settings_name_another(tmp_path):
    folder, words = tmp_path / "config", ["seed=3"]
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 4\n")
    assert with_scale(words, "slurm", folder) == [*words, "scale=paper"]
    assert with_scale(words, "config/profiles/slurm", folder) == [*words, "scale=paper"]
    assert with_scale(words, "config/profiles/mini", folder) == with_scale(words, "", folder) == words
    assert with_scale(["scale=lab"], "slurm", folder) == ["scale=lab"]
    (folder / "config.yaml").write_text("scale: lab\n")
    assert with_scale(words, "slurm", folder) == words


@pytest.mark.parametrize("written", ["archives,~/more", "[archives, ~/more]"])
def test_mirrors_of_a_rehearsal_are_read_as_those_of_a_run(tmp_path, monkeypatch, written):
    write_config(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "config/config.yaml").write_text(f"mirrors: {written}\n")
    assert mirrors_of(tmp_path)[:2] == [tmp_path / "archives", tmp_path / "home/more"]


@pytest.mark.parametrize("substitutes", [False, True])
@pytest.mark.parametrize("named", ["config/my", "mine"])
def test_mirrors_of_the_users_settings_are_those_of_the_checkout_or_of_stand_ins(
    tmp_path, monkeypatch, substitutes, named
):
    write_config(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZERODR_MY", named)
    for name in ("resources/reference", "archives", named):
        Path(name).mkdir(parents=True, exist_ok=True)
    Path(named, "config.yaml").write_text("{mirrors: [archives], seed: 8}\n")
    Path(named, "old.yaml").write_text("{kind: lexical, label: old, description: old}\n")
    os.chdir(make_folder(tmp_path, substitutes))
    config = load_bench(Path("."), read_config(Path("config"))).config
    expected = Path("resources/mirror").absolute() if substitutes else tmp_path / "archives"
    assert (config.mirrors[0], config.seed, config.rehearse) == (str(expected), 8, True)
    assert Path("config/my/old.yaml").is_file()
    monkeypatch.setenv("ZERODR_MY", named)
    monkeypatch.chdir(tmp_path)
    Path(named, "old.yaml").unlink()
    assert not list((make_folder(tmp_path, substitutes) / "config/my").iterdir())


@pytest.mark.parametrize("substitutes", [False, True])
def test_snakemake_rehearses_stand_ins_in_the_folder_whose_times_no_plan_uses(tmp_path, monkeypatch, substitutes):
    from zerodr.operations import loading
    from zerodr.operations.slurm import submission

    write_config(tmp_path)
    (tmp_path / "resources").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submission, "start_again", lambda words: None)
    loading.enter_rehearsal(tmp_path, {"rehearse": True, "substitutes": substitutes})
    assert os.getcwd() == str(tmp_path / ("rehearsal-stand-ins" if substitutes else "rehearsal"))
    assert load_bench(Path(".")).config.substitutes is substitutes


def test_revisions_that_a_rehearsal_resolves_are_those_of_the_run(tmp_path, monkeypatch):
    from zerodr.operations import revisions

    write_config(tmp_path)
    (tmp_path / "resources").mkdir()
    folder = make_folder(tmp_path)
    monkeypatch.setattr(revisions, "ask_hub", lambda name, revision: "f" * 40)
    revisions.lock_models({"a/b": "dense"}, False, folder)
    assert read_lock(tmp_path / "config/revisions.yaml")["a/b"][0] == "f" * 40
    assert os.path.islink(folder / "config/revisions.yaml")
    apart = make_folder(tmp_path, substitutes=True)
    assert not (apart / "config/revisions.yaml").exists(), "commits of stand-ins are never locked for a run"


def test_stand_ins_need_no_checksum_of_the_registry(tmp_path):
    write_config(tmp_path)
    text = (tmp_path / "config/collections/tiny.yaml").read_text()
    pinned = text.replace("archive: toy.zip", "archive: toy.zip\n    checksums: [md5:00]")
    (tmp_path / "config/collections/tiny.yaml").write_text(pinned)
    rows = [load_bench(tmp_path, {"scale": "mini", "substitutes": flag}).collections["toy"] for flag in (False, True)]
    assert [row.checksums for row in rows] == [("md5:00",), ()]


def test_a_training_that_ends_early_keeps_its_last_weights_for_all_later_steps():
    from zerodr.training.loop.engine import Engine

    kept = []
    engine = SimpleNamespace(
        settings=SimpleNamespace(steps=4, save_steps=(2, 2500, 5000), evaluate_steps=None, checkpoint_steps=100),
        run=SimpleNamespace(keep=kept.append, evaluate=None),
        group=SimpleNamespace(rank=0),
        saving=SimpleNamespace(now=None, later=None),
        _checkpoint=lambda position, save: None,
    )
    for step in range(1, 5):
        Engine._due(engine, SimpleNamespace(step=step))  # type: ignore[arg-type]
    assert kept == [2, 2500, 5000]


@pytest.mark.parametrize("steps", [1, 3])
def test_shortened_steps_are_never_more_than_those_of_the_recipe(steps):
    params = {"training": {"steps": steps, "learning_rate": 1.0}}
    assert Rehearsal().shorten(params) == params


# ---- what a rehearsal measured ---------------------------------------------------------------------------------------
def record_of(**more):
    """The record of a rehearsed training: 4 of 50,000 steps of 100 queries took 10 of its 13 seconds."""
    params = {"settings": {"training": {"steps": 50000, "batch_queries": 100, "learning_rate": 1.0}}}
    return {
        "rule": "finetune",
        "wildcards": {"model": "dpr", "scope": "shared", "stage": "ep0"},
        "seconds": 13.0,
        "metrics": [],
        "notes": {"queries_per_second": 40.0, "peak_gpu_mib": 7000.0},
        "spec": {"params": params, "rehearsal": Rehearsal().model_dump()},
        "environment": {"device": "cpu", "processor": "EPYC"},
        "peak_memory_mib": 900.0,
    } | more


def test_a_rate_gives_the_time_of_the_run():
    figures = rehearsed.measure(record_of())
    assert (figures.work, figures.node, figures.gpu_mib) == (400.0, "EPYC", 7000.0)
    assert figures.seconds_for(50000 * 100) == 3.0 + 125000.0
    assert rehearsed.measure(record_of(notes={})).seconds_for(10) is None


def test_an_estimate_takes_the_rate_of_the_rehearsal(tmp_path, monkeypatch):
    from zerodr.operations.estimate import costs

    monkeypatch.chdir(tmp_path)
    write_config(tmp_path)
    plan = plan_of(tmp_path)
    wildcards = {"model": "dense", "scope": "shared", "collection": "other", "protocol": "standard"}
    job = Job("embed_corpus", wildcards | {"shard": "00000-of-00003"})
    embedded = record_of(
        rule="embed_corpus",
        wildcards=wildcards | {"collection": "toy", "shard": "00000-of-00001"},
        metrics=[{"name": "texts_per_second", "value": 50.0}],
        notes={"texts": 100},
        spec={"params": {}, "rehearsal": Rehearsal().model_dump()},
    )
    found = rehearsed.Rehearsed([rehearsed.measure(embedded)])
    found.write(tmp_path / rehearsed.FILE)
    estimates = costs.Estimates(plan)
    texts = rehearsed_work(job, plan)
    assert estimates.seconds(job) == (11.0 + texts / 50.0, True)
    assert "by the rates of the rehearsal, 100.0% of their time" in costs.render([job], costs.costs([job], estimates))


def test_jobs_are_sorted_by_what_became_of_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input").touch()
    (tmp_path / "job.log").write_text("10:00 starts\n10:01 ModelError: no weights\n\n")
    failed = Job("finetune", {"model": "dpr"}, ("input",), ("a",))
    behind = Job("embed_corpus", {"model": "dpr"}, ("a",), ("b",))
    done, failures, waiting = rehearsal_report.sort_jobs([failed, behind], {("a",): "job.log", ("b",): "none.log"})
    assert not done and waiting == [behind]
    assert failures == [(failed, ("finetune dpr", "job.log", "10:01 ModelError: no weights"))]


def test_the_page_sorts_its_numbers_as_numbers():
    row = rehearsal_report.Row("finetune", "bert", "a card", 2, 0, 0, 10.5, 9.0, 0.0, "")
    page = fill("rehearsal.html", title="", summary=[], head=rehearsal_report.HEAD, rows=[row], cost=[])
    assert '<td data-value="10.5">10.5</td>' in page and '<td data-value="2">2</td>' in page


@pytest.mark.parametrize(
    "text", ["", "10:00 train: step 3\n", "10:00 stopped; the same command resumes\n", "10:01 ModelError: x"]
)
def test_jobs_of_a_run_that_was_stopped_wait_unless_they_failed(tmp_path, text):
    (tmp_path / "job.log").write_text(text)
    job = Job("finetune", {"model": "dpr"}, (), (str(tmp_path / "a"),))
    logs = {job.outputs: str(tmp_path / "job.log")}
    for stopped, failed in ((True, "Error" in text), (False, True)):
        _, failures, waiting = rehearsal_report.sort_jobs([job], logs, stopped)
        assert (len(failures), len(waiting)) == ((1, 0) if failed else (0, 1))


def test_a_disk_that_is_too_small_for_the_run_is_said(monkeypatch):
    from zerodr.operations.estimate import sizes

    needs = sizes.Sizes({}, {}, {}, (), (), {"dpr": 3 * 2**30}, (), 0, {}, 0)
    monkeypatch.setattr(sizes, "disk_usage", lambda folder: SimpleNamespace(free=2**30))
    assert "only 1.00 GiB are free: free space, or: ln -s" in sizes.disk_lines(needs)
    monkeypatch.setattr(sizes, "disk_usage", lambda folder: SimpleNamespace(free=2**40))
    assert "only" not in sizes.disk_lines(needs)


def test_a_run_and_a_dry_run_warn_of_the_same_disk(monkeypatch):
    from zerodr.operations.estimate import sizes

    packed = {"x.zip": 2**30, "y.zip": 2**40}
    needs = sizes.Sizes({}, {}, packed, ("y.zip",), (), {"dpr": 2**30}, (), 2**30, {}, 0)
    monkeypatch.setattr(sizes, "sizes_of", lambda jobs, plan: needs)
    monkeypatch.setattr(sizes, "disk_usage", lambda folder: SimpleNamespace(free=2**30))
    planned = [SimpleNamespace(rule=SimpleNamespace(name="all"), wildcards={}, input=[], output=[])]
    workflow = SimpleNamespace(dag=SimpleNamespace(needrun_jobs=lambda exclude_finished: planned))
    plan = SimpleNamespace(config=SimpleNamespace(rehearse=False, scale="lab"), bench=SimpleNamespace(overridden={}))
    plan.machines = SimpleNamespace(training_gpus=1)
    monkeypatch.setattr(starting, "loose_models", lambda plan, jobs: {})
    line = f"Disk: the jobs write about 3.00 GiB and models, only 1.00 GiB are free: {sizes.MORE_ROOM}"
    monkeypatch.setattr(starting, "missing_gpus", lambda asked: "")
    assert starting.foretell(workflow, plan, slurm=False) == [line]
    assert starting._warnings(plan, planned) == [line]
    plan.config.rehearse = True
    assert starting.foretell(workflow, plan, slurm=False) == []
    many = SimpleNamespace(dag=SimpleNamespace(needrun_jobs=lambda exclude_finished: planned * 200))
    many.output_settings = SimpleNamespace(quiet=set())
    assert "200 jobs are listed above" in starting.foretell(many, plan, slurm=False)[0]
    many.output_settings.quiet = {"rules"}
    assert starting.foretell(many, plan, slurm=False) == []


@pytest.mark.parametrize(("gpus", "told"), [(4, 1), (2, 1), (3, 0), (1, 0)])
def test_a_batch_that_the_gpus_can_not_share_is_told_before_the_first_job(root, gpus, told):
    plan = Plan(load_bench(root, {"scale": "paper", "gpus": gpus}))
    wildcards = SimpleNamespace(model="genq", stage="questions", scope="column-scifact")
    line = uneven_batches(plan, [("finetune", wildcards), ("all", SimpleNamespace())])
    assert ("will stop: genq@questions (75). Run them with gpus=1" in line) == bool(told) == bool(line)


def replace_snakemake(folder, monkeypatch, body):
    """Let rehearsals in a folder with a configuration start a script in the place of Snakemake."""
    write_config(folder)
    (folder / "resources").mkdir()
    script = folder / "python"
    script.write_text(f"#!/bin/bash\n{body}\n")
    script.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "executable", str(script))


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_a_rehearsal_ends_within_its_time_as_by_ctrl_c(tmp_path, monkeypatch, handler):
    """Also where a shell started it in the background, which ignores Ctrl-C."""
    body = "trap 'echo $PWD > stopped; exit 130' INT\nwhile :; do sleep 0.05; done"
    replace_snakemake(tmp_path, monkeypatch, body)
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert rehearse(["all"], plan_of(tmp_path), substitutes=False, within_s=0.5) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "rehearsal/stopped").read_text().strip() == str(tmp_path / "rehearsal")


def test_a_snakemake_that_was_killed_is_told(tmp_path, monkeypatch, capsys):
    replace_snakemake(tmp_path, monkeypatch, "kill -KILL $$")
    assert rehearse(["all"], plan_of(tmp_path), substitutes=False, within_s=None) == 137
    assert capsys.readouterr().err.startswith("snakemake was ended by SIGKILL: the same command resumes")


@pytest.mark.parametrize("text", ["{", '[{"rule": "x"}]', "3"])
def test_a_damaged_measurement_is_told(tmp_path, text):
    (tmp_path / "measured.json").write_text(text)
    with pytest.raises(ArtifactError, match=r"measured.json: is no measurement of a rehearsal .*: delete it"):
        rehearsed.read(tmp_path / "measured.json")


def test_the_time_left_of_a_rehearsal_counts_its_small_jobs_alike(tmp_path, monkeypatch):
    from zerodr.operations import starting

    monkeypatch.chdir(tmp_path)
    write_config(tmp_path)
    plan = Plan(load_bench(tmp_path, {"scale": "mini", "rehearse": True}))
    assert starting._expected_seconds(plan, ["a training", "a search"], 2.0) == [2.0, 2.0]
