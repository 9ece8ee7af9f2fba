"""Condenser's head, the prediction layer and the decoder: numbers, shapes, weights that are kept, and errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.model_helpers import relative_files, tiny_model, tiny_settings

from zerodr.encoders.folder.foreign import ModelFolder
from zerodr.encoders.folder.statements import read_layout
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.pretraining import prediction
from zerodr.encoders.pretraining.additions import carry_additions, load_additions
from zerodr.encoders.pretraining.condenser import FAR, HeadedEncoder, layers_of, masked_tokens, real_tokens
from zerodr.encoders.start.initial import from_checkpoint
from zerodr.errors import ModelError

FAMILIES = ("bert", "roberta", "distilbert")


def headed(tmp_path, family: str = "bert", kind: str = "condenser", layers: int = 2, **changes) -> HeadedEncoder:
    return HeadedEncoder(tiny_model(tmp_path, family), kind, layers, **changes).eval()


def batch(model: HeadedEncoder) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Two texts, the second padded, and labels of two masked tokens each."""
    encoder = model.encoder
    rows = [
        row[:9] if place == 0 else row[:6]
        for place, row in enumerate(
            encoder.tokenize(
                ["river stone forest light copper engine garden", "winter market signal paper"], "document"
            )
        )
    ]
    features = encoder.pad(rows)
    labels = torch.full_like(features["input_ids"], -100)
    labels[:, 2:4] = features["input_ids"][:, 2:4]
    features["input_ids"][:, 2] = encoder.tokenizer.mask_token_id
    return features, labels


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_is_the_plain_formula(tmp_path, family):
    """[h^L[0]; h^skip[1:]] through layers of the backbone's class, then the prediction layer shared with late MLM."""
    model = headed(tmp_path, family)
    features, labels = batch(model)
    vectors, last, early = model.states(features)
    assert vectors.shape == (2, 32) and last.shape == early.shape == (*features["input_ids"].shape, 32)
    states = model.backbone(**features, output_hidden_states=True).hidden_states
    torch.testing.assert_close(last, states[2])
    torch.testing.assert_close(early, states[1])
    torch.testing.assert_close(vectors, last[:, 0])
    losses = model.masked_losses(last, early, features["attention_mask"], *masked_tokens(labels))
    mixed = early.clone()
    mixed[:, 0] = last[:, 0]
    seen = FAR * (1 - features["attention_mask"][:, None, None, :].float())
    for layer in model.layers:
        assert type(layer) is type(layers_of(model.backbone)[0])
        mixed = layer(mixed, seen)
    layer = model.prediction
    table = model.backbone.get_input_embeddings().weight
    for name, hidden in (("late_mlm", last), ("head_mlm", mixed)):
        logits = layer.norm(layer.activation(layer.dense(hidden))) @ table.T + layer.bias
        plain = -torch.log_softmax(logits, -1)[labels >= 0].gather(1, labels[labels >= 0][:, None]).sum()
        assert float(losses[name]) == pytest.approx(float(plain), rel=1e-5)


def test_padding_changes_nothing(tmp_path):
    model = headed(tmp_path)
    features, labels = batch(model)
    alone = {key: value[1:, :6] for key, value in features.items()}
    wanted = torch.cat([torch.full_like(labels[:1], -100), labels[1:]])
    both = [
        model.masked_losses(*model.states(f)[1:], f["attention_mask"], *masked_tokens(w))
        for f, w in ((features, wanted), (alone, labels[1:, :6]))
    ]
    for name in ("late_mlm", "head_mlm"):
        assert float(both[0][name]) == pytest.approx(float(both[1][name]), rel=1e-5)


def test_the_default_layer_is_the_middle_one_and_others_can_be_chosen(tmp_path):
    model = headed(tmp_path, skip=0)
    features, _ = batch(model)
    embeddings = model.backbone.embeddings(input_ids=features["input_ids"])
    torch.testing.assert_close(model.states(features)[2], embeddings)
    assert headed(tmp_path).skip == 1
    with pytest.raises(ModelError, match="has 2 layers, skip_layer 2 is not below its last"):
        headed(tmp_path, skip=2)


def test_the_head_teaches_cls_and_the_tied_table(tmp_path):
    model = headed(tmp_path)
    features, labels = batch(model)
    _, last, early = model.states(features)
    last.retain_grad()
    model.masked_losses(last, early, features["attention_mask"], *masked_tokens(labels))["head_mlm"].backward()
    assert float(last.grad[:, 0].abs().max()) > 0 and float(last.grad[:, 1:].abs().max()) == 0
    assert float(model.backbone.get_input_embeddings().weight.grad.abs().max()) > 0
    names = [name for name, _ in model.named_parameters()]
    assert not any("decoder" in name for name in names)  # the table is tied, not copied


def test_no_masked_token_is_no_loss(tmp_path):
    model = headed(tmp_path)
    features, labels = batch(model)
    nothing = masked_tokens(torch.full_like(labels, -100))
    losses = model.masked_losses(*model.states(features)[1:], features["attention_mask"], *nothing)
    assert {name: float(value) for name, value in losses.items()} == {"late_mlm": 0.0, "head_mlm": 0.0}
    losses["head_mlm"].backward()


@pytest.mark.parametrize("count", (0, 1, 50))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_cross_entropies_have_the_bits_of_the_plain_ones(monkeypatch, count, dtype):
    monkeypatch.setattr(prediction, "PORTION", 7 * 300)
    torch.manual_seed(0)
    targets, states = torch.randint(300, (count,)), torch.randn(count, 16, requires_grad=True)
    table = torch.randn(300, 16, requires_grad=True)

    def gradients(summed) -> list[torch.Tensor]:
        loss = summed(states.to(dtype) @ table.to(dtype).T, targets)
        return [loss.detach(), *torch.autograd.grad(loss * 0.37, (states, table))]

    plain = gradients(lambda logits, rows: torch.nn.functional.cross_entropy(logits.float(), rows, reduction="sum"))
    assert all(map(torch.equal, gradients(prediction.cross_entropies), plain))


def test_cross_entropies_write_their_gradient_over_the_logits_and_have_one_backward_pass():
    leaf, targets = torch.randn(3, 5, requires_grad=True), torch.tensor([0, 4, 2])
    logits = leaf * 1
    loss = prediction.cross_entropies(logits, targets)
    loss.backward(retain_graph=True)
    assert torch.equal(logits.detach(), leaf.grad)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_decoder_sees_the_vector_and_earlier_tokens_only(tmp_path, family):
    model = headed(tmp_path, family, "decoder", 1)
    features, _ = batch(model)
    vectors = torch.randn(2, 32, generator=torch.Generator().manual_seed(1))
    whole = model.reconstruction(vectors, features, *real_tokens(features, 1))
    count = int(features["attention_mask"][:, 1:].sum())
    assert 0.5 * count * np.log(400) < float(whole) < 2 * count * np.log(400)
    changed = {key: value.clone() for key, value in features.items()}
    changed["input_ids"][0, 4] = 7
    states = [model.decode(v, f)[0] for v, f in ((vectors, features), (vectors, changed), (vectors.flip(0), features))]
    assert torch.equal(states[0][:4], states[1][:4]) and not torch.allclose(states[0][4:], states[1][4:])
    assert not torch.allclose(states[0][1], states[2][1], rtol=1e-3)
    features["input_ids"][1, 7] = 9  # padding
    assert torch.allclose(model.reconstruction(vectors, features, *real_tokens(features, 1)), whole)


def test_the_backbones_dropout_can_be_off(tmp_path):
    model = headed(tmp_path, backbone_dropout=False).train()
    assert not model.encoder.training and model.layers.training
    assert headed(tmp_path).train().encoder.training
    features, _ = batch(model)
    assert torch.equal(model.states(features)[1], model.states(features)[1])


def test_fresh_weights_follow_the_seed_and_leave_the_callers_random_state(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one, two, other = (headed(tmp_path, seed=seed).state_dict() for seed in (5, 5, 6))
    assert torch.equal(torch.rand(1), expected)
    key = "layers.1.attention.self.query.weight"
    assert torch.equal(one[key], two[key]) and not torch.equal(one[key], other[key])
    assert float(one[key].std()) == pytest.approx(0.02, rel=0.2) and not one["prediction.bias"].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_kept_heads_are_taken_up_and_the_folder_is_a_plain_model(tmp_path, family):
    model = headed(tmp_path, family, seed=1)
    model.save(tmp_path / "kept")
    assert load_encoder(tmp_path / "kept", device="cpu").dimension == 32 and read_layout(ModelFolder(tmp_path / "kept"))
    assert {name for name in relative_files(tmp_path / "kept") if "pretraining" in name} == {
        "pretraining/head.json",
        "pretraining/head.safetensors",
    }
    again = HeadedEncoder(BiEncoder.load(tmp_path / "kept"), "condenser", 2, seed=2).eval()
    fresh = {key: value.clone() for key, value in again.state_dict().items()}
    assert load_additions(again, tmp_path / "kept", "from_model") == {"prediction": "pretraining", "layers": "model"}
    for key, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    partly = HeadedEncoder(BiEncoder.load(tmp_path / "kept"), "condenser", 2, seed=2)
    assert load_additions(again, tmp_path / "kept", "if_present")["layers"] == "model"
    assert load_additions(partly, tmp_path / "kept", "init")["layers"] == "fresh"
    assert all(
        torch.equal(value, fresh[key]) for key, value in partly.state_dict().items() if key.startswith("layers.")
    )


@pytest.mark.parametrize(
    "family, masked",
    [("bert", "BertForMaskedLM"), ("roberta", "RobertaForMaskedLM"), ("distilbert", "DistilBertForMaskedLM")],
)
def test_a_checkpoints_own_prediction_layer_is_taken(tmp_path, family, masked):
    import transformers

    own = tiny_model(tmp_path, family)
    network = getattr(transformers, masked)(own.towers["shared"].transformer.config)
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    network.eval().save_pretrained(tmp_path / "plain")
    own.tokenizer.save_pretrained(tmp_path / "plain")
    settings = tiny_settings(init=str(tmp_path / "plain"), architecture={})
    made, _ = from_checkpoint(settings.model_copy(update={"init": "plain"}), tmp_path / "plain", None, 0)
    made.save(tmp_path / "init")
    assert carry_additions(tmp_path / "plain", tmp_path / "init")
    model = HeadedEncoder(BiEncoder.load(tmp_path / "init"), "none").eval()
    assert load_additions(model, tmp_path / "init", "init") == {"prediction": "pretraining"}
    direct = HeadedEncoder(made, "none").eval()
    assert load_additions(direct, tmp_path / "plain", "init") == {"prediction": "checkpoint"}
    features, labels = batch(model)
    expected = network(**features).logits
    expected = torch.nn.functional.cross_entropy(expected[labels >= 0], labels[labels >= 0], reduction="sum")
    for each in (model, direct):
        losses = each.masked_losses(*each.states(features)[1:], features["attention_mask"], *masked_tokens(labels))
        assert float(losses["late_mlm"]) == pytest.approx(float(expected), rel=1e-5)


def test_a_model_without_a_head_says_so(tmp_path, caplog):
    model = headed(tmp_path)
    model.encoder.save(tmp_path / "plain")
    assert not carry_additions(tmp_path / "plain", tmp_path / "other")
    assert load_additions(model, tmp_path / "plain", "init") == {"prediction": "fresh", "layers": "fresh"}
    with caplog.at_level("WARNING"):
        assert load_additions(model, tmp_path / "plain", "if_present")["layers"] == "fresh"
    assert "its layers start from random weights" in caplog.text
    with pytest.raises(
        ModelError, match="from_model continues with .*kind condenser, layers 2, skip_layer 1; kind none"
    ):
        load_additions(model, tmp_path / "plain", "from_model")
    headed(tmp_path, skip=0).save(tmp_path / "other-skip")
    with pytest.raises(ModelError, match="skip_layer 1; kind condenser, layers 2, skip_layer 0"):
        load_additions(model, tmp_path / "other-skip", "from_model")


def test_damaged_and_strange_heads_are_refused(tmp_path):
    model = headed(tmp_path)
    model.save(tmp_path / "kept")
    path = tmp_path / "kept/pretraining/head.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ModelError, match="is no whole safetensors file"):
        load_additions(model, tmp_path / "kept", "from_model")
    path.write_bytes(whole)
    sizes = {"hidden": 64, "layers": 2, "heads": 4, "vocabulary": 400}
    wider = HeadedEncoder(tiny_model(tmp_path / "wider", architecture=sizes), "condenser", 2)
    with pytest.raises(ModelError, match="its head does not fit its backbone"):
        load_additions(wider, tmp_path / "kept", "from_model")


def test_what_cannot_be_pretrained(tmp_path):
    with pytest.raises(ModelError, match="is of family t5"):
        HeadedEncoder(tiny_model(tmp_path, "t5", pooling="mean"), "none")
    HeadedEncoder(tiny_model(tmp_path, "t5", pooling="mean"), "none", predicts=False)
    with pytest.raises(ModelError, match="has two towers"):
        HeadedEncoder(tiny_model(tmp_path, "bert", towers="separate"))
