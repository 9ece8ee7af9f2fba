"""Feedback: the formula by hand, shards, queries without documents, refusals, and a brute-force oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from search_helpers import make_collection
from tests.unit.config_helpers import copy_config

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.artifacts.trec import write_run
from zerodr.config.load import load_bench
from zerodr.encoders.folder.attention import softmax
from zerodr.errors import ArtifactError, ConfigError, ProtocolError
from zerodr.plan.plan import Plan
from zerodr.retrieval.feedback import augment_queries

ROOT = Path(__file__).parents[2]
DOCUMENTS, QUERIES = [f"d{i}" for i in range(7)], ["q0", "q1", "d3"]
PARAMS = {
    "memory": "both",
    "documents": 2,
    "inverse_temperature": 2.0,
    "weight": 0.5,
    "collection": "c",
    "split": "test",
    "exclude_self": False,
}
RANKING = {"q0": {"d1": 3.0, "d5": 2.5, "d0": 1.0}, "d3": {"d3": 1.0, "d6": 0.0}}


@pytest.fixture
def vectors(tmp_path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    monkeypatch.chdir(tmp_path)
    make_collection(Path("c"), DOCUMENTS, QUERIES)
    draw = np.random.default_rng(3)
    queries, corpus = (draw.normal(size=(rows, 5)).astype(np.float32) for rows in (3, 7))
    np.save("queries.npy", queries)
    for name, rows in {"whole": slice(None), "left": slice(0, 4), "right": slice(4, None)}.items():
        np.save(f"{name}.npy", corpus[rows])
    return queries, corpus


def augmented(ranking: dict = RANKING, corpus: tuple[str, ...] = ("whole",), **changed) -> np.ndarray:
    rows = [(q, d, s) for q, found in ranking.items() for d, s in found.items()]
    write_run(Path("run.trec.gz"), pd.DataFrame(rows, columns=["query", "document", "score"]), "both")
    inputs = {
        "queries": "queries.npy",
        "corpus": [f"{name}.npy" for name in corpus],
        "run": "run.trec.gz",
        "collection": "c/manifest.json",
    }
    out = f"{'-'.join(corpus)}.{len(changed)}.out.npy"
    spec = StageSpec("augment_queries", 1, {}, inputs, {"embeddings": out}, PARAMS | changed)
    run_spec(spec, augment_queries)
    return np.load(out)


def test_documents_are_added_by_the_softmax_of_their_scores(vectors):
    queries, corpus = vectors
    found = augmented()
    shares = np.exp([0.0, -1.0]) / np.exp([0.0, -1.0]).sum()
    expected = queries[0] + 0.5 * (shares[0] * corpus[1] + shares[1] * corpus[5])
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    assert np.array_equal(found[1], queries[1]), "a query without documents keeps its vector, bit for bit"


def test_weight_0_is_the_plain_model_and_temperature_0_rocchios_mean(vectors):
    queries, corpus = vectors
    assert np.array_equal(augmented(weight=0.0), queries)
    mean = augmented(inverse_temperature=0.0, documents=3)[0]
    np.testing.assert_allclose(mean, queries[0] + 0.5 * corpus[[1, 5, 0]].mean(0), rtol=1e-6)


def test_shards_change_no_bit(vectors):
    assert np.array_equal(augmented(), augmented(corpus=("left", "right")))


def test_large_scores_have_a_softmax():
    assert softmax(np.array([1e6, 1e6, -1e6])).tolist() == [0.5, 0.5, 0.0]


def test_refusals_name_what_is_wrong(vectors):
    with pytest.raises(ArtifactError, match="document 'x' is not in the collection"):
        augmented({"q0": {"x": 1.0}})
    with pytest.raises(ArtifactError, match="query 'other' is none of this split"):
        augmented({"other": {"d1": 1.0}})
    with pytest.raises(ProtocolError, match="'d3' ranks the document with its id"):
        augmented(exclude_self=True)
    with pytest.raises(ArtifactError, match="expected 3 queries and 7 documents, found 3 and 4"):
        augmented(corpus=("left",))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "bm25-flat"}, "method bad: model: bm25-flat is no bi-encoder"),
        ({"model": "nothing"}, "nothing"),
        ({"memory": "zero"}, "method bad: memory: zero finds no documents by itself"),
        ({"weight": -1}, "weight"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(tmp_path, settings, said):
    copy_config(tmp_path)
    written = {"model": "all-minilm-l6-v2", "memory": "bm25-flat"} | settings
    recipe = {"kind": "feedback", "label": "bad", "description": "none", "settings": written}
    (tmp_path / "config/methods/bad.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(ConfigError, match=said):
        load_bench(tmp_path, {"scale": "lab"})


def test_documents_are_not_embedded_again():
    plan = Plan(load_bench(ROOT, {"scale": "lab"}))
    words = type("Words", (), {"model": "zero", "collection": "scifact", "protocol": "standard", "split": "test"})()
    words.shard = "00000-of-00001"
    inputs = plan.inputs("search_shard")(words)
    assert "/all-minilm-l6-v2/" in inputs["corpus"] and "/zero/" in inputs["queries"]
    assert "hybrid+teacher" in plan.inputs("augment_queries")(words)["run"]
