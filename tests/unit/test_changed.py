"""What a folder that changed keeps of its last answer: the trained model that was chosen, and its known items."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.config_helpers import lab_plan

from zerodr.artifacts.manifest import check_manifest, seal_folder
from zerodr.artifacts.record import artifact_digest, read_record, record_path, write_json
from zerodr.operations.changed import Earlier, announced, concluded, keep, read_choice
from zerodr.plan import Plan, paths

ROOT = Path(__file__).parents[2]
MODEL, ITEMS = paths.model("adapt-query", "notes.proxy", "distil"), paths.collection("notes.proxy")
COPY, COPIED = paths.retained_model("notes", "adapt-query", "distil"), paths.retained_items("notes")


PLANNED: dict[str, Any] = {}  # of the model's record


def make(manifest: str, text: str) -> None:
    """Write a folder artifact with a file in a subfolder, and its record."""
    folder = Path(manifest).parent
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "query").mkdir(parents=True)
    (folder / "query/weights").write_text(text)
    seal_folder(folder)
    facts = PLANNED if manifest == MODEL else {}
    write_json(record_path(manifest), {"artifact": manifest, "outputs": {"model": manifest}, "inputs": []} | facts)


def answer(choice: str, *used: str) -> None:
    """Write what a run has chosen, and the models that its export has read."""
    write_json(Path(paths.adapted_answer("notes")).parent / "answer.json", {"choice": choice})
    entries = [{"path": path, "digest": artifact_digest(path)} for path in used]
    write_json(record_path(paths.adapted_model("notes")), {"inputs": entries})


@pytest.fixture
def plan(tmp_path, monkeypatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/corpus.jsonl").write_text('{"_id": "a", "text": "a text"}\n')
    made = lab_plan(ROOT, byo="notes", held_out=300)
    words = {"model": "adapt-query", "scope": "notes.proxy", "stage": "distil"}
    now = json.loads(made.settings("finetune")(SimpleNamespace(**words)))
    PLANNED.update(rule="finetune", wildcards=words, seed=now["seed"], spec={"params": now["settings"]})
    make(MODEL, "trained")
    make(ITEMS, "held out")
    answer("hybrid+adapt-query", MODEL)
    return made


@pytest.mark.parametrize("kept", [False, True])
def test_a_model_of_other_settings_than_the_recipes_is_not_kept(plan, kept):
    if kept:
        keep(plan, "notes", changed=True)
        answer("hybrid+adapt-query", COPY)
    assert keep(plan, "notes", changed=True)
    path = record_path(COPY if kept else MODEL)
    record = json.loads(path.read_text())
    record["spec"]["params"]["settings"]["training"]["learning_rate"] = 1.0
    write_json(path, record)
    assert keep(plan, "notes", changed=True) == {}


def test_the_trained_model_of_the_choice_stays_until_it_is_trained_anew(plan):
    assert keep(plan, "notes", changed=False) == {}, "nothing changed: the model is where it was made"
    copies = keep(plan, "notes", changed=True)
    assert copies == {MODEL: COPY, ITEMS: COPIED}
    make(ITEMS, "others")  # as the next run does
    for copy, text in ((COPY, "trained"), (COPIED, "held out")):
        assert Path(copy).with_name("query").joinpath("weights").read_text() == text
        assert not check_manifest(Path(copy), digests=True)
        assert read_record(copy)["artifact"] == copy
    answer("hybrid+adapt-query", COPY)
    assert keep(plan, "notes", changed=False) == keep(plan, "notes", changed=True) == copies, "it stays"
    make(MODEL, "trained anew")
    answer("hybrid+adapt-query", MODEL)
    assert keep(plan, "notes", changed=False) == {}
    assert keep(plan, "notes", changed=True) == copies
    assert Path(COPY).with_name("query").joinpath("weights").read_text() == "trained anew"


def test_an_export_that_was_killed_loses_no_model(plan):
    copies = keep(plan, "notes", changed=True)
    record_path(paths.adapted_model("notes")).unlink()
    assert keep(plan, "notes", changed=True) == copies


@pytest.mark.parametrize("choice", ["zero", "hybrid+teacher", "bm25-flat+bm25s", "a-recipe-that-is-gone"])
def test_a_choice_that_trained_nothing_keeps_no_model(plan, choice):
    answer(choice, MODEL)
    assert keep(plan, "notes", changed=True) == {}


def test_another_model_than_that_of_the_answer_is_not_kept(plan):
    make(MODEL, "of another run")
    assert keep(plan, "notes", changed=True) == {}
    shutil.rmtree(Path(MODEL).parent)
    assert keep(plan, "notes", changed=True) == {}


def test_what_stays_is_said_with_what_to_type(plan):
    earlier = Earlier("hybrid+adapt-query", ["notes/a.md", "notes/b.md"])
    first, second = announced(earlier, ["adapt"], {MODEL: COPY})
    assert first.startswith("changed     notes/a.md and 1 more since the last answer")
    assert second == (
        "checks      hybrid+adapt-query, which was chosen; its model stays as it was trained; "
        "not trained again: adapt; --afresh trains anew"
    )
    assert len(announced(earlier, [], {})) == 1


def test_an_answer_of_which_a_loss_of_power_left_nothing_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = Path(paths.adapted_answer("notes")).parent / "answer.json"
    answer.parent.mkdir(parents=True)
    answer.write_text("")
    assert read_choice("notes") == ""


def test_the_texts_that_a_run_embedded_are_those_of_both_collections(plan):
    use = []
    for collection, corpus, reused in (("notes", "a", 4), ("notes.proxy", "a", 1), ("squad", "a", 0), ("notes", "", 0)):
        vectors, source = Path(f"results/embeddings/{len(use)}.npy"), Path(f"{collection}.txt")
        source.write_text("a")
        vectors.parent.mkdir(parents=True, exist_ok=True)
        vectors.write_text("vectors")
        entry = {"name": "corpus", "path": str(source), "digest": artifact_digest(str(source)) if corpus else "earlier"}
        facts = {"rule": "embed_corpus", "wildcards": {"collection": collection, "shard": "0"}, "inputs": [entry]}
        notes = {"texts": 4, "reused": reused}
        write_json(record_path(vectors), {"artifact": str(vectors), "digest": "", "notes": notes} | facts)
        use.append({"name": "vectors", "path": str(vectors), "digest": ""})
    model = paths.adapted_model("notes")
    write_json(
        record_path(model), {"artifact": model, "wildcards": {"collection": "notes"}, "notes": {}, "inputs": use}
    )
    lines = concluded("notes", "zero", {})
    assert lines[1] == "vectors     3 of 8 texts, whole and shortened, embedded; the others had theirs"
