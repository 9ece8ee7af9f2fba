"""Negatives of a file: public hard negatives and TREC runs become candidates; what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from tests.unit.mine_helpers import RANKED, make_source

from zerodr.artifacts.rankings import iterate_rankings
from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.chains import _check_teacher
from zerodr.config.load import load_bench
from zerodr.config.training import NegativesSettings
from zerodr.errors import ArtifactError, ConfigError
from zerodr.mining.imported import import_candidates
from zerodr.plan import Plan

SYSTEMS = [
    {"qid": 0, "pos": [1], "neg": {"bm25": [5, 3, 1], "dense": [3, 9]}},
    {"qid": "q1", "neg": ["d4", "d5", "d4"]},
]


def lists_of(path: Path) -> list[list[str]]:
    """Documents of each query of a candidates file."""
    found = []
    for rankings in iterate_rankings(path, 100):
        rows = iter(rankings.documents.to_pylist())
        found += [[next(rows) for _ in range(size)] for size in rankings.sizes]
    return found


def imported(tmp_path: Path, text: str, queries: list[str], depth: int = 10, zipped: bool = False) -> list[list[str]]:
    """The candidates of a file's content."""
    file = tmp_path / "given"
    file.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    import_candidates(file, pa.array(queries), depth, tmp_path / "candidates.parquet")
    return lists_of(tmp_path / "candidates.parquet")


@pytest.mark.parametrize("zipped", [False, True])
def test_systems_take_turns_and_a_document_is_there_once(tmp_path, zipped):
    text = "".join(json.dumps(line) + "\n" for line in SYSTEMS)
    assert imported(tmp_path, text, ["q1", "0", "other"], zipped=zipped) == [
        ["d4", "d5"],
        ["5", "3", "9", "1"],
        [],
    ]
    assert imported(tmp_path, text, ["0"], depth=2) == [["5", "3"]]


def test_a_run_is_read_in_total_order(tmp_path):
    text = "q1 Q0 d2 1 0.5 x\nq0 Q0 d1 1 3 x\nq1 Q0 d3 2 0.5 x\nq1 Q0 d1 3 0.9 x\n"
    assert imported(tmp_path, text, ["q0", "q1"]) == [["d1"], ["d1", "d3", "d2"]]
    text = "q0 Q0 d1 1 9.00000002 x\nq0 Q0 d3 2 9.00000001 x\n"  # equal in float32
    assert imported(tmp_path, text, ["q0"]) == [["d1", "d3"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"qid": 1}\n', "given:1: has no qid and neg"),
        ('{"qid": 1, "neg": [1]}\n{"qid": 1, "neg": [2]}\n', "given:2: has query 1 a second time"),
        ('{"qid": 1, "neg": [1]}\nno json\n', "given:2: has no qid and neg"),
        ('{"qid": 1, "neg": [1]}\n', "ranks none of the 1 queries, the first of which is q"),
        ("a b\n", "is no TREC run"),
    ],
)
def test_other_files_are_refused(tmp_path, text, said):
    with pytest.raises(ArtifactError, match=said):
        imported(tmp_path, text, ["q"])


def test_a_stage_mines_the_file(tmp_path, monkeypatch):
    """Known positives are left out by the judgements, whatever the file has."""
    monkeypatch.chdir(tmp_path)
    make_source(tmp_path / "results/source")
    lines = [{"qid": query, "neg": {"one": documents}} for query, documents in RANKED.items() if query != "q2"]
    Path("given.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    negatives = NegativesSettings(source="file", file="given.jsonl", depth=6, count=3, sampling="top")
    params = {"negatives": negatives.model_dump(mode="json"), "split": "train", "stage": "ep0", "stage_index": 0}
    inputs = {"source": "results/source/manifest.json", "file": "given.jsonl"}
    run_spec(StageSpec("mine_negatives", 1, {}, inputs, {"mined": "results/mined/manifest.json"}, params, 13))
    table = pq.read_table("results/mined/mined.parquet")
    found = dict(zip(table["query"].to_pylist(), table["negatives"].to_pylist(), strict=True))
    assert found["q0"] == ["d0", "d2", "d3"] and found["q1"] == ["d6", "d5", "d4"]
    assert found["q2"] == [] and found["q3"] == []
    assert read_record("results/mined/manifest.json")["notes"]["imported"]["missing"] == 1


def test_settings_name_the_file_and_plans_read_it(root):
    for values in ({"source": "file"}, {"source": "previous", "file": "x"}):
        with pytest.raises(ValidationError, match="negatives.source file needs negatives.file, and only it reads one"):
            NegativesSettings(**values)
    assert "file" not in NegativesSettings().model_dump(mode="json")
    bench = load_bench(root, {"scale": "mini"})
    stage = bench.methods["dpr"].settings.chain["ep0"]
    own = stage.model_copy(update={"negatives": NegativesSettings(source="file", file="hard.jsonl.gz")})
    bench.methods["dpr"].settings.chain["ep0"] = own
    inputs = Plan(bench).inputs("mine_negatives")(SimpleNamespace(model="dpr", scope="shared", stage="ep0"))
    assert inputs["file"] == "hard.jsonl.gz" and "candidates" not in inputs


def scored_file(path: Path, **columns: list) -> Path:
    """A Parquet file with a row a query, as cross-encoder scores are published."""
    pq.write_table(pa.table(columns), path)
    return path


def test_scored_lists_are_ranked_by_score(tmp_path):
    """Ids may be numbers; ties go by id, descending; a document twice counts once."""
    lists, scores = [[7, 3, 5, 7], [1]], [[0.5, 2.0, 0.5, 0.1], [1.0]]
    file = scored_file(tmp_path / "s.parquet", query_id=[0, 1], corpus_id=lists, score=scores)
    import_candidates(file, pa.array(["1", "0", "9"]), 10, tmp_path / "candidates.parquet", scored=True)
    assert lists_of(tmp_path / "candidates.parquet") == [["1"], ["3", "7", "5"], []]
    (rankings,) = iterate_rankings(tmp_path / "candidates.parquet", 10)
    assert rankings.scores.tolist() == [1.0, 2.0, 0.5, 0.5]


@pytest.mark.parametrize("kind", [pa.large_list, lambda of: pa.list_(of, 2)], ids=["large", "fixed"])
def test_lists_as_other_libraries_write_them_are_read(tmp_path, kind):
    columns = {"corpus_id": pa.array([["a", "b"]], kind(pa.string())), "score": pa.array([[1, 2]], kind(pa.float64()))}
    file = scored_file(tmp_path / "s.parquet", query_id=["q"], **columns)
    import_candidates(file, pa.array(["q"]), 10, tmp_path / "candidates.parquet", scored=True)
    assert lists_of(tmp_path / "candidates.parquet") == [["b", "a"]]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"query_id": [1], "corpus_id": [[1]]}, "no column score or scores or labels, found query_id, corpus_id"),
        ({"query_id": [1], "corpus_id": [1], "score": [1.0]}, "int64 and double, expected lists"),
        ({"query_id": [1, 1], "corpus_id": [[1], [2]], "score": [[1.0], [1.0]]}, "1 queries twice"),
        ({"query_id": [1], "corpus_id": [[1, 2]], "score": [[1.0]]}, "more or fewer scores than documents"),
    ],
)
def test_other_parquet_files_are_refused(tmp_path, columns, said):
    file = scored_file(tmp_path / "s.parquet", **columns)
    with pytest.raises(ArtifactError, match=said):
        import_candidates(file, pa.array(["1"]), 10, tmp_path / "candidates.parquet")


PICKLE = b"\x80\x04\x95}\x94."
DAMAGED = {"pickle": PICKLE, "gzip": gzip.compress(PICKLE, mtime=0), "parquet": b"PAR1 and no more"}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)  # ids: test runners must collect the same names
def test_pickles_and_damaged_files_are_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "given").write_bytes(content)
    with pytest.raises(ArtifactError, match="is no TREC run|is a damaged Parquet file"):
        import_candidates(tmp_path / "given", pa.array(["q"]), 10, tmp_path / "candidates.parquet")


def test_lists_without_scores_do_not_teach(tmp_path):
    (tmp_path / "given").write_text('{"qid": "q", "neg": [1]}\n')
    with pytest.raises(ArtifactError, match="has no scores"):
        import_candidates(tmp_path / "given", pa.array(["q"]), 10, tmp_path / "candidates.parquet", scored=True)


def test_the_scores_of_a_file_teach(tmp_path, monkeypatch):
    """[positive, *negatives] as a cross-encoder scored them; a query whose positives it lacks has none and NaN."""
    monkeypatch.chdir(tmp_path)
    make_source(tmp_path / "results/source")
    given = {"q0": {"d0": 4.0, "d2": 3.0, "d1": 2.0}, "q1": {"d6": 4.0, "d3": 3.0, "d2": 2.0}, "q2": {"d1": 1.0}}
    lists, scores = [list(row) for row in given.values()], [list(row.values()) for row in given.values()]
    file = scored_file(Path("s.parquet"), query_id=list(given), doc_ids=lists, labels=scores)
    negatives = NegativesSettings(source="file", file=str(file), depth=6, count=2, sampling="top")
    params = {"negatives": negatives.model_dump(mode="json"), "split": "train", "stage": "ep0", "stage_index": 0}
    inputs = {"source": "results/source/manifest.json", "file": str(file)}
    outputs = {"mined": "results/mined/manifest.json"}
    run_spec(StageSpec("mine_negatives", 1, {}, inputs, outputs, params | {"scored": True}, 13))
    rows = {row["query"]: row for row in pq.read_table("results/mined/mined.parquet").to_pylist()}
    assert (rows["q0"]["positives"], rows["q0"]["negatives"], rows["q0"]["scores"]) == (
        ["d1"],
        ["d0", "d2"],
        [2.0, 4.0, 3.0],
    )
    assert (rows["q1"]["positives"], rows["q1"]["negatives"], rows["q1"]["scores"]) == (["d3"], ["d6"], [3.0, 4.0])
    assert rows["q2"]["positives"] == [] and rows["q2"]["negatives"] == ["d1"]
    assert rows["q2"]["scores"][0] != rows["q2"]["scores"][0]
    again = StageSpec(
        "mine_negatives",
        1,
        {},
        inputs | {"previous": outputs["mined"]},
        {"mined": "results/ep1/manifest.json"},
        params | {"stage": "ep1", "stage_index": 1},
        13,
    )
    run_spec(again)  # a stage after it counts how many negatives are the same
    previous = json.loads(Path("results/ep1/statistics.json").read_text())["previous"]
    assert previous == {"common": 3, "share": 1.0}


def test_plans_take_scores_from_the_file(root):
    """A stage that is taught by a file needs no cross-encoder."""
    bench = load_bench(root, {"scale": "mini"})
    chain = bench.methods["kd"].settings.chain
    taught = {"teacher": "file", "negatives": NegativesSettings(source="file", file="scores.parquet")}
    chain["ep0"] = chain["ep0"].model_copy(update=taught)
    plan, job = Plan(bench), SimpleNamespace(model="kd", scope="shared", stage="ep0")
    assert "scored" not in plan.inputs("finetune")(job)
    assert '"scored":true' in plan.settings("mine_negatives")(job)
    _check_teacher("here", chain["ep0"], bench.methods)
    with pytest.raises(ConfigError, match="set negatives.source: file"):
        _check_teacher("here", chain["ep0"].model_copy(update={"negatives": NegativesSettings()}), bench.methods)
