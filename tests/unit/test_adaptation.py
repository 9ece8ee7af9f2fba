"""Decisions between candidates: intervals over kinds, verdicts, pairs to judge, the stage and its page, the export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoder_helpers import make_collection

from zerodr.artifacts.manifest import build_manifest
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.artifacts.trec import total_order, write_run
from zerodr.config.params import Candidate
from zerodr.evaluation.adaptation import ALL, Answer, Comparison, QueryKind, agreement, decide, sentences
from zerodr.evaluation.advice import advice
from zerodr.evaluation.judge_adaptation import gradable, pairs_to_judge
from zerodr.pages.adapted import count_pairs

NAMES = {"words": False, "start": False, "new": True}
DRAW = np.random.default_rng(5)


def kind(name: str, gain: float, size: int = 200, proxy: bool = True, decides: bool = True) -> QueryKind:
    """Measures in which `new` is `gain` better than `start`, and `words` worse than both."""
    start = DRAW.uniform(0.3, 0.7, size)
    values = {"words": start - 0.2, "start": start, "new": start + gain + DRAW.normal(0, 0.05, size)}
    return QueryKind(name, proxy, pd.DataFrame(values), decides)


def answered(*kinds: QueryKind):
    comparison = Comparison(kinds, 13)
    return decide(comparison, ["new"], ["start", "new"]), comparison


@pytest.mark.parametrize(
    ("gain", "verdict", "choice"), [(0.05, "adapt", "new"), (-0.05, "keep", "start"), (0.0005, "undecided", "start")]
)
def test_verdicts(gain, verdict, choice):
    answer, _ = answered(kind("titles", gain), kind("sentences", gain))
    assert (answer.verdict, answer.choice) == (verdict, choice)
    assert answer.compared is not None and (answer.compared.left, answer.compared.right) == ("new", "start")
    assert answer.compared.low <= answer.compared.value <= answer.compared.high


def test_kinds_count_by_what_their_queries_can_tell():
    big, small = kind("titles", 0.1, 960), kind("sentences", 0.3, 40)
    _, comparison = answered(big, small)
    table = comparison.table().set_index(["kind", "method"])["value"]
    shares = {"titles": 960 / 1000, "sentences": 40 / 80}
    expected = sum(share * table[name, "new"] for name, share in shares.items()) / sum(shares.values())
    assert table[ALL, "new"] == pytest.approx(expected)


def test_one_graded_query_moves_the_mean_of_600_known_items_little():
    graded = QueryKind("judged", False, pd.DataFrame({"words": [0.0], "start": [1.0], "new": [0.0]}))
    _, comparison = answered(kind("titles", 0.05, 300), kind("sentences", 0.05, 300), graded)
    table = comparison.table().set_index(["kind", "method"])["value"]
    assert table[ALL, "new"] - table[ALL, "start"] == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_few_queries_that_agree_decide_nothing(count):
    values = pd.DataFrame({"words": [0.1] * count, "start": [0.4] * count, "new": [0.5] * count})
    answer, _ = answered(QueryKind("test", False, values))
    assert (answer.verdict, answer.choice, answer.needed) == ("undecided", "start", 7)
    assert (answer.compared.low, answer.compared.high) == (-1.0, 1.0)
    words = sentences(answer, [QueryKind("test", False, values)], {name: name for name in NAMES})[0]
    assert f"on {count} judged quer{'y' if count == 1 else 'ies'} of test; fewer than 7 queries decide nothing" in words


@pytest.mark.parametrize("count", [2, 3, 5, 8, 20, 60])
def test_equal_candidates_are_told_apart_in_at_most_a_twentieth_of_trials(count):
    wrong = 0
    for trial in range(200):
        values = np.random.default_rng([count, trial]).uniform(0, 1, (count, 2))
        comparison = Comparison([QueryKind("test", False, pd.DataFrame(values, columns=["start", "new"]))], 13)
        wrong += decide(comparison, ["new"], ["start", "new"]).verdict != "undecided"
    assert wrong <= 17  # 10 expected; P(more than 17) is .01


def test_enough_queries_that_agree_decide():
    draw = np.random.default_rng(1).uniform(0.05, 0.15, 60)
    values = pd.DataFrame({"words": 0.1, "start": 0.4, "new": 0.4 + draw})
    answer, comparison = answered(QueryKind("test", False, values))
    assert answer.verdict == "adapt" and 0.01 < answer.compared.low < draw.mean() < answer.compared.high < 0.2


def test_intervals_of_means_hold_the_truth():
    """Coverage over 300 samples of 10 and of 60 queries, drawn symmetrically around .5."""
    for count in (10, 60):
        draws = [np.random.default_rng([count, n]).uniform(0, 1, count) for n in range(300)]
        tables = [
            Comparison([QueryKind("test", False, pd.DataFrame({"a": row, "b": row}))], 13).table() for row in draws
        ]
        held = sum(bool(one["low"][0] <= 0.5 <= one["high"][0]) for one in tables)
        assert 0.91 <= held / 300 <= 0.99


def test_kinds_that_contradict_decide_nothing():
    answer, _ = answered(kind("titles", 0.2), kind("sentences", -0.1))
    assert answer.compared is not None and answer.compared.sign == 1
    assert answer.verdict == "undecided" and answer.compared.opposed == ["sentences"]
    words = sentences(answer, [kind("titles", 0)], dict.fromkeys(NAMES, "x"))[0]
    assert words.startswith("Undecided") and "sentences say the opposite" in words


def test_proxies_next_to_judgements_do_not_decide():
    answer, comparison = answered(kind("test", -0.1, proxy=False), kind("titles", 0.9, decides=False))
    assert answer.verdict == "keep" and not comparison.table().set_index("kind").loc[ALL, "proxy"].any()


def test_orders_of_candidates_are_compared():
    _, one = answered(kind("test", 0.1, proxy=False))
    _, two = answered(kind("titles", -0.1))
    assert agreement(one, one) == pytest.approx(1) and agreement(one, two) == pytest.approx(1 / 3)
    level = QueryKind("titles", True, pd.DataFrame(0.5, index=range(9), columns=list(NAMES)))
    assert agreement(one, answered(level)[1]) is None


def test_every_answer_about_made_queries_is_called_a_proxy():
    kinds = [kind("titles", 0.1)]
    answer, _ = answered(*kinds)
    assert "a proxy: nobody judged them" in sentences(answer, kinds, {name: name for name in NAMES})[0]
    few = [*kinds, kind("test", 0.1, proxy=False, decides=False)]
    assert "are too few to decide)" in sentences(answer, few, dict.fromkeys(NAMES, "x"))[0]
    judged = [kind("test", 0.1, proxy=False)]
    assert "proxy" not in sentences(answered(*judged)[0], judged, {name: name for name in NAMES})[0]


# ---- pairs to judge --------------------------------------------------------------------------------------------
def run_of(**ranked: str) -> pd.DataFrame:
    rows = [(q, d, 100.0 - n) for q, documents in ranked.items() for n, d in enumerate(documents.split())]
    return total_order(pd.DataFrame(rows, columns=["query", "document", "score"]))


def test_every_candidate_gives_pairs_to_judge():
    runs = {"words": run_of(q1="w a"), "start": run_of(q1="a s"), "new": run_of(q1="a n"), "other": run_of(q1="a n")}
    pairs = pairs_to_judge(runs, [])
    assert {"w", "s", "n"} <= set(pairs["document"])
    assert pairs.set_index("document")["ranks"]["w"] == "words 1, start below 10, new below 10, other below 10"


def test_level_candidates_give_no_pairs():
    assert pairs_to_judge({"left": run_of(q1="a b"), "right": run_of(q1="a b")}, []).empty


def test_pairs_on_which_the_finalists_disagree_most_come_first():
    left, right = run_of(q1="a b c", q2="a b", q3="x y"), run_of(q1="a c b", q2="d e", q3="x y")
    pairs = pairs_to_judge({"left": left, "right": right}, [])
    assert list(zip(pairs["query"], pairs["document"], strict=True)) == [
        ("q2", "a"),
        ("q2", "d"),
        ("q1", "b"),
        ("q1", "c"),
    ]
    assert pairs["ranks"][0] == "left 1, right below 10"
    known = pd.DataFrame({"query": ["q2"], "document": ["a"]})
    assert pairs_to_judge({"left": left, "right": right}, [known])["document"].tolist()[:2] == ["d", "b"]


# ---- stages ----------------------------------------------------------------------------------------------------
DOCUMENTS = [(f"d{n}", f"Title {n}", f"text number {n} & <more>") for n in range(12)]


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A comparison of three methods on known items: paths of its inputs, and its params."""
    monkeypatch.chdir(tmp_path)
    items = [(f"{'titles' if n % 2 else 'sentences'}-d{n}", f"query {n}") for n in range(12)]
    manifest = make_collection(Path("results/collections/notes.proxy"), DOCUMENTS, items)
    lines = [f"{key}\t{key.partition('-')[2]}\t1\n" for key, _ in items]
    (manifest.parent / "qrels.known-items.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    whole = [(key, title, f"Before it. query {key[1:]} {text}") for key, title, text in DOCUMENTS]
    files: dict[str, list[str]] = {"per_query": [], "runs": [], "collections": [str(manifest)]}
    files["whole"] = [str(make_collection(Path("results/collections/notes"), whole))]
    for name, place in {"words": 5, "start": 2, "new": 2}.items():
        ranked = {}
        for number, (key, _) in enumerate(items):
            others = [row[0] for row in DOCUMENTS if row[0] != f"d{number}"]
            rank = 0 if name == "new" and number == 3 else place
            ranked[key] = " ".join([*others[:rank], f"d{number}", *others[rank:]])
        run = run_of(**ranked)
        files["runs"].append(f"results/{name}.trec.gz")
        write_run(Path(files["runs"][-1]), run, name)
        values = [1 / np.log2(2 + (0 if name == "new" and n == 3 else place)) for n in range(12)]
        named = {"model": [name] * 12, "collection": ["notes.proxy"] * 12, "query": [key for key, _ in items]}
        frame = pa.table(named | {"ndcg_cut_10": values})
        files["per_query"].append(f"results/{name}.parquet")
        pq.write_table(frame, files["per_query"][-1])
    kinds = {"words": "lexical", "start": "encoder", "new": "trained"}
    methods = [
        {"name": name, "label": name.title(), "kind": kinds[name], "adapted": new, "description": "", "remark": ""}
        for name, new in NAMES.items()
    ]
    collections = [{"name": "notes.proxy", "split": "known-items", "proxy": True}]
    return files, {"collection": "notes", "methods": methods, "collections": collections}


def answer_of(files: dict, params: dict) -> Path:
    outputs = {"answer": "results/adapted/notes/answer/manifest.json"}
    run_spec(StageSpec("judge_adaptation", 1, {}, files, outputs, params, 13))
    return Path(outputs["answer"]).parent


def test_the_stage_decides_and_asks(judged):
    folder = answer_of(*judged)
    answer = json.loads((folder / "answer.json").read_text())
    assert (
        answer["verdict"] == "undecided"
        and answer["choice"] == "start"
        and answer["kinds"] == {"sentences": 6, "titles": 6}
    )
    asked = (folder / "to_judge.tsv").read_text().splitlines()
    assert asked[0].split("\t")[0] == "grade" and asked[1].startswith("\tquery:titles-d3\t")
    cells = [line.split("\t") for line in asked]
    said = 'more about: "Before it. query 2 text number 2 & <more>" (said in Title 2, d2)'
    assert {("query:titles-d3", "query 3"), ("query:sentences-d2", said)} <= {(row[1], row[3]) for row in cells}
    assert {row[2].removeprefix("document:"): row[4] for row in cells[1:]}.items() <= {
        key: f"Title {key[1:]}. Before it. query {key[1:]} text number {key[1:]} & <more>" for key, *_ in DOCUMENTS
    }.items()
    examples = json.loads((folder / "examples.json").read_text())
    assert all("Before it." in one["document"] for one in examples["queries"]), "unshortened"
    assert (examples["left"], examples["right"]) == ("start", "words"), "what to use against what it replaces"
    assert {(one["left"]["rank"], one["right"]["rank"]) for one in examples["queries"]} == {(3, 6)}
    assert answer["first"] == {"words": 0, "start": 0, "new": pytest.approx(1 / 12)}
    assert answer["advice"] == (
        "Use Start: of 100 searches, 0 have the right document first, as many as with Words alone."
    )


def test_titles_are_asked_first_where_there_are_enough():
    runs = {"a": run_of(**{f"titles-{n}": "x y" for n in range(30)}, **{"sentences-1": "x y"})}
    assert set(gradable(runs, True)["a"]["query"]) == {f"titles-{n}" for n in range(30)}
    assert gradable(runs, False) is runs


def test_too_few_queries_are_no_count_of_searches(judged):
    for path in judged[0]["per_query"]:
        pq.write_table(pq.read_table(path).slice(0, 5), path)
    answer = json.loads((answer_of(*judged) / "answer.json").read_text())
    assert (answer["first"], answer["advice"], answer["needed"]) == ({}, "Use Start.", 7)


@pytest.mark.parametrize(
    ("choice", "shares", "words"),
    [
        ("both", (0.71, 0.64), "7 more have the right document first than with MiniLM alone (71 against 64)"),
        ("both", (0.65, 0.64), "1 more has the right document first than with MiniLM alone (65 against 64)"),
        ("both", (0.62, 0.64), "2 fewer have the right document first than with MiniLM alone (62 against 64)"),
        ("start", (0.7, 0.6), "28 more have the right document first than with BM25 alone (60 against 32)"),
    ],
)
def test_the_advice_counts_searches(choice, shares, words):
    labels = {"words": ("BM25 (flat, bm25s)", "lexical"), "start": ("MiniLM", "encoder")}
    labels["both"] = ("BM25 (bm25s) + MiniLM (z-scores)", "fusion")
    facts = {"adapted": False, "description": "", "remark": ""}
    methods = [Candidate(name=name, label=label, kind=kind, **facts) for name, (label, kind) in labels.items()]
    first = {"words": 0.32, "start": shares[1], "both": shares[0]}
    said = advice(Answer("keep", choice), methods, first)
    assert said == f"Use {'BM25 + MiniLM' if choice == 'both' else 'MiniLM'}: of 100 searches, {words}."


def test_grades_of_a_person_count(judged, tmp_path):
    files, params = judged
    before = pd.read_csv(answer_of(files, params) / "comparison.tsv", sep="\t").set_index(["kind", "method"])["value"]
    (tmp_path / "to_judge.tsv").write_text("grade\tquery-id\tcorpus-id\n1\ttitles-d3\td0\n")
    after = answer_of(files | {"judged": str(tmp_path / "to_judge.tsv")}, params)
    values = pd.read_csv(after / "comparison.tsv", sep="\t").set_index(["kind", "method"])["value"]
    assert (
        values["titles", "start"] > before["titles", "start"]
        and values["sentences", "start"] == before["sentences", "start"]
    )


def test_grades_of_queries_without_judgements_join_those_of_a_folder(judged, tmp_path):
    files, params = judged
    home = Path(files["collections"][0]).parent
    kept = [line for line in (home / "qrels.known-items.tsv").read_text().splitlines() if "-d1\t" not in line]
    (home / "qrels.known-items.tsv").write_text("\n".join(kept) + "\n")
    (home / "manifest.json").write_text(json.dumps(build_manifest(home)))
    params = params | {"collections": [params["collections"][0] | {"proxy": False}]}
    (tmp_path / "to_judge.tsv").write_text("grade\tquery-id\tcorpus-id\n1\ttitles-d1\td0\n")
    folder = answer_of(files | {"judged": str(tmp_path / "to_judge.tsv")}, params)
    assert json.loads((folder / "answer.json").read_text())["kinds"] == {"known-items": 12}


def test_the_page_escapes_texts_and_says_proxy(judged):
    files, params = judged
    home = answer_of(files, params)
    model = Path("results/adapted/notes/model")
    model.mkdir()
    (model / "manifest.json").write_text('{"files": {}}')
    inputs = {"answer": str(home / "manifest.json"), "model": str(model / "manifest.json")}
    settings = {"collection": "notes", "label": "My <notes>", "command": "zerodr adapt path/notes"}
    page = Path("results/adapted/notes/index.html")
    shown = settings | {"methods": params["methods"], "hints": ["Beware <of> this."]}
    run_spec(StageSpec("build_adapted_page", 1, {}, inputs, {"page": str(page)}, shown))
    text = page.read_text()
    assert "My &lt;notes&gt;" in text and "<notes>" not in text and "&amp; &lt;more&gt;" in text
    assert "titles (proxy)" in text and "to_judge.tsv" in text and "zerodr adapt path/notes" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
    assert "judge_adaptation" in text and "not measured" in text
    for words in ("Use Start: of 100", "Beware &lt;of&gt;", "from zerodr import Retriever", "right document is"):
        assert words in text
    rows = (home / "to_judge.tsv").read_text().splitlines()
    assert f"for its\n{len(rows) - 1} new pairs, or some of them" in text and len(rows) - 1 < 50
    Path("none.tsv").write_text(rows[0] + "\n")
    assert (count_pairs(Path("none.tsv")), count_pairs(Path("absent.tsv"))) == ("", "")
