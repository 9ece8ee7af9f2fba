"""Runs made elsewhere: any order of lines, other queries, depth, own documents, refusals, and who made them."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from search_helpers import make_collection
from typer.testing import CliRunner

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.artifacts.trec import CUT, count_cut, count_doubts, read_run
from zerodr.config.load import load_bench
from zerodr.errors import ArtifactError, ConfigError
from zerodr.operations.lookup_commands import app
from zerodr.plan import Plan, paths
from zerodr.retrieval.imported import import_run

PARAMS = {
    "collection": "toy",
    "split": "test",
    "depth": 3,
    "exclude_self": True,
    "tag": "theirs",
    "source": "a system of theirs, version 2",
}
LINES = """q1 Q0 b 9 0.5 x
q0\tQ0\ta\t1\t2.0\tx
q0 Q0 c 2 2.0 x
q1 Q0 q1 1 9.0 x
other Q0 a 1 1.0 x
q0 Q0 b 3 7 x
q0 Q0 d 4 -1e-3 x
"""
RUN = "results/runs/theirs/toy/standard.trec.gz"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_collection(Path("results/collections/toy"), ["a", "b", "c", "d", "q1"], ["q1", "q0"])
    return tmp_path


def take(text: str, **changes) -> list[tuple[str, str]]:
    Path("their.trec.gz").write_bytes(gzip.compress(text.encode()))
    inputs = {"file": "their.trec.gz", "collection": "results/collections/toy/manifest.json"}
    run_spec(StageSpec("import_run", 1, {}, inputs, {"run": RUN}, PARAMS | changes, 0), import_run)
    frame = read_run(Path(RUN))
    return list(zip(frame["query"], frame["document"], strict=True))


def test_order_is_by_query_then_score_then_document_whatever_the_file_says(folder):
    assert take(LINES) == [("q1", "b"), ("q0", "b"), ("q0", "c"), ("q0", "a")]


def test_own_documents_stay_where_the_protocol_keeps_them(folder):
    assert take(LINES, exclude_self=False, depth=4)[:2] == [("q1", "q1"), ("q1", "b")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x Q0 a 1 1.0 t\n", "ranks no query of toy/test: its first query is 'x'"),
        ("q0 Q0 a 1 1.0 t\nq0 Q0 a 2 0.5 t\n", "ranks document 'a' twice for query 'q0'"),
        ("q0 Q0 z 1 1.0 t\n", "ranks 1 document that toy does not hold, such as 'z'"),
        ("q0 Q0 b 1 1.0 t\nq0 Q0 a 2 nan t\n", "scores document 'a' of query 'q0' nan, which is NaN or infinite"),
        ("q0 Q0 a 1 1e39 t\n", "NaN or infinite"),
        ("q0 a 1.0\n", "is no TREC run"),
    ],
)
def test_what_is_no_run_of_the_collection_is_refused(folder, text, message):
    with pytest.raises(ArtifactError, match=message):
        take(text)


def test_a_file_that_was_cut_is_told_with_the_measures(folder, caplog):
    take(ranked([3, 2], [1, 2]), depth=4)
    assert "their.trec.gz: rankings end at rank 2 in 2 queries, and what the file leaves out counts" in caplog.text
    assert "not found by nDCG@3, nDCG@5, nDCG@10, " in caplog.text and "nDCG@1," not in caplog.text


@pytest.mark.parametrize(
    ("lengths", "deepest", "cut"),
    [
        ([10] * 12, 100, (10, 12)),
        ([10] * 9 + [3, 4, 0], 100, (10, 9)),
        ([10] * 18 + [3, 50], 100, (10, 18)),
        ([10] * 12, 10, None),  # the whole corpus
        ([3, 8, 17, 40, 41, 60], 100, None),  # what was found
        ([1, 1, 1, 1, 7, 30], 100, None),
        ([], 100, None),
    ],
)
def test_rankings_of_one_length_were_cut_and_others_found_no_more(lengths, deepest, cut):
    run = pd.DataFrame({"query": [number for number, length in enumerate(lengths) for _ in range(length)]})
    assert count_cut(run, deepest) == ({CUT: cut} if cut else {})


def ranked(scores: list[float], ranks: list[Any], queries: int = 2) -> str:
    rows = zip("abcd", ranks, scores, strict=False)
    lines = [f"{document} {rank} {score} x" for document, rank, score in rows]
    return "".join(f"q{query} Q0 {line}\n" for query in range(queries) for line in lines)


@pytest.mark.parametrize(
    ("scores", "ranks", "message"),
    [
        ([0.1, 0.2, 0.3], [1, 2, 3], "scores contradict the ranks in 2 of 2 queries"),
        ([0.3, 0.2, 0.1], [3, 2, 1], "scores contradict the ranks in 2 of 2 queries"),
        ([1.0, 1.0, 1.0], [1, 2, 3], "all scores are equal in 2 of 2 queries"),
        ([9.00000003, 9.00000002, 9.00000001], [1, 2, 3], "in 2 of 2 queries scores of the first 10"),
        ([0.3, 0.2, 0.1], [0, 1, 2], ""),
        ([0.3, 0.2, 0.2], [1, 2, 2], ""),
        ([0.3, 0.2, 0.1], [1, 1, 1], ""),
        ([1.0], [7], "rankings end at rank 1 in 2 queries"),
        ([1, 2, 3], [9.5, 8.5, 3.0], "scores are 1, 2, 3, ... in 2 of 2 queries, and ranks are not"),
        ([0.1, 0.2, 0.3], [0, 0, 0], "scores rise from line to line in 2 of 2 queries"),
        ([0.1, 0.2, 0.3], ["-", "-", "-"], "scores rise from line to line in 2 of 2 queries"),
        ([0.1, 0.3, 0.2], ["-", "-", "-"], ""),
        ([3, 2, 1], [1, 2, 3], ""),
    ],
)
def test_scores_that_may_mean_something_else_are_told(folder, caplog, scores, ranks, message):
    take(ranked(scores, ranks), exclude_self=False)
    assert message in caplog.text and ("queries" in caplog.text) == bool(message)


@pytest.mark.parametrize("end", ["", " more words"])
def test_several_systems_in_one_file_are_told(folder, caplog, end):
    dense = [f"q{query} Q0 a 1 0.9 dense{end}" for query in range(2)]
    take("\n".join([*dense, "q0 Q0 b 1 20 bm25", "q1 Q0 b 1 20 dense"]) + "\n", exclude_self=False)
    assert "lines of 1 of 2 queries end in different words" in caplog.text


def test_contradictions_and_equal_scores_are_counted_by_query():
    files = [("q0", [0.1, 0.2]), ("q1", [0.2, 0.1]), ("q2", [0.2, 0.1])]
    rows = [(query, "ab"[n], score, n) for query, scores in files for n, score in enumerate(scores)]
    run = pd.DataFrame(rows, columns=["query", "document", "score", "rank"])
    assert count_doubts(run) == {"n_rank_contradicts": (1, 3)}
    assert count_doubts(run.assign(rank=lambda rows: -rows["rank"])) == {"n_rank_contradicts": (2, 3)}
    assert count_doubts(run[run["query"] != "q0"]) == {}
    assert count_doubts(run.assign(score=1.0)) == {"n_equal_scores": (3, 3)}
    rows = [("q0", name, score, n) for n, (name, score) in enumerate([("b", 1.0), ("a", 0.5), ("c", 0.5)])]
    tied = pd.DataFrame(rows, columns=run.columns)
    assert count_doubts(tied) == {"n_tied_scores": (1, 1)}
    assert count_doubts(tied.assign(document=["b", "c", "a"])) == {}


def test_queries_that_nobody_knows_are_named_with_their_line(folder, caplog):
    take(f"\n{LINES}more Q0 a 1 1.0 x\n")
    assert (
        "their.trec.gz:6: the first of 2 queries that toy does not hold, and that count for nothing: 'other'"
        in caplog.text
    )


@pytest.mark.parametrize(("wrong", "right"), [("Q1", "q1"), ("q1.0", "q1")])
def test_an_id_of_a_query_that_was_changed_on_the_way_is_refused(folder, wrong, right):
    text = "q0 Q0 a 1 1.0 x\n" + f"{wrong} Q0 a 1 1.0 x\n"
    with pytest.raises(
        ArtifactError, match=rf"gz:2: ranks query '{wrong}', which toy does not hold; it holds '{right}'"
    ):
        take(text)


def test_a_document_of_another_corpus_is_named_with_its_line(folder):
    with pytest.raises(ArtifactError, match=r"gz:2: ranks 1 document .* such as 'A' \(it holds 'a'\)"):
        take("q0 Q0 b 1 1.0 t\nq0 Q0 A 1 1.0 t\n")


def test_verify_says_who_made_it(folder):
    take(LINES)
    done = CliRunner().invoke(app, ["verify", RUN])
    assert done.exit_code == 0, done.output
    assert f"{RUN}: made elsewhere: a system of theirs, version 2; taken from their.trec.gz, sha256 " in done.output


def test_verify_finds_a_file_that_was_changed_since(folder):
    take(LINES)
    place = Path("their.trec.gz") if Path("their.trec.gz").exists() else next(Path(".").rglob("their.trec.gz"))
    place.write_bytes(place.read_bytes() + b"x")
    done = CliRunner().invoke(app, ["verify", RUN])
    assert done.exit_code == 1
    assert f"{RUN}: was built from {place} " in done.output and "which is " in done.output


RECIPE = """
kind: run
label: Theirs
description: x
settings:
  source: them
  files: {scifact: runs/scifact.trec}
"""


@pytest.fixture
def project(root, tmp_path) -> Path:
    for folder in ("config", "resources/reference"):
        shutil.copytree(root / folder, tmp_path / folder)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/scifact.trec").write_text("")
    (tmp_path / "config/methods/theirs.yaml").write_text(RECIPE)
    return tmp_path


def test_a_row_is_planned_for_the_collections_that_it_has(project):
    rows = {"methods": ["bm25-flat", "theirs", "hybrid"], "collections": ["scifact", "nfcorpus"]}
    plan = Plan(load_bench(project, rows))
    cells = plan.evaluations("summary")
    assert len(cells) == 5 and paths.summary("theirs", "nfcorpus", "standard") not in cells
    assert [plan.has_run("theirs", name) for name in ("scifact", "nfcorpus")] == [True, False]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("scifact:", "scifakt:", "scifact"),
        ("runs/scifact.trec", "runs/other.trec", "runs/other.trec is no file"),
        ("scifact:", "memory-mesh:", "the collection has no judgements"),
        ("source: them", "source: ''", "source"),
    ],
)
def test_wrong_entries_of_rows_are_refused_when_the_configuration_is_read(project, old, new, message):
    path = project / "config/methods/theirs.yaml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_bench(project, {"methods": ["bm25-flat", "theirs"]})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("scifact:", "garden:", "files 'garden': is not known|files 'scifact': is not known"),
        ("runs/scifact.trec", "runs/absent.trec", "files.scifact: runs/absent.trec is no file"),
        ("scifact:", "memory-mesh:", "files 'scifact': is not known"),
    ],
)
def test_a_recipe_whose_data_is_absent_stops_nothing_else(project, old, new, message):
    path = project / "config/methods/theirs.yaml"
    path.write_text(path.read_text().replace(old, new))
    plan = Plan(load_bench(project, {"methods": ["bm25-flat"]}))
    assert plan.evaluations("summary")
    wildcards = SimpleNamespace(model="theirs", collection="scifact", protocol="standard")
    for rule in ("import_run", "evaluate_run"):
        with pytest.raises(ConfigError, match=message):
            plan.inputs(rule)(wildcards)


def test_a_run_of_an_absent_folder_leaves_the_others(project):
    path = project / "config/methods/theirs.yaml"
    path.write_text(path.read_text().replace("{scifact:", "{garden: garden.trec, scifact:"))
    plan = Plan(load_bench(project, {"methods": ["bm25-flat", "theirs"], "collections": ["scifact"]}))
    assert plan.has_run("theirs", "scifact") and len(plan.evaluations("summary")) == 2


def test_published_numbers_rank_nothing(project):
    with pytest.raises(ConfigError, match="published numbers alone and ranks no collection"):
        load_bench(project, {"baseline": "splade-pp-ed"})
    with pytest.raises(ConfigError, match="all rows are published numbers"):
        load_bench(project, {"methods": ["splade-pp-ed"]})
    plan = Plan(load_bench(project, {"methods": ["bm25-flat", "splade-pp-ed"]}))
    assert plan.ranked == ["bm25-flat"] and not any("splade" in cell for cell in plan.evaluations("summary"))


SCORES = """
kind: scores
label: Theirs
description: x
settings: {source: them, file: scores.tsv, row: Ours}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method\tcollection\tndcg_at_10\nours\tscifact\t71.2\n", "scores.tsv:2: ndcg_at_10 is '71.2', expected"),
        ("method\tcollection\tndcg_at_10\nours\tscifact\thigh\n", "scores.tsv:2: ndcg_at_10 is 'high', expected"),
        (
            "method\tcollection\tndcg_at_10\trecall_at_100\nours\tscifact\t.7\t97.1\n",
            "scores.tsv:2: recall_at_100 is '97.1', expected",
        ),
        ("method\tcollection\tndcg_at_10\tnote\nours\tscifact\t.7\tx\n", "scores.tsv: unknown column 'note'"),
        (
            "method\tcollection\tndcg_at_10\nours\tscifact\t.7\nOurs\tscifact\t.8\n",
            "scores.tsv:3: has scifact again, as line 2 has",
        ),
        ("method\tcollection\tndcg_at_10\nours\tscifakt\t0.7\n", "scores.tsv:2: collection 'scifakt' is not.*scifact"),
        ("method\tcollection\tndcg_at_10\nour\tscifact\t0.7\n", "holds no numbers of 'Ours'.*did you mean our"),
        ("method,collection,ndcg_at_10\nours,scifact,0.7\n", "lacks column method.*separate the columns by tabs"),
        ("", "lacks column method: its first line has nothing"),
    ],
)
def test_wrong_scores_are_refused_before_the_first_job(project, text, message):
    (project / "config/methods/theirs.yaml").write_text(SCORES)
    chosen = {"methods": ["bm25-flat", "theirs"]}
    with pytest.raises(ConfigError, match="scores.tsv is no file"):
        load_bench(project, chosen)
    (project / "scores.tsv").write_text("\ufeffmethod\tcollection\tndcg_at_10\nours\tcqadupstack\t0.7\n")
    load_bench(project, chosen)
    (project / "scores.tsv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_bench(project, chosen)
