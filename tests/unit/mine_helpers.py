"""A source with candidates, and the stage `mine_negatives` on them, for the tests of mining."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.training_helpers import seal

from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA
from zerodr.mining.statistics import SCHEMA

Row = tuple[str, list[str], list[str], list[int]]
DOCUMENTS = [f"d{n}" for n in range(12)]
RANKED = {
    "q0": ["d0", "d1", "d2", "d3", "d4", "d5"],  # one positive, d1
    "q1": ["d6", "d5", "d4", "d3", "d2", "d1"],  # positives d2 (grade 2), d10 (2), d3 (1); d9 has grade 0
    "q2": ["d7", "d8"],  # positives d7 and d8
    "q3": [],  # positive d0
    "q4": ["d1", "d2", "d3", "d4", "d5", "d6"],  # judged, no positive
}
QRELS = [
    ("q1", "d3", 1),
    ("q1", "d10", 2),
    ("q1", "d2", 2),
    ("q1", "d9", 0),
    ("q0", "d1", 1),
    ("q0", "d1", 1),
    ("q2", "d8", 1),
    ("q2", "d7", 1),
    ("q3", "d0", 1),
    ("q4", "d11", 0),
    ("q3", "gone", 3),
]


def make_source(folder: Path, texts: dict[str, str] | None = None, qrels: list[tuple] = QRELS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    said = [(texts or {}).get(name, f"text of {name}") for name in DOCUMENTS]
    pq.write_table(pa.table([DOCUMENTS, [""] * len(DOCUMENTS), said], schema=CORPUS_SCHEMA), folder / "corpus.parquet")
    names = [*RANKED, "other"]
    pq.write_table(pa.table([names, [f"ask {n}" for n in names]], schema=QUERY_SCHEMA), folder / "queries.parquet")
    lines = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in qrels)
    (folder / "qrels.train.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    seal(folder)
    return folder


def write_candidates(path: Path, ranked: dict[str, list[str]], depth: int = 6, piece: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = list(ranked.items())
    with RankingsWriter(path, depth) as writer:
        for first in range(0, len(rows), piece):
            part = rows[first : first + piece]
            documents = [document for _, row in part for document in row]
            sizes = np.array([len(row) for _, row in part], np.int64)
            writer.write(
                Rankings(
                    pa.array([query for query, _ in part], pa.string()),
                    sizes,
                    pa.array(documents, pa.string()),
                    np.zeros(len(documents), np.float32),
                )
            )
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    make_source(tmp_path / "results/source")
    write_candidates(tmp_path / "results/candidates.parquet", RANKED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_mine(
    name: str = "ep0",
    candidates: str | None = "results/candidates.parquet",
    previous: str = "",
    stage_index: int = 0,
    seed: int = 13,
    split: str = "train",
    dev_queries: int = 0,
    exclude_self: bool = False,
    **negatives: Any,
) -> Path:
    inputs = {"source": "results/source/manifest.json"}
    inputs |= {"candidates": candidates} if candidates else {}
    inputs |= {"previous": f"results/mined/{previous}/manifest.json"} if previous else {}
    kept = {"source": "bm25", "depth": 6, "count": 3, "sampling": "top"} | negatives
    params = {"negatives": kept, "split": split, "stage": name, "stage_index": stage_index, "dev_queries": dev_queries}
    params |= {"exclude_self": True} if exclude_self else {}
    run_spec(
        StageSpec(
            "mine_negatives",
            1,
            {},
            inputs,
            {"mined": f"results/mined/{name}/manifest.json"},
            params,
            seed,
        )
    )
    return Path("results/mined") / name


def rows_of(folder: Path) -> list[Row]:
    table = pq.read_table(folder / "mined.parquet")
    assert table.schema.equals(SCHEMA)
    return [tuple(row.values()) for row in table.to_pylist()]


def facts_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "statistics.json").read_text())
