"""Training of queries alone, against embeddings of documents that stay as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tests.unit.weighting_helpers import PAIRWISE, batch_of, weighted, with_groups
from training_helpers import finetune_spec, load_tiny, make_mined, make_source, seal, tiny_model

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import corpus_ids
from zerodr.config.stages import FinetuneStage
from zerodr.errors import ConfigError, ModelError
from zerodr.training.data.examples import load_examples
from zerodr.training.data.frozen_index import FrozenForward
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import add_gradients

SHARDS = ("results/corpus-0.npy", "results/corpus-1.npy")


@pytest.fixture
def project(tmp_path, monkeypatch):
    make_source(tmp_path / "results/source")
    make_mined(tmp_path / "results/mined")
    make_mined(tmp_path / "results/scored", scored=True)
    seal(tiny_model(tmp_path / "results/init", towers="separate"))
    vectors = embedded(tmp_path)
    for path, rows in zip(SHARDS, np.split(vectors, [25]), strict=True):
        np.save(tmp_path / path, rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def embedded(root) -> np.ndarray:
    """Embeddings of the source's documents by the initial model, in the corpus's order."""
    corpus = pq.read_table(root / "results/source/corpus.parquet").to_pylist()
    texts = [f"{row['title']} {row['text']}" if row["title"] else row["text"] for row in corpus]
    model = load_tiny(root / "results/init").eval()
    with torch.no_grad():
        return np.concatenate([model.encode(model.pad(model.tokenize([t], "document")), "document") for t in texts])


def frozen_spec(vectors: list[str], keep_index: str | None = "encoder", **changes) -> StageSpec:
    spec = finetune_spec(name="kl", negatives_per_query=2, dropout=0.0, dev_queries=0, **changes)
    params = spec.params | {"settings": spec.params["settings"] | {"keep_index": keep_index}}
    inputs = spec.inputs | {"scored": "results/scored/manifest.json"} | ({"vectors": vectors} if vectors else {})
    return replace(spec, inputs=inputs, params=params)


def test_queries_learn_and_documents_stay(project):
    run_spec(frozen_spec(list(SHARDS)))
    same = {
        side: (project / f"results/ep0/{side}/model.safetensors").read_bytes()
        == (project / f"results/init/{side}/model.safetensors").read_bytes()
        for side in ("query", "document")
    }
    assert same == {"query": False, "document": True}


def test_the_gradient_is_that_of_encoding_the_documents(project):
    """One step with kept vectors moves the query tower as one that embeds the same frozen documents does."""
    run_spec(frozen_spec(list(SHARDS), steps=1, place="frozen"))
    run_spec(frozen_spec([], keep_index=None, steps=1, place="whole"))
    towers = [load_tiny(project / f"results/{name}").tower("query").state_dict() for name in ("frozen", "whole")]
    for name, weight in towers[0].items():
        torch.testing.assert_close(weight, towers[1][name], atol=2e-5, rtol=1e-4)


def test_vectors_of_another_model_are_refused(project):
    np.save(project / SHARDS[0], np.roll(np.load(project / SHARDS[0]), 1, axis=0))
    with pytest.raises(ModelError, match="embeds documents unlike keep_index does: cosine"):
        run_spec(frozen_spec(list(SHARDS)))


def test_settings_and_vectors_go_together(project):
    with pytest.raises(ConfigError, match="go together"):
        run_spec(frozen_spec([]))


def test_scores_come_from_the_mined_file_of_a_ranking_that_teaches(project):
    (project / "results/scored/scored.parquet").rename(project / "results/scored/mined.parquet")
    examples = load_examples(project / "results/scored", project / "results/source", " ")
    assert examples.scores is not None and len(corpus_ids(project / "results/source")) == 60


def test_group_weights_are_those_of_the_gradients_of_queries(project):
    examples = with_groups(load_examples(project / "results/mined", project / "results/source", " "))
    model = load_tiny(project / "results/init").eval()
    with torch.no_grad():
        texts = model.tokenize(examples.texts_of_documents(np.arange(len(examples.documents))), "document")
        vectors = model.encode(model.pad(texts), "document").numpy()
    model.tower("document").requires_grad_(False)
    forward, omegas = FrozenForward(model, examples, "cpu", vectors_of_documents=vectors), []
    for engine in ("segment", "loop"):
        groups = weighted(model, examples, engine=engine, temperature=100.0)
        forward.by_group = groups.by_group
        add_gradients(forward, groups, forward.prepare(batch_of(examples), Group()), Group(), [1, 0])
        groups.on_step(1)
        omegas.append(groups.state.omega)
    assert omegas[1].std() > 1e-5
    torch.testing.assert_close(omegas[0], omegas[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("keys", [{"adversary": {}, "scope": "target"}, {"units": {}, "berm": {}}, {"rem": {}}])
def test_what_reads_documents_is_refused(keys):
    with pytest.raises(ValueError, match="keep_index leaves documents unread"):
        FinetuneStage(objective=PAIRWISE, keep_index="encoder", **keys)
