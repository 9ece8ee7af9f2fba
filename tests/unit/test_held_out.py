"""Known items: what leaves a document, what stays, and that no model's texts hold it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from encoder_helpers import make_collection
from tests.unit.config_helpers import inputs, lab_plan, params

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import read_qrels, split_queries
from zerodr.config.load import load_bench
from zerodr.errors import CollectionError, ConfigError
from zerodr.mining.held_out import without
from zerodr.mining.questions import asked_about
from zerodr.operations.folders import examine
from zerodr.plan import Plan, paths
from zerodr.plan.patterns import Patterns

ROOT = Path(__file__).parents[2]
FILLER = " ".join(f"word{n}" for n in range(25))
NUMBERS = "zero one two three four five six seven eight nine ten eleven".split()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def documents(count: int = 12) -> list[tuple[str, str, str]]:
    texts = []
    for n in range(count):
        word = NUMBERS[n % 12]
        long = f"A long sentence is about {word} things and {n} more. All texts repeat these same words."
        texts.append((f"d{n}", f"The {word} story", f"The {word} story. {long} {FILLER}."))
    return texts


def hold_out(
    folder: Path, rows: list[tuple[str, str, str]], seed: int = 13, earlier: Path | None = None, **changed
) -> Path:
    manifest = make_collection(folder / f"collection{len(list(folder.iterdir()))}", rows)
    outputs = {"collection": str(folder / f"proxy-{manifest.parent.name}-{seed}/manifest.json")}
    params = {"name": "notes.proxy", "split": "known-items", "count": 3, "share": 0.5} | changed
    read = {"collection": str(manifest)} | ({"earlier": str(earlier / "manifest.json")} if earlier else {})
    run_spec(StageSpec("hold_out_items", 1, {}, read, outputs, params, seed))
    return Path(outputs["collection"]).parent


def test_queries_are_what_their_document_no_longer_holds(tmp_path):
    folder = hold_out(tmp_path, documents())
    queries, judged = split_queries(folder, "known-items"), read_qrels(folder, "known-items")
    corpus = pq.read_table(folder / "corpus.parquet").to_pandas().set_index("id")
    assert len(corpus) == 12 and json.loads((folder / "audit.json").read_text())["held_out"] == {
        "sentences": 3,
        "titles": 3,
    }
    for query, text, document in zip(queries["id"], queries["text"], judged["document"], strict=True):
        kind, _, key = query.partition("-")
        left = corpus.loc[key]
        assert key == document and text.lower() not in f"{left['title']} {left['text']}".lower()
        assert (left["title"] == "") == (kind == "titles")
        assert "same words" not in text, "a sentence of several documents is no known item"
    assert judged["document"].is_unique, "a document loses one thing"


def test_the_choice_does_not_depend_on_the_order_of_documents(tmp_path):
    rows = documents()
    one, two = hold_out(tmp_path, rows), hold_out(tmp_path, rows[::-1])
    assert set(split_queries(one, "known-items")["text"]) == set(split_queries(two, "known-items")["text"])
    assert set(split_queries(one, "known-items")["id"]) != set(
        split_queries(hold_out(tmp_path, rows, seed=14), "known-items")["id"]
    )


def known_items(folder: Path) -> dict[str, tuple[str, str]]:
    """Id and text of the query of each document."""
    queries = split_queries(folder, "known-items")
    return {key.partition("-")[2]: (key, text) for key, text in zip(queries["id"], queries["text"], strict=True)}


def test_what_a_kept_model_has_read_is_no_query(tmp_path):
    """A document less moves all others by one place, so that titles and sentences change places."""
    rows = [(key, f"{title} of {key}", text) for key, title, text in documents(24)]
    before = hold_out(tmp_path, rows, count=6)
    gone = next(iter(known_items(before)))
    new = [
        (f"new{n}", f"The new {n} story", f"A new long sentence has the number {n} here. {FILLER}.") for n in range(9)
    ]
    changed = [(key, title, text.replace("long", "lengthy")) for key, title, text in rows[:2]]
    copied = [("copy", *rows[5][1:])]
    documents_now = [*changed, *(row for row in rows[2:] if row[0] not in (gone, rows[5][0])), *copied, *new]
    anew, kept = (hold_out(tmp_path, documents_now, count=6, earlier=one) for one in (None, before))
    old = {row[0] for row in rows}

    def moved(folder: Path) -> set[str]:
        """Documents of the first time with another query."""
        first = known_items(before)
        return {key for key, item in known_items(folder).items() if key in old and item != first.get(key)}

    assert moved(anew) and not moved(kept)
    assert "copy" not in known_items(kept), "its text was read under another id"
    assert any(key.startswith("new") for key in known_items(kept)) and len(known_items(kept)) >= 6


def test_what_a_kept_model_has_read_is_no_query_where_every_document_has_moved(tmp_path):
    rows = [(key, f"{title} of x{key}x", text) for key, title, text in documents(24)]
    before = hold_out(tmp_path, rows, count=6)
    corpus = pq.read_table(before / "corpus.parquet").to_pandas()
    read = " ".join(f"{title} {text}" for title, text in zip(corpus["title"], corpus["text"], strict=True)).lower()
    new = [(f"n{n}", f"New {n} story", f"A new long sentence has the number {n} here. {FILLER}.") for n in range(9)]
    kept = hold_out(tmp_path, [*((f"moved/{key}", *rest) for key, *rest in rows), *new], count=20, earlier=before)
    asked = {text.lower() for key, (_, text) in known_items(kept).items() if key.startswith("moved/")}
    assert not [text for text in asked if text in read]


def test_lower_case_texts_with_spaced_full_stops_have_sentences(tmp_path):
    rows = [
        (f"d{n}", "", f"the flow of {w} was measured in air . {FILLER} . it was {w} here and there again .")
        for n, w in enumerate(NUMBERS)
    ]
    queries = split_queries(hold_out(tmp_path, rows), "known-items")
    assert len(queries) == 3 and max(len(text.split()) for text in queries["text"]) < 12


def test_copies_of_any_case_and_spacing_go():
    assert without("A  Wing in air", "A wing\nin air . Then a WING in air, again") == ". Then  , again"
    assert without("Do not run: it slips.", "Do not run; it slips! Outrun it") == "! Outrun it"
    assert without("日本", "今日本語と日本。") == "今 語と 。"


def test_texts_that_can_lose_nothing_are_refused_with_a_next_step(tmp_path):
    with pytest.raises(CollectionError, match="could be held out.*add judgements"):
        hold_out(tmp_path, [("a", "", "too short"), ("b", "", "too short")])


class Asker:
    """Asks for the number of a document."""

    def write(self, passages, seed, *sampling):
        return [f"which text is about {passage.split()[0]} things" for passage in passages]


def test_questions_are_about_documents_that_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("zerodr.encoders.inference.writer.load_writer", lambda *how: Asker())
    folder = hold_out(tmp_path, documents(), questions=4, writer={"model": "folder", "batch_passages": 2})
    queries, judged = split_queries(folder, "known-items"), read_qrels(folder, "known-items")
    kinds = queries["id"].str.partition("-")[0]
    assert kinds.value_counts().to_dict() == {"questions": 4, "titles": 3, "sentences": 3}
    assert judged["document"].is_unique and json.loads((folder / "audit.json").read_text())["queries"] == 10
    asked = {key.partition("-")[2] for key in queries["id"] if key.startswith("questions")}
    assert asked_about(folder) == asked and len(asked) == 4, "methods that learn from questions ask about others"


# ---- the plan --------------------------------------------------------------------------------------------------
@pytest.fixture
def notes(tmp_path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"_id": "a", "text": "a text"}\n')
    return folder


def plan(folder: Path, **changed) -> Plan:
    return lab_plan(ROOT, **({"byo": str(folder), "candidates": CANDIDATES} | changed))


CANDIDATES = ["bm25-flat+bm25s", "all-minilm-l6-v2", "adapt-query", "hybrid+adapt-query"]


def test_models_of_a_folder_learn_from_the_documents_without_known_items(notes):
    made = plan(notes, held_out=300)
    assert made.chains.ranker("adapt-query", "notes").scope == "notes.proxy"
    assert made.chains.ranker("adapt-query", "notes.proxy").scope == "notes.proxy"
    words = {"model": "adapt-query", "scope": "notes.proxy", "stage": "distil"}
    assert inputs(made, "generate_queries", **words)["collection"] == paths.collection("notes.proxy")
    assert "notes" not in made.chains.targets and "notes.proxy" in made.chains.targets
    assert inputs(made, "hold_out_items", collection="notes.proxy") == {"collection": paths.collection("notes")}


def test_questions_that_teach_are_apart_from_those_that_judge(notes):
    words = {"model": "genq", "scope": "notes.proxy", "stage": "questions"}
    made = {
        count: plan(notes, held_out=300, held_out_questions=count, candidates=[*CANDIDATES, "genq"]) for count in (0, 9)
    }
    settings = {n: json.loads(one.settings("generate_queries")(SimpleNamespace(**words))) for n, one in made.items()}
    assert "apart" not in settings[0]["settings"] and settings[9]["settings"]["apart"]


def test_copies_take_the_place_of_models_and_known_items(notes):
    model, items = paths.model("adapt-query", "notes.proxy", "distil"), paths.collection("notes.proxy")
    made = plan(notes, held_out=300, retained={model: "copy/manifest.json", items: "items/manifest.json"})
    words = {"model": "adapt-query@distil", "scope": "notes.proxy", "collection": "notes", "split": "every"}
    assert inputs(made, "embed_queries", **words)["model"] == "copy/manifest.json"
    assert "copy/manifest.json" in inputs(made, "export_adapted", collection="notes")["models"]
    assert inputs(made, "hold_out_items", collection="notes.proxy")["earlier"] == "items/manifest.json"
    warned = [
        any("--afresh" in hint for hint in params(one, "build_adapted_page", collection="notes")["settings"]["hints"])
        for one in (made, plan(notes, held_out=300))
    ]
    assert warned == [True, False]


def test_without_known_items_models_are_made_for_the_folder(notes):
    made = plan(notes)
    assert made.chains.ranker("adapt-query", "notes").scope == "notes" and Patterns(made).proxies() == "(?!)"
    with pytest.raises(ConfigError, match="notes: has no judgements.*held_out=300"):
        inputs(made, "judge_adaptation", collection="notes")


def test_judgements_and_known_items_are_compared_next_to_each_other(notes):
    (notes / "qrels").mkdir()
    (notes / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    rows = params(plan(notes, held_out=300), "judge_adaptation", collection="notes")["settings"]["collections"]
    assert rows == [
        {"name": "notes", "proxy": False, "split": "test"},
        {"name": "notes.proxy", "proxy": True, "split": "known-items"},
    ]


def test_queries_without_judgements_are_ranked_for_a_person_to_judge(notes):
    (notes / "queries.jsonl").write_text('{"_id": "q", "text": "a question"}\n')
    files = inputs(plan(notes, held_out=300), "judge_adaptation", collection="notes")
    assert files["asked_runs"] == [paths.run(name, "notes", "standard") for name in CANDIDATES]


def test_what_learned_from_documents_is_known(notes):
    methods = params(plan(notes, held_out=300), "judge_adaptation", collection="notes")["settings"]["methods"]
    assert [method["adapted"] for method in methods] == [False, False, True, True]
    exported = params(plan(notes, held_out=300), "export_adapted", collection="notes")["settings"]
    assert exported["encoders"] == ["all-minilm-l6-v2", "adapt-query"]
    fused = exported["methods"][3]
    assert fused["encoder"] == "adapt-query" and list(exported["indexes"]) == ["bm25-flat+bm25s"]
    assert {name: way["kind"] for name, way in fused["ways"].items()} == {
        "hybrid+adapt-query": "fusion",
        "bm25-flat+bm25s": "lexical",
        "adapt-query": "dense",
    }
    assert exported["methods"][2]["scope"] == "notes.proxy" and exported["methods"][1]["scope"] == "shared"


def test_a_folder_may_have_another_name_and_its_proxy_its_language(notes):
    (notes / "corpus.jsonl").write_text(
        json.dumps({"_id": "a", "text": "这是一个文档。" * 20}, ensure_ascii=False) + "\n"
    )
    bench = examine(load_bench(ROOT, {"byo": str(notes), "byo_name": "wiki", "held_out": 5}))
    assert {name: bench.collections[name].language for name in ("wiki", "wiki.proxy")} == {
        "wiki": "zh",
        "wiki.proxy": "zh",
    }
    with pytest.raises(ConfigError, match="byo_name=wiki: names one folder, byo has 0"):
        load_bench(ROOT, {"byo_name": "wiki"})
