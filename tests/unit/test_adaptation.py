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
from zerodr.errors import CollectionError
from zerodr.evaluation.adaptation import ALL, Comparison, QueryKind, agreement, decide, sentences
from zerodr.evaluation.judge_adaptation import pairs_to_judge, read_grades

NAMES = {"words": False, "start": False, "new": True}
DRAW = np.random.default_rng(5)


def kind(name: str, gain: float, size: int = 200, proxy: bool = True, decides: bool = True) -> QueryKind:
    """Measures in which `new` is `gain` better than `start`, and `words` worse than both."""
    start = DRAW.uniform(0.3, 0.7, size)
    values = {"words": start - 0.2, "start": start, "new": start + gain + DRAW.normal(0, 0.05, size)}
    return QueryKind(name, proxy, pd.DataFrame(values), decides)


def answered(*kinds: QueryKind):
    comparison = Comparison(kinds, 500, 13)
    return decide(comparison, ["new"], ["start", "new"]), comparison


@pytest.mark.parametrize(
    ("gain", "verdict", "choice"), [(0.05, "adapt", "new"), (-0.05, "keep", "start"), (0.0005, "undecided", "start")]
)
def test_verdicts(gain, verdict, choice):
    answer, _ = answered(kind("titles", gain), kind("sentences", gain))
    assert (answer.verdict, answer.choice) == (verdict, choice)
    assert answer.compared is not None and (answer.compared.left, answer.compared.right) == ("new", "start")
    assert answer.compared.low <= answer.compared.value <= answer.compared.high


def test_kinds_count_equally_whatever_their_sizes():
    big, small = kind("titles", 0.1, 1000), kind("sentences", 0.3, 50)
    _, comparison = answered(big, small)
    table = comparison.table().set_index(["kind", "method"])["value"]
    assert table[ALL, "new"] == pytest.approx((table["titles", "new"] + table["sentences", "new"]) / 2)


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


def test_every_answer_about_made_queries_is_called_a_proxy():
    kinds = [kind("titles", 0.1)]
    answer, _ = answered(*kinds)
    assert "a proxy: nobody judged them" in sentences(answer, kinds, {name: name for name in NAMES})[0]
    judged = [kind("test", 0.1, proxy=False)]
    assert "proxy" not in sentences(answered(*judged)[0], judged, {name: name for name in NAMES})[0]


# ---- pairs to judge --------------------------------------------------------------------------------------------
def run_of(**ranked: str) -> pd.DataFrame:
    rows = [(q, d, 100.0 - n) for q, documents in ranked.items() for n, d in enumerate(documents.split())]
    return total_order(pd.DataFrame(rows, columns=["query", "document", "score"]))


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
    assert pairs_to_judge({"left": left, "right": right}, [known])["document"].tolist()[:2] == ["b", "d"]


def test_grades_are_read_and_wrong_ones_named_with_their_line(tmp_path):
    path = tmp_path / "to_judge.tsv"
    path.write_text("grade\tquery-id\tcorpus-id\tquery\n1\tq\ta\tx\n\tq\tb\tx\n0.0\tq\tc\tx\n")
    assert read_grades(path)[["document", "grade"]].to_numpy().tolist() == [["a", 1], ["c", 0]]
    path.write_text("grade\tquery-id\tcorpus-id\n1\tq\ta\nyes\tq\tb\n")
    with pytest.raises(CollectionError, match=r"to_judge.tsv:3: the grade 'yes' is no whole number: write 1"):
        read_grades(path)


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
    files: dict[str, list[str]] = {"per_query": [], "runs": [], "collections": [str(manifest)]}
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
    return files, {"collection": "notes", "methods": methods, "collections": collections, "samples": 200}


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
    assert asked[0].split("\t")[0] == "grade" and all(line.startswith("\ttitles-d3\t") for line in asked[1:])
    examples = json.loads((folder / "examples.json").read_text())
    assert [one["query"] for one in examples["queries"]] == ["query 3"]
    assert examples["queries"][0]["left"]["rank"] == 1 and examples["queries"][0]["document"].startswith(
        "Title 3. text"
    )


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
    shown = settings | {"methods": params["methods"]}
    run_spec(StageSpec("build_adapted_page", 1, {}, inputs, {"page": str(page)}, shown))
    text = page.read_text()
    assert "My &lt;notes&gt;" in text and "<notes>" not in text and "&amp; &lt;more&gt;" in text
    assert "titles (proxy)" in text and "to_judge.tsv" in text and "zerodr adapt path/notes" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
    assert "judge_adaptation" in text and "not measured" in text
