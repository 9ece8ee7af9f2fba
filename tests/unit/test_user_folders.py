"""Users' own folders: what is read, what depends on what, what is refused before the first job."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import corpus_size, read_qrels, split_queries
from zerodr.collections.user_folders import language_of
from zerodr.config.load import load_bench
from zerodr.config.registry import EVERY
from zerodr.config.user_folders import SECTIONS
from zerodr.errors import CollectionError, ConfigError
from zerodr.evaluation.findings import read_findings
from zerodr.operations.folders import FINDINGS, examine, notices
from zerodr.plan import Plan, paths
from zerodr.plan.collections import section_files

ROOT = Path(__file__).parents[2]
RUN = {"model": "bm25-flat", "collection": "notes", "protocol": "standard"}


@pytest.fixture
def notes(tmp_path, monkeypatch) -> Path:
    """A folder with three documents, two queries and a judgement, below the working folder."""
    monkeypatch.chdir(tmp_path)
    return make(tmp_path / "notes")


def make(folder: Path, documents: str = '{"_id": 1, "text": "a pie"}\n{"_id": "n 2", "text": "a car"}\n') -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(documents)
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "pie"}\n{"id": "q2", "text": "car"}\n')
    (folder / "qrels/test.tsv").write_text("q1\t1\t1.0\n")
    return folder


def plan(*folders: Path | str, **config: object) -> Plan:
    words = {"byo": ",".join(map(str, folders)), "collections": "notes"} | config
    return Plan(examine(load_bench(ROOT, words)))


def params(made: Plan, rule: str, **wildcards: str) -> dict[str, Any]:
    return json.loads(made.settings(rule)(SimpleNamespace(**wildcards)))["settings"]


def sections(made: Plan, rule: str, **wildcards: str) -> list[str]:
    files = made.inputs(rule)(SimpleNamespace(**wildcards))
    return [Path(path).parent.name for path in files.get("sections", [])]


def normalize(made: Plan) -> Path:
    for section in ("corpus", "queries", "judgements"):
        rule = f"normalize_{section}"
        output = paths.collection("notes") if section == "corpus" else paths.collection_section("notes", section)
        inputs = made.inputs(rule)(SimpleNamespace(collection="notes")) | {
            "files": section_files(made, "notes", section)
        }
        settings = params(made, rule, collection="notes")
        run_spec(StageSpec(rule, 1, {"collection": "notes"}, inputs, {"section": output}, settings))
    return Path(paths.collection("notes")).parent


def test_three_stages_write_what_every_stage_reads(notes):
    (notes / "queries.jsonl").write_text(
        '{"_id": "q1", "text": "pie"}\n{"id": 2, "text": "car"}\n{"id": 3, "text": " "}'
    )
    folder = normalize(plan(notes))
    assert corpus_size(folder) == 2
    assert split_queries(folder, "test")["id"].tolist() == ["q1"]
    assert split_queries(folder, EVERY)["id"].tolist() == ["q1", "2"]
    assert read_qrels(folder, "test").to_numpy().tolist() == [["q1", "1", 1]]


def test_documents_queries_and_judgements_are_read_by_those_that_need_them(notes):
    made = plan(notes)
    assert sections(made, "index_bm25", index="bm25s-flat", collection="notes") == []
    assert sections(made, "search_bm25", **RUN) == ["queries"]
    assert sections(made, "evaluate_run", **RUN) == ["queries", "judgements"]
    dense = RUN | {"model": "all-minilm-l6-v2", "shard": "00000-of-00001", "scope": "shared"}
    assert sections(made, "embed_corpus", **dense) == []
    assert (
        sections(made, "embed_queries", split=EVERY, **dense) == sections(made, "search_shard", **dense) == ["queries"]
    )
    assert sections(made, "embed_queries", split="test", **dense) == ["queries", "judgements"]
    stages = {"modir-dpr+inductive": "modir1", "dr-contrast+udalm": "ep0", "modir-dpr": "modir1"}
    trained = {m: sections(made, "finetune", model=m, stage=stage, scope="notes") for m, stage in stages.items()}
    queries = ["queries", "judgements"]  # of modir-dpr alone: a new judgement trains the others not again
    assert trained == {"modir-dpr+inductive": [], "dr-contrast+udalm": [], "modir-dpr": queries}
    assert sections(made, "augment_queries", split=EVERY, **dense | {"model": "zero"}) == ["queries"]
    assert sections(made, "read_memories", split=EVERY, **dense | {"model": "moma-mixture"}) == ["queries"]
    assert params(made, "search_bm25", **RUN)["split"] == EVERY
    assert params(made, "evaluate_run", **RUN)["split"] == "test"


def test_only_the_part_with_another_content_changes(notes):
    def settings() -> list[str]:
        made = plan(notes)
        return [made.settings(f"normalize_{section}")(SimpleNamespace(collection="notes")) for section in SECTIONS]

    first = settings()
    for path in notes.rglob("*"):
        os.utime(path)
    (notes / ".DS_Store").write_text("x")
    (notes / ".git").mkdir()
    (notes / "note.md").write_text("x")
    assert settings() == first
    with open(notes / "qrels/test.tsv", "a") as stream:
        stream.write("q2\tn 2\t1\n")
    assert [a == b for a, b in zip(first, settings(), strict=True)] == [True, True, False]
    with open(notes / "queries.jsonl", "a") as stream:
        stream.write('{"_id": "q3", "text": "x"}\n')
    assert [a == b for a, b in zip(first, settings(), strict=True)] == [True, False, False]


def test_a_replaced_file_with_the_same_size_and_time_is_noticed(notes):
    first, stat = plan(notes).bench.folders["notes"].digests, (notes / "corpus.jsonl").stat()
    text = (notes / "corpus.jsonl").read_text().replace("pie", "pea")
    (notes / "corpus.jsonl").write_text(text)
    os.utime(notes / "corpus.jsonl", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert plan(notes).bench.folders["notes"].digests != first


def test_contents_are_read_once(notes, monkeypatch):
    plan(notes)
    monkeypatch.setattr("zerodr.operations.folders.file_digest", None)
    assert plan(notes).bench.folders["notes"].digests
    assert len(list(FINDINGS.iterdir())) == 1


def test_several_folders_and_one_that_is_bad(notes, tmp_path):
    bad = make(tmp_path / "Bad One", '{"_id": "1", "text": "x"}\n{"_id": "1", "text": "y"}\n')
    made = plan(notes, bad)
    assert [row.name for row in made.columns] == ["notes"]
    where = f"{bad}/corpus.jsonl"
    assert made.bench.faults == {"bad-one": f"{where}:2: document id '1' appears twice, first at {where}:1"}
    missing = params(made, "build_row", model="bm25-flat")["missing"]
    assert missing == [{"name": "bad-one", "reason": f"left out: {made.bench.faults['bad-one']}"}]
    assert notices(made.bench)[-1] == f"bad-one is left out: {made.bench.faults['bad-one']}: remove one of the lines"
    with pytest.raises(CollectionError, match="appears twice.*remove one of the lines"):
        section_files(made, "bad-one", "corpus")


@pytest.mark.parametrize("files", [{}, {"qrels/test.tsv": "q1\t9\t1\n"}])
def test_a_table_without_a_column_is_refused_when_planned(notes, files):
    (notes / "qrels/test.tsv").unlink()
    for name, text in files.items():
        (notes / name).write_text(text)
    reason = "notes has no judgements: add qrels/test.tsv, name other"
    if files:  # what to do is the folder's own step
        reason = "1 judged document is missing.*: add them .*: --config byo_drop_missing=true, name other"
    with pytest.raises(ConfigError, match=f"the table: has no column: .*{reason}"):
        plan(notes).inputs("build_row")(SimpleNamespace(model="bm25-flat"))


def test_judgements_of_absent_documents_can_be_dropped(notes):
    with open(notes / "qrels/test.tsv", "a") as stream:
        stream.write("q1\t9\t1\nq9\t1\t1\n")
    assert "1 judged document is missing" in plan(notes).bench.faults["notes"]
    made = plan(notes, byo_drop_missing=True)
    assert not made.bench.faults and len(read_qrels(normalize(made), "test")) == 1


def test_queries_that_are_documents_are_counted_and_can_be_left_out(notes):
    (notes / "queries.jsonl").write_text('{"_id": "1", "text": "a pie"}\n{"_id": "q2", "text": "A car"}\n')
    (notes / "corpus.jsonl").write_text(
        '{"_id": "1", "text": "a pie"}\n{"_id": "2", "text": "a car"}\n{"_id": "3", "text": "a car"}\n'
    )
    (notes / "qrels/test.tsv").write_text("1\t2\t1\nq2\t2\t1\n")
    findings = read_findings(normalize(plan(notes)), "test", exclude_self=False)
    assert findings["n_identical_documents"] == (1, 2) and findings["n_copied_queries"] == (1, 2)
    assert findings["n_equal_documents"] == (2, 3) and findings["n_equal_judged"] == (1, 1)
    wildcards = SimpleNamespace(model="bm25-flat+bm25s", collection="notes", protocol="standard")
    chosen = plan(notes, byo_exclude_self=True, held_out=2)
    ranked = json.loads(chosen.settings("search_bm25")(wildcards))["settings"]
    assert ranked["exclude_self"] and ranked["ties"] == "as_trec_eval"
    assert not chosen.bench.collections["notes.proxy"].exclude_self
    assert not plan(notes).bench.collections["notes"].exclude_self


def test_settings_of_folders_have_no_effect_without_one(root):
    stated = {"byo_language": "de", "byo_exclude_self": True, "byo_drop_missing": False}
    assert notices(load_bench(root, stated)) == ["byo_exclude_self, byo_language: no effect without byo=FOLDER"]
    assert notices(load_bench(root, {})) == []


@pytest.mark.parametrize(
    ("file", "settings", "line"),
    [
        ("corpus.jsonl", {"byo_cut": {"words": 50}}, "byo_cut has no effect: a row of a table is a document"),
        ("a.csv", {"byo_cut": {"words": 50}}, "byo_cut has no effect: a row of a table is a document"),
        ("a.csv", {"byo_columns": {"text": "text"}}, ""),
        ("a.txt", {"byo_columns": {"title": "heading"}}, "columns (--text, --title, --id) have no effect"),
        ("a.txt", {"byo_cut": {"words": 50}}, ""),
    ],
)
def test_settings_without_effect_on_a_folder_are_named(tmp_path, file, settings, line):
    rows = {"corpus.jsonl": '{"_id": "1", "text": "Pumps."}', "a.csv": "id,text\n1,Pumps.", "a.txt": "Pumps."}
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / file).write_text(rows[file] + "\n")
    lines = notices(examine(load_bench(ROOT, {"byo": str(tmp_path / "notes")} | settings)))
    assert any("no effect" in one for one in lines) == bool(line) and any(line in one for one in lines)


def test_a_folder_without_queries_cannot_be_searched(notes):
    for path in (notes / "queries.jsonl", notes / "qrels/test.tsv"):
        path.unlink()
    made = plan(notes)
    assert sections(made, "search_bm25", **RUN) == ["queries"]
    with pytest.raises(CollectionError, match=r"notes: has no queries: add queries.\{jsonl,tsv,csv,parquet\}"):
        section_files(made, "notes", "queries")


def test_no_folder_and_the_same_one_twice(notes):
    assert load_bench(ROOT, {"byo": None}).folders == load_bench(ROOT, {"byo": ""}).folders == {}
    assert list(load_bench(ROOT, {"byo": f"{notes},{notes}"}).folders) == ["notes"]


def test_odd_names(notes, tmp_path, monkeypatch):
    """A linked folder of judgements, splits with dots and blanks, a home folder, a comma in a folder's name."""
    (notes / "qrels").rename(tmp_path / "elsewhere")
    (notes / "qrels").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/v1.5 final.tsv").write_text("q2\tn 2\t2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    made = plan("~/notes")
    assert made.collection("notes").splits == {"test": None, "v1.5 final": None}
    assert len(read_qrels(normalize(made), "v1.5 final")) == 1
    notes.rename(tmp_path / "a, b")
    with pytest.raises(ConfigError, match="the name 'a,-b' can't be part of a path"):
        load_bench(ROOT, {"byo": "~/a, b"})
    make(tmp_path / "other")
    (tmp_path / "other/qrels/every.tsv").write_text("")
    with pytest.raises(ConfigError, match="a split can't be named 'every'"):
        load_bench(ROOT, {"byo": str(tmp_path / "other")})
    with pytest.raises(ConfigError, match="byo=2024: does not exist"):
        load_bench(ROOT, {"byo": 2024})


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Sepsis is a response", "en"),
        ("自然语言处理 with BERT and GPT", "zh"),
        ("自然言語処理はおもしろい", "ja"),
        ("자연어 처리 NLP", "ko"),
        ("Обработка языка", "ru"),
        ("123 ...", "en"),
        ("the character 中 in an English text", "en"),
        ("Українська мова є однією з мов", "uk"),
        ("Дзеці ішлі ў школу", "und"),
        ("این یک متن فارسی است که چند کلمه دارد", "fa"),
        ("هذه لغة عربية في كتاب", "ar"),
        ("یہ اردو زبان میں لکھا ہوا ہے", "und"),
        ("ភាសាខ្មែរ", "und"),
        ("Η ελληνική γλώσσα", "und"),
        ("שפה עברית", "und"),
        ("ภาษาไทย", "th"),
        (
            "Die Bücher stehen in dem Regal und das Haus ist mit dem Garten verbunden, der nicht weit von der Straße"
            " auf dem Hügel liegt",
            "de",
        ),
        (
            "Le jardin de la maison est dans une rue qui mène au village et les enfants y vont pour jouer avec des"
            " amis, mais pas en hiver",
            "fr",
        ),
        (
            "Huset er bygget af sten og ligger ved en vej, som blev anlagt efter krigen, og det har også en have, der"
            " er meget stor",
            "da",
        ),
        (
            "Huset er bygget av stein og ligger ved en vei, som ble anlagt etter krigen, og det har også en hage som er"
            " mye større",
            "no",
        ),
        (
            "Dům je postaven z kamene a leží u cesty, která byla založena po válce, a má také zahradu, jež je velmi"
            " velká a krásná",
            "und",
        ),
        (
            "The house is built of stone and lies near a road that was laid out after the war, and it has a garden"
            " which is very large",
            "en",
        ),
    ],
)
def test_languages_by_script(text, language):
    assert language_of([text]) == language


def test_a_language_is_guessed_or_given(notes):
    (notes / "corpus.jsonl").write_text('{"_id": 1, "text": "自然语言"}\n')
    made = plan(notes)
    assert params(made, "index_bm25", index="bm25s-flat", collection="notes")["language"] == "zh"
    assert "notes: language zh, guessed from its texts" in notices(made.bench)[0]
    assert plan(notes, byo_language="ja").collection("notes").language == "ja"
    with pytest.raises(ConfigError, match="notes: language 'xx': is not known"):
        plan(notes, byo_language="xx")


@pytest.mark.parametrize("grade", ["5000000000", "1700000000", "1001", "-1700000000"])
def test_counts_and_times_are_no_grades(notes, grade):
    (notes / "qrels/test.tsv").write_text(f"q1\t1\t1\nq2\tn 2\t{grade}\n")
    with pytest.raises(CollectionError, match=rf"qrels/test.tsv:2: the grade {grade} is no degree of relevance"):
        normalize(plan(notes))


@pytest.mark.parametrize(("grade", "read"), [("1000", 1000), ("-1000", -1000), ("007", 7), ("2.0", 2), ("+1", 1)])
def test_grades_up_to_a_thousand_stay(notes, grade, read):
    (notes / "qrels/test.tsv").write_text(f"q1\t1\t{grade}\nq2\t1\t1\n")
    assert read_qrels(normalize(plan(notes)), "test")["grade"].tolist() == [read, 1]


@pytest.mark.parametrize("key", ["mail\\n0", "a\\tb", "a\\rb"])
def test_an_id_that_breaks_a_line_is_refused_with_its_line(notes, key):
    (notes / "corpus.jsonl").write_text(f'{{"_id": "1", "text": "a pie"}}\n{{"_id": "{key}", "text": "a car"}}\n')
    with pytest.raises(CollectionError, match="corpus.jsonl:2: id .* holds a tab, the end of a line or another"):
        normalize(plan(notes))


def test_what_the_user_may_not_read_is_named(notes, monkeypatch):
    for name in ("open.txt", "locked.txt", "shut/c.txt"):
        (notes / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (notes / "texts" / name).write_text("Pumps.")
    listed, allowed = os.scandir, os.access

    def scandir(path: str) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name not in locked and allowed(path, mode))
    locked = {"locked.txt"}
    folder = plan(notes / "texts", collections="texts").bench.folders["texts"]
    assert folder.unread == "not read: locked.txt and shut" and len(folder.files["corpus"]) == 1
    for name in ("notes", "corpus.jsonl", "test.tsv"):
        locked = {name}
        with pytest.raises(ConfigError, match=f"{name}: can't be read: you have no permission"):
            plan(notes)
