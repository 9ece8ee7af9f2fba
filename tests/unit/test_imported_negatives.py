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
from tests.unit.test_mine import RANKED, make_source

from zerodr.artifacts.rankings import iterate_rankings
from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.load import load_bench
from zerodr.config.training import NegativesSettings
from zerodr.errors import ArtifactError
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
