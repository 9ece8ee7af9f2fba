"""Model, memories, rankings and fused queries that the stages of MoMA write, for the tests of its retriever."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from moma_helpers import DOCUMENTS, JOINS, QUERIES, K, collection, run, t5

NAMES, JOIN = ("source", "other"), ". "
EMBEDDING = {"query_tokens": None, "document_tokens": None, "title_join": " ", "precision": "fp32", "batch_tokens": 256}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Model, embeddings by its augmenter, rankings of the mixture, fused queries, exported memories."""
    folder = tmp_path_factory.mktemp("moma")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        collection("source", DOCUMENTS, QUERIES)
        collection("other", DOCUMENTS, seed=1)
        t5("main")
        t5("augmenter", seed=8)
        Path("main/fusion.json").write_text(json.dumps({"documents": K, "document_tokens": 16}))
        run(
            "papers.moma.augmenter:join_components",
            {"main": "main/manifest.json", "augmenter": "augmenter/manifest.json"},
            {"model": "model/manifest.json"},
            {"parent_learned": False},
        )
        for name in NAMES:
            embed(name)
        run(
            "papers.moma.embed_memory:embed_memory_queries",
            {"collection": "source/manifest.json", "model": "model/manifest.json"},
            {"embeddings": "queries.npy"},
            EMBEDDING | {"collection": "source", "split": "train"},
        )
        for name in NAMES:
            run(
                "papers.moma.search_memory:search_memory",
                {
                    "queries": "queries.npy",
                    "corpus": f"{name}.npy",
                    "collection": "source/manifest.json",
                    "memory": f"{name}/manifest.json",
                },
                {"hits": f"{name}.parquet"},
                {
                    "collection": "source",
                    "split": "train",
                    "memory": name,
                    "depth": K,
                    "title_join": " ",
                    "exclude_self": False,
                    "shard": 0,
                    "shards": 1,
                },
            )
        run(
            "papers.moma.search_memory:merge_memories",
            {
                "hits": [f"{name}.parquet" for name in NAMES],
                "collection": "source/manifest.json",
                "memories": [f"{name}/manifest.json" for name in NAMES],
            },
            {"rankings": "rankings.parquet"},
            {"collection": "source", "split": "train", "memories": NAMES, "depth": K, "needed": K},
        )
        fused("fused.npy")
    return folder


def embed(name: str) -> None:
    """Vectors of a memory by the augmenter, and the exported memory."""
    run(
        "papers.moma.embed_memory:embed_memory",
        {"collection": f"{name}/manifest.json", "model": "model/manifest.json"},
        {"embeddings": f"{name}.npy"},
        EMBEDDING | {"collection": name, "shard": 0, "shards": 1, "title_join": JOIN},
    )
    run(
        "papers.moma.retriever:export_memory",
        {"collection": f"{name}/manifest.json", "embeddings": f"{name}.npy", "model": "model/manifest.json"},
        {"memory": f"exported-{name}/manifest.json"},
        {"memory": name, "title_join": JOIN},
    )


def fused(place: str, **more: object) -> np.ndarray:
    run(
        "papers.moma.embed_fused:embed_fused_queries",
        {
            "collection": "source/manifest.json",
            "model": "model/manifest.json",
            "rankings": "rankings.parquet",
            "memories": [f"{name}/manifest.json" for name in NAMES],
        },
        {"embeddings": place},
        EMBEDDING
        | {"collection": "source", "split": "train", "joins": JOINS, "documents": K, "document_limit": 16}
        | more,
    )
    return np.load(place)


@pytest.fixture
def here(made, monkeypatch):
    monkeypatch.chdir(made)
    return made
