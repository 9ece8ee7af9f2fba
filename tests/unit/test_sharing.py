"""A row's results for other tools: MTEB's files, TREC files that pytrec_eval reads, a card's block."""

import json
from pathlib import Path

import pandas as pd
import pytest
import pytrec_eval
import yaml
from lookup_helpers import DENSE, LEXICAL, PROTOCOL, ROOT, make_bench

from zerodr.errors import ArtifactError
from zerodr.operations import sharing
from zerodr.operations.sharing import read_tasks, share
from zerodr.plan import paths

HEAD = (ROOT / sharing.TASKS).read_text(encoding="utf-8").partition("\n")[0]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_bench()
        table = folder / sharing.TASKS
        table.parent.mkdir(parents=True)
        table.write_text(f"{HEAD}\nnotes\tNotes\tgroup/notes\t{'0' * 40}\ttest\n", encoding="utf-8")
    return folder


@pytest.fixture
def shared(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(bench)
    lines = share(DENSE, PROTOCOL, tmp_path / "out")
    assert len(lines) == 1 and "notes" in lines[0] and "MTEB's Notes" in lines[0]
    return tmp_path / "out"


def summary() -> dict[str, float]:
    lines = Path(paths.summary(DENSE, "notes", PROTOCOL)).read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
    return {row["metric"]: float(row["value"]) for row in rows}


def test_trec_files_give_the_numbers_of_the_evaluation(shared):
    with open(shared / "runs/notes.trec") as run, open(shared / "qrels/notes.qrels") as qrels:
        ranked, judged = pytrec_eval.parse_run(run), pytrec_eval.parse_qrel(qrels)
    assert judged == {"q1": {"pie": 1, "car": 0}, "q2": {"sepsis": 2}}
    values = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut_10"}).evaluate(ranked).values()
    assert sum(one["ndcg_cut_10"] for one in values) / len(values) == pytest.approx(summary()["ndcg_cut_10"])


def test_mteb_gets_its_keys_and_the_block_of_the_card_its_percentages(shared):
    result = json.loads((shared / "mteb/results/zerodr__all-minilm-l6-v2/no_revision_available/Notes.json").read_text())
    scores = result["scores"]["test"][0]
    assert (result["task_name"], result["dataset_revision"], result["mteb_version"]) == ("Notes", "0" * 40, None)
    assert scores["main_score"] == scores["ndcg_at_10"] == pytest.approx(summary()["ndcg_cut_10"], abs=1e-5)
    assert scores["mrr_at_10"] == pytest.approx(summary()["recip_rank_cut_10"], abs=1e-5)
    assert scores["recall_at_100"] == pytest.approx(summary()["recall_100"], abs=1e-5)
    block = yaml.safe_load((shared / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    (entry,) = block["model-index"][0]["results"]
    assert entry["dataset"]["type"] == "group/notes" and entry["task"] == {"type": "Retrieval"}
    metrics = {metric["type"]: metric["value"] for metric in entry["metrics"]}
    assert metrics["ndcg_at_10"] == pytest.approx(100 * summary()["ndcg_cut_10"], abs=1e-3)


def test_the_card_rounds_a_measure_once_as_the_table_does(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(bench)

    def measured(judged, names):
        return pd.DataFrame(0.3254498644, index=judged.queries, columns=names)  # BM25 on NFCorpus

    monkeypatch.setattr(sharing, "measure", measured)
    (line,) = share(DENSE, PROTOCOL, tmp_path / "out")
    assert "nDCG@10 0.3254 " in line and "| 0.3254 |" in (tmp_path / "out/README.md").read_text()
    (result,) = tmp_path.rglob("Notes.json")
    assert json.loads(result.read_text())["scores"]["test"][0]["main_score"] == 0.32545


def test_judgements_are_of_the_queries_that_count_and_the_card_says_how_to_average(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(bench)
    nothing = pd.DataFrame({"query": ["q3"], "document": ["tax"], "grade": [0]})
    read = sharing.read_qrels
    monkeypatch.setattr(sharing, "read_qrels", lambda *place: pd.concat([read(*place), nothing], ignore_index=True))
    share(DENSE, PROTOCOL, tmp_path / "out")
    assert "q3" not in (tmp_path / "out/qrels/notes.qrels").read_text(), "no measure can tell it from a lost one"
    assert "trec_eval -c" in (tmp_path / "out/README.md").read_text()


def test_what_is_not_as_it_was_evaluated_is_refused(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(bench)
    run = Path(paths.run(LEXICAL, "notes", PROTOCOL))
    content = run.read_bytes()
    run.write_bytes(content + b"\n")
    try:
        with pytest.raises(ArtifactError, match="is missing or is not what was evaluated"):
            share(LEXICAL, PROTOCOL, tmp_path / "out")
    finally:
        run.write_bytes(content)
    assert not (tmp_path / "out").exists()


def test_names_that_are_wrong_and_folders_that_exist_are_refused(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(bench)
    with pytest.raises(ArtifactError, match="did you mean all-minilm-l6-v2"):
        share("all-minilm-l6-v3", PROTOCOL, tmp_path / "out")
    with pytest.raises(ArtifactError, match="is there already"):
        share(DENSE, PROTOCOL, tmp_path)


def test_every_shipped_task_is_of_a_collection_with_that_split(monkeypatch):
    monkeypatch.chdir(ROOT)
    from zerodr.config.load import load_bench

    collections = load_bench(ROOT).collections
    for name, task in read_tasks().items():
        assert task.split in collections[name].splits and len(task.revision) == 40
