"""Hub models without a revision: the run that first needs them resolves and locks them; the lock is followed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from datetime import date
from pathlib import Path

import pytest
from encoder_helpers import tiny_bert

from zerodr.config.load import load_bench
from zerodr.config.pins import LOCK, read_lock, render_lock, require_repositories
from zerodr.errors import ConfigError, ModelError
from zerodr.operations.stand_ins.hub import Hub, Repository
from zerodr.plan import Plan
from zerodr.plan.pins import loose_models, planned_writers

HUB = "kind: encoder\nlabel: x\ndescription: x\nsettings: {model: organisation/name}\n"
TRAINED = """
kind: trained
label: x
description: x
settings:
  encoder: {init: organisation/start}
  chain:
    ep0:
      negatives: {source: bm25-flat+bm25s}
      objective: {name: info_nce}
      training: {steps: 10, batch_queries: 8}
"""
CALL = """
import json, sys, time
from pathlib import Path
time.sleep = lambda seconds, wait=time.sleep: wait(seconds / 20)  # huggingface_hub waits between its tries
from zerodr.errors import ZerodrError
from zerodr.encoders.start.hub import fetch_model
from zerodr.operations import revisions
try:
    if sys.argv[1] == "fetch_model":
        answer = [str(part) for part in fetch_model(*json.loads(sys.argv[2]))]
    else:
        answer = getattr(revisions, sys.argv[1])(*json.loads(sys.argv[2]), root=Path(sys.argv[3]))
    print(json.dumps(answer))
except ZerodrError as error:
    print(error)
"""


@pytest.fixture
def project(root, tmp_path):
    (tmp_path / "resources").symlink_to(root / "resources")
    project = Path(shutil.copytree(root / "config", tmp_path / "config")).parent
    (project / "config/methods/hub.yaml").write_text(HUB)
    (project / "config/methods/hub2.yaml").write_text(HUB.replace("}", f", revision: {'a' * 40}}}"))
    (project / "config/methods/own.yaml").write_text(TRAINED)
    return project


def loose(project, *jobs, scale="paper"):
    return loose_models(Plan(load_bench(project, {"scale": scale, "methods": ["bm25-flat"]})), jobs)


@pytest.mark.parametrize("model", ["path/to/folder", "/nowhere", "./model", "~/model", "a name"])
def test_a_missing_folder_is_refused_before_a_run_asks_the_hub(model):
    require_repositories(["organisation/name", "bert-base-uncased"])
    with pytest.raises(ModelError, match=f"{model}: is neither a folder nor a hub name: make the folder, or write"):
        require_repositories([model])


@pytest.fixture
def hub(tmp_path):
    folder = tiny_bert(tmp_path / "served")
    states = {"organisation/name": "open", "organisation/start": "open", "organisation/closed": "gated"}
    with Hub({name: Repository(folder, state) for name, state in states.items()}) as served:
        pickled = tmp_path / "pickled"
        pickled.mkdir()
        (pickled / "pytorch_model.bin").write_bytes(b"x")
        served.repositories["organisation/pickled"] = Repository(pickled)
        yield served


def ask(hub, project, function, *values):
    """Call a function of `operations.revisions` in a process that asks `hub`; its answer, or its error's sentence."""
    home = {"HF_ENDPOINT": hub.address, "HF_HOME": str(project / "hub"), "HF_TOKEN": "", "NO_PROXY": "127.0.0.1"}
    kept = {name: value for name, value in os.environ.items() if "OFFLINE" not in name}
    library = {"PYTHONPATH": str(Path(__file__).parents[2] / "workflow/scripts")}
    words = [sys.executable, "-c", CALL, function, json.dumps(values), str(project)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=kept | home | library)
    assert "Error while downloading" not in done.stderr
    text = done.stdout.strip()
    return json.loads(text) if text.startswith("[") else text


# ---- which models a run resolves -------------------------------------------------------------------------------
def test_models_without_a_revision_are_those_that_jobs_would_fetch(project):
    jobs = ("import_model", "hub"), ("init_model", "own"), ("import_model", "hub2"), ("search_bm25", "bm25-flat")
    assert loose(project, *jobs) == {"organisation/name": "hub", "organisation/start": "own"}
    assert loose(project, ("import_model", "all-minilm-l6-v2"), ("init_model", "dpr+scratch")) == {}
    assert loose(project, ("import_model", "hub"), scale="mini") == {"organisation/name": "hub"}


def test_both_towers_of_a_model_are_resolved_at_once(project):
    towers = HUB.replace("}", ", document_model: organisation/documents}")
    (project / "config/methods/towers.yaml").write_text(towers)
    named = {"organisation/name": "towers", "organisation/documents": "towers"}
    assert loose(project, ("import_model", "towers")) == named


def test_language_models_are_fetched_before_the_first_job_whose_node_may_have_no_way_to_the_hub(project, monkeypatch):
    from types import SimpleNamespace

    from zerodr.operations import starting

    plan, fetched = Plan(load_bench(project, {"scale": "paper", "methods": ["bm25-flat"]})), []
    assert planned_writers(plan, [("generate_queries", "genq"), ("finetune", "dpr"), ("finetune", "genq")]) == {
        "BeIR/query-gen-msmarco-t5-base-v1": None
    }
    monkeypatch.setattr(starting, "fetch_model", lambda *words: fetched.append(words))
    for name in ("ask_for_single_run", "forget_published", "advise_profile", "withdraw_reports"):
        monkeypatch.setattr(starting, name, lambda *_: None)
    monkeypatch.setattr(starting, "_warnings", lambda *_: [])
    monkeypatch.setattr(starting, "_lock_models", lambda *_: None)
    job = SimpleNamespace(rule=SimpleNamespace(name="generate_queries"), wildcards={"model": "genq"}, output=[])
    dag, executor = SimpleNamespace(needrun_jobs=lambda: [job]), SimpleNamespace(name="touch")
    workflow = SimpleNamespace(executor_plugin=executor, dag=dag, rerun_triggers=[])
    starting.start_run(workflow, plan, {}, None)
    assert fetched == [("BeIR/query-gen-msmarco-t5-base-v1", None, False)]


def test_a_table_with_such_a_row_is_planned(project):
    assert Plan(load_bench(project, {"scale": "paper", "methods": ["hub"]})).methods == ("hub",)


# ---- the lock --------------------------------------------------------------------------------------------------
def test_a_lock_fills_in_missing_revisions_alone_and_the_option_wins(project):
    locked = {name: ("b" * 40, date(2026, 11, 26)) for name in ("organisation/name", "organisation/gone")}
    (project / LOCK).write_text(render_lock(locked))
    bench = load_bench(project, {"scale": "paper"})
    assert bench.methods["hub"].settings.revision == "b" * 40
    assert bench.methods["hub2"].settings.revision == "a" * 40
    assert loose(project, ("import_model", "hub")) == {}
    bench = load_bench(project, {"revisions": {"organisation/name": "c", "organisation/start": "d"}})
    assert {bench.methods[name].settings.revision for name in ("hub", "hub2")} == {"c"}
    assert bench.methods["own@ep0"].settings.encoder.revision == "d"


@pytest.mark.parametrize(
    "line", ["a/b: nonsense", "a/b: {commit: abc, date: 2026-11-26}", f"a/b: {{commit: {'a' * 40}}}", "a/b:"]
)
def test_a_lock_edited_to_nonsense_is_named(project, line):
    (project / LOCK).write_text(f"{line}\n")
    with pytest.raises(ConfigError, match="config/revisions.yaml: a/b: expected .*remove the line"):
        load_bench(project, {})


def test_a_model_that_no_recipe_names_is_refused(project):
    with pytest.raises(ConfigError, match="no recipe names the model 'organisation/nam': did you mean organisation/n"):
        load_bench(project, {"revisions": {"organisation/nam": "abc"}})


# ---- with a hub ------------------------------------------------------------------------------------------------
def test_models_are_resolved_once_and_locked(hub, project):
    models = {"organisation/name": "hub", "organisation/start": "own"}
    lines = ask(hub, project, "lock_models", models, False)
    commit = hub.repositories["organisation/name"].commits[-1]
    assert lines[0] == f"organisation/name is locked at commit {commit} (config/revisions.yaml)" and len(lines) == 2
    assert {name: entry[0] for name, entry in read_lock(project / LOCK).items()} == dict.fromkeys(models, commit)
    hub.repositories["organisation/name"].commits.append("e" * 40)
    asked = len(hub.requests)
    assert ask(hub, project, "lock_models", models, False) == [] and len(hub.requests) == asked
    assert read_lock(project / LOCK)["organisation/name"][0] == commit


def test_a_hub_that_moved_is_told_and_followed_when_asked(hub, project):
    ask(hub, project, "lock_models", {"organisation/name": "hub"}, False)
    old = read_lock(project / LOCK)["organisation/name"][0]
    assert "main is the same" in ask(hub, project, "compare_lock")[0]
    hub.repositories["organisation/name"].commits[:] = ["e" * 40]
    assert f"main is {'e' * 40} now, which is not followed" in ask(hub, project, "compare_lock")[0]
    assert read_lock(project / LOCK)["organisation/name"][0] == old
    assert "renewed" in ask(hub, project, "compare_lock", ["organisation/name"], True)[0]
    assert read_lock(project / LOCK)["organisation/name"][0] == "e" * 40


@pytest.mark.parametrize(
    "model, message",
    [
        (
            "organisation/closed",
            r"closed \(method m\): asks to accept its licence: accept it at http.*organisation/closed",
        ),
        ("organisation/absent", r"absent \(method m\): is not on the hub, or is private.*HF_TOKEN"),
        ("organisation/pickled", r"pickled weights alone \(pytorch_model.bin\).*zerodr convert FOLDER NEW"),
        ("no name/at all", r"is neither a folder nor a hub name"),
    ],
)
def test_refusals_of_the_hub_are_one_sentence_and_leave_the_lock(hub, project, model, message):
    told = ask(hub, project, "lock_models", {"organisation/name": "hub", model: "m"}, False)
    assert told.startswith("ModelError: ") and "\n" not in told
    assert re.search(message, told), told
    assert not (project / LOCK).exists()


def test_without_a_hub_the_cache_decides_or_a_sentence(hub, project):
    told = ask(hub, project, "lock_models", {"organisation/name": "hub"}, True)
    assert "organisation/name (method hub): has no revision, the hub can't be reached" in told
    hub.down = True
    assert "the hub cache does not hold the model" in ask(
        hub, project, "lock_models", {"organisation/name": "h"}, False
    )


def test_a_hub_that_is_down_is_not_compared_with_and_its_cache_is_named(hub, project):
    """The cache holds an older commit than the lock that a colleague renewed."""
    old = ask(hub, project, "fetch_model", "organisation/name", None, False)[1]
    locked = {"organisation/name": ("e" * 40, date(2026, 11, 26))}
    (project / LOCK).write_text(render_lock(locked))
    hub.down = True
    for renew in (False, True):
        (line,) = ask(hub, project, "compare_lock", [], renew)
        assert line.endswith("not compared: the hub can't be reached") and read_lock(project / LOCK) == locked
    (project / LOCK).unlink()
    (line,) = ask(hub, project, "lock_models", {"organisation/name": "hub"}, False)
    assert line.endswith(f"{old} ({LOCK}): that of the hub cache, as the hub can't be reached")


def test_two_runs_that_resolve_at_once_lose_nothing(hub, project):
    names = ["organisation/name", "organisation/start"]
    runs = [threading.Thread(target=ask, args=(hub, project, "lock_models", {name: "m"}, False)) for name in names]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sorted(read_lock(project / LOCK)) == names


def test_a_hub_that_goes_down_before_the_download_leaves_the_lock(hub, project):
    ask(hub, project, "lock_models", {"organisation/name": "hub"}, False)
    commit = read_lock(project / LOCK)["organisation/name"][0]
    hub.down = True
    told = ask(hub, project, "fetch_model", "organisation/name", commit, False)
    assert "organisation/name: is no folder, is not in the hub cache, and the hub can't be reached" in told
    assert "\n" not in told and read_lock(project / LOCK)["organisation/name"][0] == commit
    hub.down = False
    assert ask(hub, project, "fetch_model", "organisation/name", commit, False)[1] == commit


def test_a_hub_that_goes_down_in_the_middle_of_a_file_is_one_sentence_and_the_next_run_ends_it(hub, project):
    commit = hub.repositories["organisation/name"].commits[-1]
    hub.cut = True
    told = ask(hub, project, "fetch_model", "organisation/name", commit, False)
    assert told.startswith("ModelError: organisation/name: ") and told.count("\n") == 0, told
    hub.cut = hub.down = False
    assert ask(hub, project, "fetch_model", "organisation/name", commit, False)[1] == commit


def test_a_hub_that_gives_no_files_is_not_called_out_of_reach(hub, project):
    hub.repositories["organisation/name"].state = "refused"
    told = ask(hub, project, "fetch_model", "organisation/name", None, False)
    assert re.fullmatch(
        r"ModelError: organisation/name: the hub refuses \(403 .*No access from here\): see http.*", told
    )


def test_a_locked_commit_that_vanished_is_told_and_not_replaced(hub, project):
    told = ask(hub, project, "fetch_model", "organisation/name", "d" * 40, False)
    assert f"no longer has its commit {'d' * 40}" in told and "zerodr pin --renew organisation/name" in told
    assert "\n" not in told
