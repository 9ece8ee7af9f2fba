"""Span corruption: input and target hold the text between them; the stage trains a T5 on both losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.model_helpers import TEXTS, tiny_model
from tests.unit.pretraining_helpers import forward, lay_out, pretrain_spec

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import run_spec
from zerodr.config.pretraining import PretrainSettings
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.pretraining.condenser import HeadedEncoder, real_tokens
from zerodr.training.pretraining.masking import Words, corrupt, sentinels_of, stretches
from zerodr.training.pretraining.passages import PassageBatch

MARKS = np.arange(1000, 1100)


def words(length: int) -> Words:
    return Words(np.arange(1, 1 + length), np.arange(length))


def put_back(left: np.ndarray, told: np.ndarray) -> list[int]:
    """The text, from what is left and what is told."""
    stretches: dict[int, list[int]] = {}
    for token in told.tolist():
        if token >= 1000:
            stretches[token] = []
        else:
            stretches[list(stretches)[-1]].append(token)
    return [token for part in left.tolist() for token in (stretches[part] if part >= 1000 else [part])]


@given(length=st.integers(0, 80), rate=st.floats(0.05, 0.9), span=st.floats(1, 6), row=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_nothing_is_lost(length, rate, span, row):
    ((left, told),) = corrupt([words(length)], rate, span, MARKS, [3], np.array([row]))
    assert put_back(left, told) == list(range(1, 1 + length))
    cut = told[told < 1000]
    assert len(cut) == (min(length, max(1, round(rate * length))) if length else 0)
    marks = left[left >= 1000].tolist()
    assert marks == told[told >= 1000].tolist() == list(range(1000, 1000 + len(marks)))
    beside = np.flatnonzero(left[:-1] >= 1000)
    assert not (left[beside + 1] >= 1000).any(), "two stretches never stand beside each other"


def test_the_number_of_the_text_decides():
    texts = [words(40), words(40), words(40)]
    (a, b, c), (again,) = (
        corrupt(texts, 0.15, 3.0, MARKS, [1, 2], np.array([0, 1, 2])),
        corrupt(texts[1:2], 0.15, 3.0, MARKS, [1, 2], np.array([1])),
    )
    assert np.array_equal(b[0], again[0]) and not np.array_equal(a[0], b[0]) and not np.array_equal(b[0], c[0])
    generator = np.random.default_rng(0)
    counts = [len(stretches(60, 0.15, 3.0, 100, generator)) for _ in range(20)]
    assert set(counts) == {3}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("t5"), "t5", pooling="decoder_first")


def test_sentinels_are_tokens_that_no_text_needs(model):
    marks = sentinels_of(model.tokenizer)
    assert len(set(marks.tolist())) == 100 and not {*marks.tolist()} & {*model.tokenizer.all_special_ids}

    class Named:
        all_special_ids = [0]

        def get_vocab(self) -> dict[str, int]:
            return {"<pad>": 0, "a": 1, "<extra_id_1>": 2, "<extra_id_0>": 3}

    assert sentinels_of(Named()).tolist() == [3, 2]


def test_one_pass_gives_the_vector_and_the_loss(model):
    headed = HeadedEncoder(model, "none", 0, False)
    features = model.pad(model.tokenize(TEXTS, "document"))
    targets = model.pad([[7, 8, 9, 1]] * 3 + [[7, 1]] * 3)
    with torch.no_grad():
        vectors, loss = headed.generation(features, targets, *real_tokens(targets))
        torch.testing.assert_close(vectors, model.encode(features, "document"), atol=1e-5, rtol=0)
        labels = targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)
        from transformers import T5ForConditionalGeneration

        whole = T5ForConditionalGeneration(model.tower("document").transformer.config)
        whole.eval().load_state_dict(model.tower("document").transformer.state_dict(), strict=False)
        whole.lm_head.weight = whole.shared.weight
        expected = whole(**features, labels=labels).loss * targets["attention_mask"].sum()
    torch.testing.assert_close(loss, expected, atol=1e-3, rtol=1e-4)


def test_a_t5_is_pretrained_with_and_without_gradient_caching(tmp_path, monkeypatch):
    monkeypatch.chdir(lay_out(tmp_path, "t5", pooling="decoder_first"))
    for place, chunk in (("plain", None), ("cached", 6)):
        run_spec(pretrain_spec(place, "t5_coco", steps=3, cache_chunk=chunk, dropout=0.0))
        told = {point["name"] for point in read_record(f"results/{place}/manifest.json")["metrics"]}
        assert {"contrastive", "span_corruption", "dev.span_corruption", "dev.alignment"} <= told
    plain, cached = (BiEncoder.load(tmp_path / "results" / place) for place in ("plain", "cached"))
    for one, other in zip(plain.parameters(), cached.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=5e-4, rtol=1e-3)
    start = BiEncoder.load(tmp_path / "results/init")
    assert any(not torch.equal(a, b) for a, b in zip(start.parameters(), plain.parameters(), strict=True))


def test_both_passes_of_caching_draw_the_same_dropout(tmp_path):
    made = forward(lay_out(tmp_path, "t5", pooling="decoder_first"), "t5_coco", dropout=0.1)
    views = made.padded(made.maker.make(PassageBatch(0, np.arange(4), np.random.default_rng(0).random((4, 3)))))
    with torch.no_grad():
        first, again = made.encode(views, 0, [1]), made.run(views, 0, [1], {"span_corruption": 1.0})[0]
        other = made.encode(views, 0, [2])
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_options_of_other_objectives_are_refused():
    assert PretrainSettings(name="t5_coco", corruption_rate=0.2).contrasts
    with pytest.raises(ValueError, match="mask_rate is not for t5_coco"):
        PretrainSettings(name="t5_coco", mask_rate=0.3)
    with pytest.raises(ValueError, match="corruption_rate is not for coco"):
        PretrainSettings(name="coco", corruption_rate=0.3)
