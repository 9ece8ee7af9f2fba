"""Candidates files: round trip, bytes that don't depend on pieces, files that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerodr.artifacts import rankings as module
from zerodr.artifacts.rankings import (
    KEY,
    SCHEMA,
    Rankings,
    RankingsWriter,
    iterate_rankings,
    read_depth,
    read_queries,
    read_rankings,
)
from zerodr.errors import ArtifactError

Lists = list[tuple[str, list[str]]]


def rankings(lists: Lists) -> Rankings:
    documents = [document for _, row in lists for document in row]
    scores = [-float(place) for _, row in lists for place in range(len(row))]
    return Rankings(
        pa.array([query for query, _ in lists], pa.string()),
        np.array([len(row) for _, row in lists], np.int64),
        pa.array(documents, pa.string()),
        np.array(scores, np.float32),
    )


def write(path: Path, *pieces: Lists, depth: int = 5) -> Path:
    with RankingsWriter(path, depth) as writer:
        for piece in pieces:
            writer.write(rankings(piece))
    return path


def plain(found: Rankings) -> Lists:
    ends = np.cumsum(found.sizes)
    documents = found.documents.to_pylist()
    assert len(found.scores) == len(documents) == (ends[-1] if len(ends) else 0)
    return [
        (query, documents[end - size : end])
        for query, size, end in zip(found.queries.to_pylist(), found.sizes, ends, strict=True)
    ]


LISTS = st.lists(st.lists(st.sampled_from(["a", "bb", "é", "d4"]), max_size=5), max_size=9)


@given(LISTS, st.integers(1, 4), st.integers(1, 5))
def test_round_trip_and_bytes_whatever_the_pieces(tmp_path_factory, lists, group, step):
    place = tmp_path_factory.mktemp("rankings")
    rows = [(f"q{number}", row) for number, row in enumerate(lists)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROW_GROUP", group)
        whole = write(place / "a.parquet", rows)
        parts = write(place / "b.parquet", *(rows[first : first + step] for first in range(0, len(rows), step)))
    assert whole.read_bytes() == parts.read_bytes()
    assert plain(read_rankings(whole)) == rows
    assert [row for piece in iterate_rankings(whole, step) for row in plain(piece)] == rows
    assert read_queries(whole).to_pylist() == [query for query, _ in rows] and read_depth(whole) == 5
    assert pq.read_metadata(whole).num_row_groups == -(-len(rows) // group)


def test_scores_come_back(tmp_path):
    path = write(tmp_path / "a.parquet", [("q", ["a", "b"]), ("r", []), ("s", ["c"])])
    assert read_rankings(path).scores.tolist() == [0, -1, 0]
    assert [piece.scores.tolist() for piece in iterate_rankings(path, 2)] == [[0, -1], [0]]


def test_a_failed_writer_adds_no_rest(tmp_path):
    with pytest.raises(KeyError), RankingsWriter(tmp_path / "a.parquet", 5) as writer:
        writer.write(rankings([("q", ["a"])]))
        raise KeyError
    assert read_queries(tmp_path / "a.parquet").to_pylist() == []


def table(path: Path, columns: dict, metadata: dict | None = None, schema: pa.Schema = SCHEMA) -> Path:
    pq.write_table(pa.table(columns, schema=schema.with_metadata(metadata)), path)
    return path


def test_other_files_are_refused(tmp_path):
    rows = {"query": ["q", "r"], "documents": [["a"], ["b"]], "scores": [[1.0], [2.0]]}
    about = {KEY: b'{"depth": 3}'}
    with pytest.raises(ArtifactError, match="can't be read as parquet"):
        read_rankings(tmp_path / "missing.parquet")
    (tmp_path / "text.parquet").write_text("text")
    with pytest.raises(ArtifactError, match="can't be read as parquet"):
        read_depth(tmp_path / "text.parquet")
    with pytest.raises(ArtifactError, match="is no candidates file"):
        read_rankings(table(tmp_path / "a.parquet", rows))
    with pytest.raises(ArtifactError, match="is no candidates file"):
        read_queries(table(tmp_path / "b.parquet", rows, {KEY: b"[]"}))
    with pytest.raises(ArtifactError, match=r"expected columns \['query string'.*found \['query string'\]"):
        read_rankings(table(tmp_path / "c.parquet", {"query": ["q"]}, about, pa.schema([("query", pa.string())])))
    with pytest.raises(ArtifactError, match="query r has 1 documents and 2 scores"):
        read_rankings(table(tmp_path / "d.parquet", rows | {"scores": [[1.0], [2.0, 1.0]]}, about))
    with pytest.raises(ArtifactError, match="query r has 0 documents and 1 scores"):
        list(iterate_rankings(table(tmp_path / "e.parquet", rows | {"documents": [["a"], None]}, about), 1))
    with pytest.raises(ArtifactError, match="holds null"):
        read_rankings(table(tmp_path / "f.parquet", rows | {"documents": [["a"], [None]]}, about))
    with pytest.raises(ArtifactError, match="query q appears twice"):
        read_queries(table(tmp_path / "g.parquet", rows | {"query": ["q", "q"]}, about))
    with pytest.raises(ArtifactError, match="ranking of no query"):
        read_queries(table(tmp_path / "h.parquet", rows | {"query": ["q", None]}, about))


def test_damage_inside_the_file_is_an_artifact_error(tmp_path):
    path = write(tmp_path / "a.parquet", [(f"q{n}", [f"d{n}", f"e{n}"]) for n in range(500)])
    data = bytearray(path.read_bytes())
    data[20:1500] = bytes(1480)
    path.write_bytes(bytes(data))
    assert read_depth(path) == 5
    with pytest.raises(ArtifactError, match="can't be read as parquet"):
        list(iterate_rankings(path, 100))
