"""Estimated sizes of own collections: exact when small, near when large, and what plans make of them."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerodr.config.load import load_bench
from zerodr.config.user_folders import PARQUET_BYTES, SAMPLE_BYTES, SAMPLES, estimated_documents
from zerodr.plan import Plan


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"])), max_size=20), st.booleans())
def test_small_files_are_counted_exactly(tmp_path_factory, lines, ended):
    lines = [f"{number}\t{line}" for number, line in enumerate(lines)]
    folder = tmp_path_factory.mktemp("own")
    (folder / "corpus.tsv").write_text("\n".join(lines) + "\n" * (ended and bool(lines)), encoding="utf-8")
    assert estimated_documents(folder) == len(lines)


def large(folder: Path, count: int, width: int) -> Path:
    folder.mkdir()
    lines = (f'{{"_id": "{number}", "text": "{"x" * (number * 7919 % width)}"}}\n' for number in range(count))
    (folder / "corpus.jsonl").write_text("".join(lines))
    return folder


def test_large_files_are_estimated(tmp_path):
    folder = large(tmp_path / "notes", 60_000, 400)
    assert (folder / "corpus.jsonl").stat().st_size > 10 * SAMPLES * SAMPLE_BYTES
    assert estimated_documents(folder) == pytest.approx(60_000, rel=0.01)


def test_long_documents_at_the_start_do_not_mislead(tmp_path):
    lines = [*("x" * 20_000 for _ in range(200)), *("x" * 200 for _ in range(60_000))]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    assert estimated_documents(tmp_path) == pytest.approx(len(lines), rel=0.1)


def test_a_line_longer_than_the_samples_counts(tmp_path):
    (tmp_path / "corpus.jsonl").write_text("x" * (3 * SAMPLES * SAMPLE_BYTES))
    assert estimated_documents(tmp_path) == 1


def test_parquet_is_estimated_from_its_size(tmp_path):
    (tmp_path / "corpus.parquet").write_bytes(bytes(10 * PARQUET_BYTES + 1))
    assert estimated_documents(tmp_path) == 11


def test_gzipped_lines_are_counted_or_estimated(tmp_path):
    (tmp_path / "corpus.tsv.gz").write_bytes(gzip.compress(b"1\tx\n2\ty"))
    assert estimated_documents(tmp_path) == 2
    text = "".join(f"{number}\t{number * 7919 % 10007} {number * 104729 % 10007}\n" for number in range(300_000))
    (tmp_path / "corpus.tsv.gz").write_bytes(gzip.compress(text.encode()))
    assert estimated_documents(tmp_path) == pytest.approx(300_000, rel=0.1)
    (tmp_path / "corpus.tsv.gz").write_bytes(b"none")
    assert estimated_documents(tmp_path) == 1


def test_no_corpus_no_estimate(tmp_path):
    assert estimated_documents(tmp_path) is None
    (tmp_path / "corpus.jsonl").write_text("")
    assert estimated_documents(tmp_path) == 0


def test_shards_and_memory_of_an_own_collection_fit_its_size(root, tmp_path):
    small, big = (
        Plan(load_bench(root, {"byo": str(large(tmp_path / f"own{count}", count, 200)), "shard_documents": 10_000}))
        for count in (100, 25_000)
    )
    assert small.shard_count("own100") == 1
    assert big.shard_count("own25000") == 3
    wildcards = SimpleNamespace(collection="own25000")
    assert big.machines.memory_mib("index_bm25")(wildcards) > small.machines.memory_mib("index_bm25")(
        SimpleNamespace(collection="own100")
    )
    assert big.collection("own25000").documents is None  # an estimate is never audited
    assert "estimated" not in big.settings("normalize_collection")(wildcards)
