"""Learned attention: the formula, a start at the plain model, what is learned, same seed same bytes, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
import yaml
from search_helpers import make_collection
from tests.unit.config_helpers import copy_config

from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.feedback import Feedback
from zerodr.config.load import load_bench
from zerodr.encoders.folder.attention import WEIGHTS, Attention, softmax
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.plan.plan import PARAMS as PARAMETERS
from zerodr.plan.plan import Plan
from zerodr.retrieval.learn_attention import AttentionBatch, LearnedAttention, learn_attention

ROOT = Path(__file__).parents[2]
SIZE, DOCUMENTS, QUERIES = 8, [f"d{i:02}" for i in range(40)], [f"q{i:02}" for i in range(30)]
TRAINING = {"width": 4, "steps": 60, "batch_queries": 8, "dev_queries": 6, "first": 5, "learning_rate": 0.05}
PARAMS = {"collection": "c", "documents": 3, "inverse_temperature": 1.0, "weight": 0.0}


@pytest.fixture
def source(tmp_path, monkeypatch) -> Path:
    """A source whose ranking has each question's positive first, which its vector alone does not find."""
    monkeypatch.chdir(tmp_path)
    make_collection(Path("c"), DOCUMENTS, QUERIES)
    lines = [f"{query}\t{DOCUMENTS[row]}\t1" for row, query in enumerate(QUERIES)]
    Path("c/qrels.train.tsv").write_text("\n".join(["query\tdocument\tgrade", *lines]) + "\n")
    draw = np.random.default_rng(3)
    for name, rows in (("queries", 30), ("corpus", 40)):
        vectors = draw.normal(size=(rows, SIZE)).astype(np.float32)
        np.save(f"{name}.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    found = [[DOCUMENTS[(row + step) % 40] for step in range(6)] for row in range(30)]
    scores = np.tile(np.array([3, 1, 0.5, 0.4, 0.3, 0.2], np.float32), 30)
    with RankingsWriter(Path("ranking.parquet"), 6) as writer:
        writer.write(Rankings(pa.array(QUERIES), np.full(30, 6), pa.array(sum(found, [])), scores))
    return tmp_path


def learn(out: str = "learned", seed: int = 7, more: dict | None = None, **changed) -> Attention:
    """Run the stage."""
    inputs = {
        "queries": "queries.npy",
        "corpus": ["corpus.npy"],
        "ranking": "ranking.parquet",
        "collection": "c/manifest.json",
    }
    params = PARAMS | {"attention": TRAINING | changed} | (more or {})
    run_spec(
        StageSpec("learn_attention", 1, {}, inputs, {"attention": f"{out}/manifest.json"}, params, seed),
        learn_attention,
    )
    return Attention.load(Path(out))


def test_shares_are_the_softmax_of_scores_and_projected_products():
    draw = np.random.default_rng(0)
    a, b, query = (draw.normal(size=shape).astype(np.float32) for shape in ((2, 3), (2, 3), (3,)))
    documents, scores = draw.normal(size=(4, 3)).astype(np.float32), np.array([2.0, 1.0, 0.5, 0.0], np.float32)
    shares = Attention(1.5, 0.3, a, b).shares(query, documents, scores)
    logits = [1.5 * score + (a @ query) @ (b @ document) for score, document in zip(scores, documents, strict=True)]
    np.testing.assert_allclose(shares, softmax(np.array(logits)), rtol=1e-5)


def test_training_and_search_compute_the_same_vectors():
    torch.manual_seed(1)
    network, draw = LearnedAttention(Feedback(weight=0.4), 6, 3), np.random.default_rng(1)
    queries, documents = draw.normal(size=(2, 6)).astype(np.float32), draw.normal(size=(2, 5, 6)).astype(np.float32)
    scores, missing = draw.normal(size=(2, 5)).astype(np.float32), np.zeros((2, 5), bool)
    missing[1, 3:] = True
    found = network(
        AttentionBatch(*map(torch.from_numpy, (queries, documents, scores, missing, queries, missing)))
    ).detach()
    learned = network.attention()
    for row, count in ((0, 5), (1, 3)):
        share = learned.shares(queries[row], documents[row, :count], scores[row, :count])
        vector = queries[row] + learned.weight * share @ documents[row, :count]
        np.testing.assert_allclose(found[row], vector / np.linalg.norm(vector), rtol=1e-5, atol=1e-6)


def test_no_step_is_the_plain_model(source):
    assert learn(steps=0).weight == 0.0


def test_a_ranking_that_finds_positives_is_trusted(source):
    learned = learn()
    assert learned.weight > 0.5 and learned.inverse_temperature > 1.0


def test_a_ranking_that_finds_nothing_is_not_trusted(source):
    found = [[DOCUMENTS[(row + step) % 40] for step in range(10, 16)] for row in range(30)]
    with RankingsWriter(Path("ranking.parquet"), 6) as writer:
        scores = np.tile(np.array([3, 1, 0.5, 0.4, 0.3, 0.2], np.float32), 30)
        writer.write(Rankings(pa.array(QUERIES), np.full(30, 6), pa.array(sum(found, [])), scores))
    assert learn().weight < 0.25, "found documents are those of other questions"


def test_equal_seeds_give_equal_bytes(source):
    for out, seed in (("a", 7), ("b", 7), ("c2", 8)):
        learn(out, seed)
    first, again, other = (Path(out, WEIGHTS).read_bytes() for out in ("a", "b", "c2"))
    assert first == again != other


def test_a_question_that_is_a_document_is_neither_read_nor_its_own_negative(source):
    documents = [*QUERIES, *DOCUMENTS[30:]]  # of the same number, so that vectors fit
    make_collection(Path("c"), documents, QUERIES)
    lines = [f"{query}\t{documents[(row + 1) % 40]}\t1" for row, query in enumerate(QUERIES)]
    Path("c/qrels.train.tsv").write_text("\n".join(["query\tdocument\tgrade", *lines]) + "\n")
    scores = np.array([3, 1, 0.5, 0.4, 0.3, 0.2], np.float32)
    for first in (0, 1):  # with the question itself before all others, or without it
        found = [[documents[(row + step) % 40] for step in range(first, 6)] for row in range(30)]
        with RankingsWriter(Path("ranking.parquet"), 6 - first) as writer:
            ranked = pa.array(sum(found, []))
            writer.write(Rankings(pa.array(QUERIES), np.full(30, 6 - first), ranked, np.tile(scores[first:], 30)))
        for alone in (False, True):
            learn(f"{first}-{alone}", more={"exclude_self": True} if alone else None)
    learned = {name: Path(name, WEIGHTS).read_bytes() for name in ("0-False", "0-True", "1-False", "1-True")}
    assert learned["0-True"] == learned["1-False"] == learned["1-True"] != learned["0-False"]


def test_refusals_name_what_is_wrong(source):
    with pytest.raises(CollectionError, match="has 30 questions with a positive, expected at least 25 held out and 8"):
        learn(dev_queries=25)
    np.save("queries.npy", np.zeros((3, SIZE), np.float32))
    with pytest.raises(ArtifactError, match="expected 30 queries and 40 documents, found 3 and 40"):
        learn()
    Path("learned").mkdir(exist_ok=True)
    Path("learned", WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match="is no learned attention"):
        Attention.load(Path("learned"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "adapt-query"}, "moma-minilm: model: adapt-query was trained for one target"),
        ({"attention": {"source_split": "tran"}}, "has no judgements for split 'tran'.*train"),
    ],
)
def test_recipes_that_can_learn_no_attention_are_refused(tmp_path, settings, said):
    copy_config(tmp_path)
    path = tmp_path / "config/methods/moma-minilm.yaml"
    recipe = yaml.safe_load(path.read_text())
    recipe["settings"] = recipe["settings"] | settings
    path.write_text(yaml.safe_dump(recipe))
    with pytest.raises(ConfigError, match=said):
        load_bench(tmp_path, {"scale": "lab"})


def test_the_plan_learns_on_the_source_and_reads_it_on_targets(monkeypatch):
    plan = Plan(load_bench(ROOT, {"scale": "lab"}))
    words = type("Words", (), {"model": "moma-minilm", "collection": "scifact", "protocol": "standard"})()
    taught = plan.inputs("learn_attention")(words)
    assert "squad-v1.1/train.top100" in taught["ranking"] and "queries.train" in taught["queries"]
    assert plan.inputs("augment_queries")(words)["attention"] == "results/attention/moma-minilm/manifest.json"
    assert "exclude_self" not in PARAMETERS["learn_attention"](plan, words)
    row = plan.collection(plan.source).model_copy(update={"exclude_self": True})
    monkeypatch.setitem(plan.bench.collections, plan.source, row)
    assert PARAMETERS["learn_attention"](plan, words)["exclude_self"] is True
