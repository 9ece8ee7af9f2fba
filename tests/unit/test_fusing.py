"""Fused vectors for search: cached or not they are the model's; states are kept within bounds and for one model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from model_helpers import TEXTS, WORDS, shaken_t5

from zerodr.papers.moma import fused_vectors as fusing
from zerodr.papers.moma.augmented_encoder import FusionContract, Grounded
from zerodr.papers.moma.fused_vectors import Fuser, StateCache
from zerodr.papers.moma.fusion_encoder import FusionEncoder

DOCUMENTS = {f"m:{n}": " ".join(WORDS[(n * k) % 16] for k in range(1, 2 + 3 * n)) for n in range(8)}
QUERIES = ["river", "copper engine in winter", "What?", *TEXTS[1:3]]
GIVEN = [["m:1", "m:2", "m:3"], ["m:2", "m:3", "m:7"], [], ["m:5"], ["m:7", "m:1", "m:2"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return shaken_t5(tmp_path_factory.mktemp("t5"))


@pytest.fixture
def model(folder) -> FusionEncoder:
    made = FusionEncoder.load(folder)
    made.fusion = FusionContract(documents=3, document_tokens=20)
    return made


class Texts:
    """Texts of documents, and which were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, keys: list[str]) -> list[str]:
        self.asked += keys
        return [DOCUMENTS[key] for key in keys]


def expected(model: FusionEncoder) -> np.ndarray:
    """The model's own vectors, query by query."""
    rows = [
        Grounded(query, model.tokenize_augmentations([DOCUMENTS[key] for key in own]))
        for query, own in zip(model.tokenize(QUERIES, "query"), GIVEN, strict=True)
    ]
    with torch.no_grad():
        return torch.cat([model.encode(model.pad([row]), "query") for row in rows]).numpy()


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("batch_tokens", [24, 4096])
def test_vectors_are_the_models(model, cached, batch_tokens, monkeypatch):
    texts, cache = Texts(), StateCache(64) if cached else None
    fuser = Fuser(model, cache, batch_tokens)
    np.testing.assert_allclose(fuser.vectors(QUERIES, GIVEN, texts), expected(model), atol=1e-5)
    assert len(texts.asked) == (5 if cached else 10), "with a cache each distinct document is read once"
    monkeypatch.setattr(fusing, "DECODED_STATES", 1)
    np.testing.assert_allclose(fuser.vectors(QUERIES, GIVEN, texts), expected(model), atol=1e-5)
    assert len(texts.asked) == (5 if cached else 20)
    assert cache is None or (cache.hits, cache.misses) == (5, 5)


def test_the_cache_is_bounded_and_forgets_what_was_not_used(model):
    cache, states = StateCache(1), torch.zeros(1024, 64)  # a quarter of a MiB
    for key in "abcd":
        cache.put(key, states)
    assert cache.get("a") is not None
    cache.put("e", states)
    assert [key for key, _ in cache.items()] == ["c", "d", "a", "e"]
    assert cache.get("b") is None and cache.held == 2**20
    cache.forget(["c", "z"])
    assert [key for key, _ in cache.items()] == ["d", "a", "e"] and cache.held == 3 * 2**18
    small = Fuser(model, StateCache(0))
    np.testing.assert_allclose(small.vectors(QUERIES, GIVEN, Texts()), expected(model), atol=1e-5)
