"""Fusion-in-decoder: FidAtt of a small example, invariants of the model, attention that must not be missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from model_helpers import TEXTS, shaken_t5, tiny_collection, tiny_settings
from torch import Tensor

from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.start.initial import from_scratch
from zerodr.errors import ModelError
from zerodr.papers.moma.augmented_encoder import FUSION, FusionContract, Grounded
from zerodr.papers.moma.fid_attention import CrossAttention, check_mass, fid_attention
from zerodr.papers.moma.fused_vectors import decode_once
from zerodr.papers.moma.fusion_encoder import FusionEncoder, cross_attention

DOCUMENTS = ["copper engine", "a garden in winter with candles and silver", "market", "paper harbour signal " * 9]
LAYERS, HEADS = 2, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return shaken_t5(tmp_path_factory.mktemp("t5"))


@pytest.fixture
def model(folder) -> FusionEncoder:
    made = FusionEncoder.load(folder)
    made.fusion = FusionContract(documents=4, document_tokens=20)
    return made


def grounded(model: FusionEncoder, queries: list[str], documents: list[list[str]]) -> dict[str, Tensor]:
    rows = [
        Grounded(query, model.tokenize_augmentations(own))
        for query, own in zip(model.tokenize(queries, "query"), documents, strict=True)
    ]
    return model.pad(rows)


def fused(model: FusionEncoder, queries: list[str], documents: list[list[str]]) -> Tensor:
    with torch.no_grad():
        return model.encode(grounded(model, queries, documents), "query")


def plain(model: BiEncoder, queries: list[str]) -> Tensor:
    with torch.no_grad():
        return model.encode(BiEncoder.pad(model, model.tokenize(queries, "query")), "query")


# ---- FidAtt ----------------------------------------------------------------------------------------------------------
def toy() -> tuple[CrossAttention, Tensor, Tensor]:
    """Attention to [query: 2][d1: 2][d2: 1 + 1 pad], two layers, two heads."""
    logits = torch.tensor([[[0, 0, 0, 0, 0], [1, 0, 0, 2, 1]], [[0, 1, 2, 0, 1], [2, 2, 0, 0, 0]]], dtype=torch.float32)
    logits = torch.cat([logits, torch.full((2, 2, 1), -1e9)], -1)[:, None]  # (L, B, H, T)
    norms = torch.tensor([1.0, 2.0, 1.0, 3.0, 2.0, 5.0]).expand(2, 1, 2, 6)
    return (
        CrossAttention(torch.softmax(logits, -1), norms),
        torch.tensor([[0, 0, 1, 1, 2, 2]]),
        torch.tensor([[1, 1, 1, 1, 1, 0]]),
    )


@pytest.mark.parametrize(
    ("aggregation", "factor", "expected"),
    [
        ("prob_sum", 1, [1.732855, 1.644195, 0.622950]),
        ("prob_valuenorm_sum", 1, [0.00253836, 0.00321132, 0.00121670]),
    ],
)
def test_aggregations(aggregation, factor, expected):
    attention, segments, mask = toy()
    made = fid_attention(attention, segments, mask, 2, aggregation) * factor
    torch.testing.assert_close(made, torch.tensor([expected]), atol=1e-6, rtol=1e-5)


def test_all_attention_is_told():
    attention, segments, mask = toy()
    made = fid_attention(attention, segments, mask, 2)
    assert made.sum().item() == pytest.approx(4.0, abs=1e-5)
    normal = made[0, 1:] / made[0, 1:].sum()
    torch.testing.assert_close(normal, torch.tensor([0.725227, 0.274773]), atol=1e-6, rtol=1e-5)
    check_mass(attention, mask, "toy")
    with pytest.raises(ModelError, match="sums to 1 .* off"):
        check_mass(attention._replace(probabilities=attention.probabilities * 1.1), mask, "toy")
    with pytest.raises(ModelError, match="aggregation prob_valuenorm_sum needs more than probabilities"):
        fid_attention(CrossAttention(attention.probabilities), segments, mask, 2, "prob_valuenorm_sum")


# ---- the model -------------------------------------------------------------------------------------------------------
def test_without_documents_it_is_the_plain_encoder(model, folder):
    expected = plain(BiEncoder.load(folder), TEXTS)
    assert torch.equal(fused(model, TEXTS, [[]] * len(TEXTS)), expected)
    torch.testing.assert_close(plain(model, TEXTS), expected, atol=1e-5, rtol=0)
    mixed = fused(model, TEXTS, [DOCUMENTS, *[[]] * (len(TEXTS) - 1)])
    torch.testing.assert_close(mixed[1:], expected[1:], atol=1e-5, rtol=0)
    assert (mixed[0] - expected[0]).abs().max() > 1e-3, "documents that are there count"


def test_the_order_of_documents_does_not_matter(model):
    one = fused(model, ["river", "stone"], [DOCUMENTS, DOCUMENTS[::-1]])
    other = fused(model, ["river", "stone"], [DOCUMENTS[2:] + DOCUMENTS[:2], DOCUMENTS])
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_a_query_alone_is_the_query_of_a_batch(model):
    together = fused(model, TEXTS[1:4], [DOCUMENTS, DOCUMENTS[:1], DOCUMENTS[1:3]])
    alone = torch.cat(
        [
            fused(model, [text], [own])
            for text, own in zip(TEXTS[1:4], [DOCUMENTS, DOCUMENTS[:1], DOCUMENTS[1:3]], strict=True)
        ]
    )
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_a_document_of_several_queries_is_encoded_once(model):
    features = grounded(model, ["river", "stone"], [DOCUMENTS[:3], DOCUMENTS[1:]])
    assert features["aug_ids"].shape[0] == 4 and features["aug_place"].tolist() == [[0, 1, 2], [1, 2, 3]]
    assert features["aug_ids"].shape[1] == 20, "cut at the length of augmentation documents, not of documents"


def test_attention_of_the_model(model):
    features = grounded(model, TEXTS[:3], [DOCUMENTS, DOCUMENTS[:2], []])
    vectors, attention, segments, mask = cross_attention(model, features, value_norms=True)
    torch.testing.assert_close(vectors, model.encode(features, "query"), atol=1e-5, rtol=0)
    scores = fid_attention(attention, segments, mask, 4)
    torch.testing.assert_close(scores.sum(1), torch.full((3,), float(LAYERS * HEADS)), atol=1e-5, rtol=0)
    assert not scores[1, 3:].any() and not scores[2, 1:].any(), "no mass on documents that are not there"
    assert not attention.probabilities.masked_fill((mask == 1)[None, :, None], 0.0).any(), "no mass on padding"
    assert attention.value_norms.shape == attention.probabilities.shape


def test_attention_in_half_precision(model):
    """It is computed in bfloat16, near float32's, and every head still gives 1 in all."""
    features = grounded(model, TEXTS[:3], [DOCUMENTS, DOCUMENTS[:2], []])
    whole = cross_attention(model, features, value_norms=True)[1]
    model.precision = "bf16"
    vectors, half, segments, mask = cross_attention(model, features, value_norms=True)
    torch.testing.assert_close(vectors, model.encode(features, "query"), atol=2e-2, rtol=2e-2)
    assert not torch.equal(half.probabilities, whole.probabilities)
    torch.testing.assert_close(half.probabilities, whole.probabilities, atol=2e-2, rtol=0)
    scores = fid_attention(half, segments, mask, 4)
    torch.testing.assert_close(scores.sum(1), torch.full((3,), float(LAYERS * HEADS)), atol=1e-4, rtol=0)


def test_attention_that_is_not_given_is_an_error(model, monkeypatch):
    features = grounded(model, ["river"], [DOCUMENTS])
    monkeypatch.setattr("zerodr.papers.moma.fusion_encoder.plain_attention", lambda module: torch.no_grad())
    model.tower("query").transformer.set_attn_implementation("sdpa")
    with pytest.raises(ModelError, match="gave probabilities of 0 of 2 decoder layers"):
        cross_attention(model, features)
    with pytest.raises(ModelError, match="training mode"):
        cross_attention(model.train(), features)


def test_the_attention_implementation_is_put_back(model):
    model.tower("query").transformer.set_attn_implementation("sdpa")
    cross_attention(model, grounded(model, ["river"], [DOCUMENTS]))
    assert model.tower("query").transformer.decoder.config._attn_implementation == "sdpa"


def test_one_decoder_step_without_keys_and_values(model):
    features = grounded(model, TEXTS[:3], [DOCUMENTS, DOCUMENTS[:2], []])
    with torch.no_grad():
        states, mask, _ = model.fused_states(features, "query")
        expected = model.decoded(states, mask, "query").last_hidden_state
        made = decode_once(model.tower("query").transformer, states, mask)
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=0)


def test_gradients_reach_documents(model):
    features = grounded(model, ["river"], [DOCUMENTS[:1]])
    table = model.tower("query").transformer.shared.weight
    only = sorted(set(features["aug_ids"].ravel().tolist()) - set(features["input_ids"].ravel().tolist()) - {0})
    model.encode(features, "query").sum().backward()
    assert table.grad[only].abs().sum() > 0


def test_saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "saved")
    again = FusionEncoder.load(tmp_path / "saved")
    assert again.fusion == model.fusion
    torch.testing.assert_close(fused(again, TEXTS[:1], [DOCUMENTS]), fused(model, TEXTS[:1], [DOCUMENTS]))
    assert json.loads((tmp_path / "saved" / FUSION).read_text()) == {"documents": 4, "document_tokens": 20}
    assert plain(BiEncoder.load(tmp_path / "saved"), TEXTS).shape == (len(TEXTS), 32)


def test_only_t5_can_fuse(tmp_path):
    settings = tiny_settings("t5", pooling="mean")
    from_scratch(settings, tiny_collection(tmp_path / "collection"), 7)[0].save(tmp_path / "mean")
    with pytest.raises(ModelError, match="has pooling mean"):
        FusionEncoder.load(tmp_path / "mean")
    with pytest.raises(ModelError, match="fp16 is refused for T5"):
        FusionEncoder.load(tmp_path / "mean", "fp16")
