"""The trainable bi-encoder: gradients, folders, and the same vectors from all three ways of loading."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from model_helpers import TEXTS, cosines, relative_files, shaken, tiny_model, vectors
from transformers import AutoModel

from zerodr.encoders.folder.contract import SIDES, read_contract
from zerodr.encoders.folder.layout import check_layout
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.trainable import BiEncoder, parameter_count, trained_parameters
from zerodr.errors import ModelError

KINDS = {
    "bert-cls-dot": ("bert", {}),
    "bert-mean-cosine": ("bert", {"pooling": "mean", "similarity": "cosine"}),
    "bert-separate": ("bert", {"towers": "separate"}),
    "roberta": ("roberta", {}),
    "roberta-ance": ("roberta", {"head": "ance"}),
    "roberta-ance-separate-cosine": ("roberta", {"head": "ance", "towers": "separate", "similarity": "cosine"}),
    "distilbert-mean": ("distilbert", {"pooling": "mean"}),
    "t5-decoder-first": ("t5", {"pooling": "decoder_first"}),
    "t5-decoder-first-ance-cosine": ("t5", {"pooling": "decoder_first", "head": "ance", "similarity": "cosine"}),
    "t5-decoder-first-separate": ("t5", {"pooling": "decoder_first", "towers": "separate"}),
    "t5-mean": ("t5", {"pooling": "mean"}),
}


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS.keys())
def saved(request, tmp_path_factory):
    """A model and the folder it was saved to."""
    place = tmp_path_factory.mktemp("kind")
    family, more = request.param
    model = shaken(tiny_model(place, family, **more))
    model.contract = model.contract.model_copy(update={"query_prefix": "ask: "})
    model.save(place / "model")
    return model, place / "model"


def test_loading_gives_the_saved_vectors_exactly(saved):
    model, folder = saved
    again = BiEncoder.load(folder)
    assert again.contract == model.contract == read_contract(folder)
    for side in SIDES:
        assert np.array_equal(vectors(model, side), vectors(again, side))


def test_the_search_path_gives_the_same_vectors(saved):
    model, folder = saved
    check_layout(folder, model.contract)
    for side in SIDES:
        encoder = load_encoder(folder, side=side, device="cpu")
        tokens = encoder.tokenize(TEXTS, model.contract.prefix(side), model.contract.tokens(side))
        found = encoder.encode_batch([tokens[i] for i in range(len(TEXTS))])
        assert [list(tokens[i]) for i in range(len(TEXTS))] == model.tokenize(TEXTS, side)
        assert np.abs(found - vectors(model, side)).max() < 2e-5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sentence_transformers_gives_the_same_vectors(saved, caplog):
    from sentence_transformers import SentenceTransformer

    model, folder = saved
    other = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    assert "LOAD REPORT" not in caplog.text
    assert other.get_embedding_dimension() == model.contract.dimension
    for side, encode in (("query", other.encode_query), ("document", other.encode_document)):
        theirs, ours = encode(TEXTS), vectors(model, side)
        assert cosines(theirs, ours).min() > 0.99999
        assert np.abs(theirs - ours).max() < 2e-5
    assert other.similarity_fn_name == model.contract.similarity


def test_equal_weights_give_equal_bytes_and_no_file_names_a_place(saved, tmp_path):
    model, folder = saved
    model.tokenizer(TEXTS, truncation=True, max_length=5, padding="max_length")  # leaves settings in the tokenizer
    model.save(tmp_path / "again")
    BiEncoder.load(folder).save(tmp_path / "third")
    files = relative_files(folder)
    assert files == relative_files(tmp_path / "again") == relative_files(tmp_path / "third")
    assert {name.rsplit(".", 1)[-1] for name in files} <= {"json", "safetensors", "txt"}
    assert not [name for name, data in files.items() if str(folder.parent).encode() in data]


def test_every_trained_weight_gets_a_gradient(saved):
    model, _ = saved
    model.zero_grad()
    queries, documents = (model.encode(model.pad(model.tokenize(TEXTS, side)), side) for side in SIDES)
    torch.logsumexp(model.score(queries, documents) / 10, 1).sum().backward()
    assert [name for name, weight in trained_parameters(model) if weight.grad is None] == []
    assert [n for n, w in model.named_parameters() if w.grad is not None and not w.requires_grad] == []
    assert "pooler" not in " ".join(name for name, _ in trained_parameters(model))
    model.zero_grad()


def test_padding_does_not_change_a_vector(saved):
    model, _ = saved
    together = vectors(model, "document")
    alone = np.concatenate([vectors(model, "document", [text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-5


def test_separate_towers_differ_and_tied_ones_do_not(saved):
    model, _ = saved
    ids = model.pad(model.tokenize(TEXTS, "document"))
    with torch.no_grad():
        same = torch.equal(model.encode(ids, "query"), model.encode(ids, "document"))
    assert same == (model.contract.towers == "tied")


def test_lengths_and_prefixes_follow_the_side(tmp_path):
    model = tiny_model(tmp_path)
    model.contract = model.contract.model_copy(update={"query_prefix": "river "})
    (query,), (document,) = model.tokenize(["harbour " * 90], "query"), model.tokenize(["harbour " * 90], "document")
    assert (len(query), len(document)) == (12, 40)
    assert query[:2] == model.tokenize(["river"], "document")[0][:2]
    assert query[-1] == document[-1] == model.tokenizer.sep_token_id


def test_pad_fills_on_the_right_up_to_the_longest(tmp_path):
    features = tiny_model(tmp_path, "roberta").pad([[5, 6, 7], [8]])
    assert features["input_ids"].tolist() == [[5, 6, 7], [8, 1, 1]]
    assert features["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


def test_score_is_the_inner_product(tmp_path):
    queries, documents = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 1.0], [1.0, 0.2]])
    assert torch.allclose(tiny_model(tmp_path).score(queries, documents), torch.tensor([[2.5, 1.4]]))


def test_the_decoder_reads_one_start_token_after_its_final_norm(tmp_path):
    model = tiny_model(tmp_path, "t5", pooling="decoder_first")
    transformer = model.tower("query").transformer
    assert type(transformer).__name__ == "T5Model"  # no language-model head
    features = model.pad(model.tokenize(TEXTS, "document"))
    kept = []
    hook = transformer.decoder.final_layer_norm.register_forward_hook(lambda m, i, out: kept.append(out.detach()))
    with torch.no_grad():
        found = model.encode(features, "document")
    hook.remove()
    assert kept[0].shape == (len(TEXTS), 1, 32) and torch.equal(kept[0][:, 0], found)
    start = torch.zeros(len(TEXTS), 1, dtype=torch.long)
    assert model.tokenizer.pad_token_id == transformer.config.decoder_start_token_id == 0
    with torch.no_grad():
        longer = transformer(**features, decoder_input_ids=torch.cat([start, start + 9], 1)).last_hidden_state[:, 0]
    assert torch.allclose(longer, found, atol=1e-6)  # the decoder is causal


def test_a_fresh_ance_head_gives_vectors_of_length_root_of_the_dimension(tmp_path):
    model = tiny_model(tmp_path, "roberta", head="ance")
    dense, norm = model.tower("query").projections
    assert abs(dense.linear.weight.std().item() - 0.02) < 0.002 and not dense.linear.bias.any()
    assert norm.norm.weight.eq(1).all() and norm.norm.eps == 1e-5
    lengths = np.linalg.norm(vectors(model, "query"), axis=1)
    assert np.all(np.abs(lengths - 32**0.5) < 0.3)  # a little less where eps counts


def test_cosine_scales_to_length_one(tmp_path):
    found = vectors(tiny_model(tmp_path, similarity="cosine"), "query")
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-6


def test_bfloat16_is_near_and_keeps_weights_and_vectors_in_float32(tmp_path):
    model = tiny_model(tmp_path, "roberta", head="ance")
    model.save(tmp_path / "m")
    near = BiEncoder.load(tmp_path / "m", "bf16")
    assert {w.dtype for w in near.parameters()} == {torch.float32}
    found, exact = vectors(near, "query"), vectors(model, "query")
    assert found.dtype == np.float32 and not np.array_equal(found, exact) and cosines(found, exact).min() > 0.99


def test_fp16_is_refused_with_the_reason(tmp_path):
    tiny_model(tmp_path, "t5", pooling="decoder_first").save(tmp_path / "t5")
    for load in (BiEncoder.load, load_encoder):
        with pytest.raises(ModelError, match="fp16 is refused for T5.*65504.*bf16 or fp32"):
            load(tmp_path / "t5", "fp16")
    tiny_model(tmp_path).save(tmp_path / "bert")
    with pytest.raises(ModelError, match="fp16 needs a GPU"):
        vectors(BiEncoder.load(tmp_path / "bert", "fp16"), "query")


def test_separate_towers_need_a_side(tmp_path):
    tiny_model(tmp_path, towers="separate").save(tmp_path / "m")
    with pytest.raises(ModelError, match="separate towers.*query or document"):
        load_encoder(tmp_path / "m")


def test_a_tower_of_another_contract_is_noticed(tmp_path):
    model = tiny_model(tmp_path, towers="separate")
    model.save(tmp_path / "m")
    path = tmp_path / "m/query/zerodr.json"
    path.write_text(path.read_text().replace('"pooling": "cls"', '"pooling": "mean"'))
    with pytest.raises(ModelError, match="tower query has another contract"):
        check_layout(tmp_path / "m", model.contract)


def test_tokenizer_and_model_must_have_one_vocabulary(tmp_path):
    fewer = {"family": "roberta", "hidden": 32, "layers": 2, "heads": 4, "vocabulary": 300}
    model, roberta = tiny_model(tmp_path), tiny_model(tmp_path, "roberta", architecture=fewer)
    bigger, smaller = (model, roberta) if len(model.tokenizer) > len(roberta.tokenizer) else (roberta, model)
    with pytest.raises(ModelError, match=r"tokenizer knows \d+ tokens, the model's embedding table has \d+ rows"):
        BiEncoder(smaller.contract, bigger.tokenizer, dict(smaller.towers))


def test_the_encoder_of_t5_alone_is_saved_alone(tmp_path):
    model = tiny_model(tmp_path, "t5", pooling="mean")
    model.save(tmp_path / "m")
    from safetensors.torch import load_file

    assert not [name for name in load_file(tmp_path / "m/model.safetensors") if name.startswith("decoder")]
    assert model.contract.architecture == "T5EncoderModel"


def test_the_frozen_pooler_stays_as_it_was(tmp_path):
    model = tiny_model(tmp_path)
    assert parameter_count(model) < sum(w.numel() for w in model.parameters())
    model.save(tmp_path / "m")
    plain = AutoModel.from_pretrained(tmp_path / "m")
    assert torch.equal(plain.pooler.dense.weight, model.tower("query").transformer.pooler.dense.weight)
