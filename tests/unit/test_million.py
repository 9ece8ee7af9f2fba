"""The benchmark of a million documents: which of Snakemake's figures are of which size."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

PLACES = {
    "normalize_collection/synthetic-100000.tsv": (200.0, 4.0),
    "normalize_collection/synthetic-1000000.tsv": (220.0, 40.0),
    "embed_corpus/dense/shared/synthetic-100000/standard/00000-of-00002.tsv": (500.0, 10.0),
    "embed_corpus/dense/shared/synthetic-100000/standard/00001-of-00002.tsv": (510.0, 11.0),
    "embed_corpus/dense/shared/synthetic-100000/standard/00000-of-00010.tsv": (1.0, 1.0),
    "embed_corpus/dense/shared/synthetic-1000000/standard/00000-of-00002.tsv": (520.0, 100.0),
    "embed_corpus/other/shared/synthetic-100000/standard/00000-of-00002.tsv": (9000.0, 9000.0),
    "search_shard/dense@ep0/synthetic-100000/standard/00000-of-00002.tsv": (300.0, 3.0),
    "search_shard/denser/synthetic-100000/standard/00000-of-00002.tsv": (9000.0, 9000.0),
}


@pytest.fixture
def million(root):
    spec = importlib.util.spec_from_file_location("million", root / "benchmarks/million.py")
    sys.modules["million"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["million"]


def test_sizes_models_and_shards_are_not_mixed(million, tmp_path):
    for number, (place, (peak, seconds)) in enumerate(PLACES.items()):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(f"s\tmax_rss\tcpu_time\n{seconds}\t{peak}\t{2 * seconds}\n")
        os.utime(tmp_path / place, (1000 + number, 1000 + number))
    assert million.measured(tmp_path, "synthetic-100000", "dense") == {
        "normalize_collection": [(200.0, 4.0, 8.0)],
        "embed_corpus": [(1.0, 1.0, 2.0)],
        "search_shard": [(300.0, 3.0, 6.0)],
    }
    assert million.measured(tmp_path, "synthetic-1000000", "dense")["embed_corpus"] == [(520.0, 100.0, 200.0)]
    os.utime(tmp_path / "embed_corpus/dense/shared/synthetic-100000/standard/00001-of-00002.tsv", (2000, 2000))
    assert million.measured(tmp_path, "synthetic-100000", "dense")["embed_corpus"] == [
        (500.0, 10.0, 20.0),
        (510.0, 11.0, 22.0),
    ]
