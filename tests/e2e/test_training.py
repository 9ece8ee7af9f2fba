"""A chain of two trained episodes through the real workflow: made, evaluated, exported, repeated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.e2e.conftest import snakemake_in
from tests.e2e.test_main_job import zerodr

ROW, EXPORT = "results/beir/t5-ance.tsv", "results/exported/t5-ance/shared/manifest.json"


@pytest.fixture(scope="module")
def trained(bench: Path) -> Path:
    done = snakemake_in(bench)(ROW, EXPORT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return bench


def test_the_row_is_there(trained):
    row = pd.read_csv(trained / ROW, sep="\t", comment="#").set_index("model")
    assert 0 < row.loc["t5-ance", "nfcorpus"] < 0.3


def test_each_episode_learned_from_its_own_negatives(trained):
    first, second = (pq.read_table(trained / f"results/mined/t5-ance/shared/{e}/mined.parquet") for e in ("ep0", "ep1"))
    assert {"query", "positives", "negatives", "negative_ranks"} <= set(first.column_names)
    told = json.loads((trained / "results/mined/t5-ance/shared/ep1/statistics.json").read_text())
    assert told["queries"]["mined"] == len(second) and 0 <= told["previous"]["share"] < 1
    loss = {e: curve(trained, f"results/models/t5-ance/shared/{e}", "loss") for e in ("ep0", "ep1")}
    assert np.mean(loss["ep0"][-10:]) < np.mean(loss["ep0"][:10])


def test_the_export_is_the_model(trained):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(trained / "results/exported/t5-ance/shared"), device="cpu")
    queries = pd.read_parquet(trained / "results/collections/nfcorpus/queries.parquet").set_index("id")["text"]
    judged = pd.read_csv(trained / "results/collections/nfcorpus/qrels.test.tsv", sep="\t", dtype=str)
    ours = np.load(trained / "results/embeddings/t5-ance@ep1/shared/nfcorpus/standard/queries.test.npy")
    theirs = model.encode_query([queries[q] for q in queries.index if q in set(judged.iloc[:, 0])])
    cosine = (ours * theirs).sum(1) / (np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1))
    assert len(ours) == len(theirs) and cosine.min() > 0.99999


def test_lineage_goes_through_both_episodes(trained):
    done = zerodr(trained, "lineage", ROW)
    assert done.returncode == 0, done.stderr
    for name in ("t5-ance/shared/ep1", "t5-ance/shared/ep0", "t5-ance/shared/init", "nfcorpus.zip", "candidates"):
        assert name in done.stdout


def test_a_second_run_trains_nothing(trained):
    done = snakemake_in(trained)(ROW, EXPORT, "-n")
    assert "Nothing to be done" in done.stdout + done.stderr


def curve(root: Path, folder: str, name: str) -> list[float]:
    """Points of a training curve in a record."""
    metrics = json.loads((root / folder / "lineage.json").read_text())["metrics"]
    return [metric["value"] for metric in metrics if metric["name"] == name]
