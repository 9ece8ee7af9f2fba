"""The packed forward pass against transformers' own, and its fallback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from encoder_helpers import import_settings, tiny_bert
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

from zerodr.encoders.inference import packed
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.inference.packed import PackedBert, why_not
from zerodr.encoders.network.loading import read_bert
from zerodr.encoders.network.towers import load_transformer
from zerodr.encoders.start.importing import copy_model

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "vocab_size": 60,
    "initializer_range": 0.3,
}


def bert(**config: object) -> BertModel:
    torch.manual_seed(1)
    return BertModel(BertConfig(**(SIZES | config))).eval()


def batch(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(5, 60, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return ids * mask, mask


@pytest.mark.parametrize("activation", sorted(packed.ACTIVATIONS))
@pytest.mark.parametrize("lengths", [[7], [9, 9, 9], [40, 31, 2, 1]])
def test_float32_equals_the_plain_module(activation: str, lengths: list[int]) -> None:
    model, (ids, mask) = bert(hidden_act=activation), batch(lengths)
    assert why_not(model, torch.float32) is None
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        made = PackedBert(model, torch.float32)(ids, mask)
    assert (made - expected)[mask > 0].abs().max() < 1e-5


def test_slices_of_attention_do_not_change_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (ids, mask) = bert(), batch([30, 30, 12, 5, 3])
    with torch.inference_mode():
        whole = PackedBert(model, torch.float32, "plain")(ids, mask)
        monkeypatch.setattr(packed, "SLICE_SCORES", 1)
        assert torch.allclose(PackedBert(model, torch.float32, "plain")(ids, mask), whole, atol=1e-6)


@pytest.mark.parametrize("lengths", [[9, 9, 9], [40, 31, 2, 1]])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_both_ways_of_attention_give_the_same_numbers(lengths: list[int], dtype: torch.dtype, near: float) -> None:
    model, (ids, mask) = bert(), batch(lengths)
    if why_not(model, dtype):
        pytest.skip(str(why_not(model, dtype)))
    with torch.inference_mode():
        fused, plain = (PackedBert(model, dtype, way)(ids, mask)[mask > 0].float() for way in ("fused", "plain"))
    assert (fused - plain).abs().max() < near and torch.cosine_similarity(fused, plain, dim=-1).min() > 0.999


def test_bfloat16_stays_near() -> None:
    model, (ids, mask) = bert(initializer_range=0.05), batch([30, 20])
    if why_not(model, torch.bfloat16):
        pytest.skip(str(why_not(model, torch.bfloat16)))
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state[mask > 0]
        made = PackedBert(model, torch.bfloat16)(ids, mask)[mask > 0].float()
    assert torch.cosine_similarity(made, expected, dim=-1).min() > 0.999


def test_reasons_for_the_plain_module() -> None:
    distil = DistilBertModel(DistilBertConfig(dim=32, n_layers=1, n_heads=4, hidden_dim=64, vocab_size=60))
    assert "DistilBertModel" in str(why_not(distil, torch.float32))
    assert "silu" in str(why_not(bert(hidden_act="silu"), torch.float32))
    assert "decoder" in str(why_not(bert(is_decoder=True), torch.float32))
    assert "float16" in str(why_not(bert(), torch.float16))


def test_missing_operator_is_detected_and_the_plain_module_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_model(tiny_bert(tmp_path / "plain"), tmp_path, import_settings("tiny"), None)
    fast = load_encoder(tmp_path, device="cpu")
    monkeypatch.setattr(packed, "pack", lambda weight: torch.ops.mkldnn.there_is_no_such_operator(weight))
    slow = load_encoder(tmp_path, device="cpu")
    assert fast.backend == "packed, fused attention"
    assert slow.backend.startswith("transformers (torch's packed multiplication is not available")
    tokens = fast.tokenize(["a few words", "", "z " * 80])
    rows = [tokens[row] for row in range(3)]
    assert abs(fast.encode_batch(rows) - slow.encode_batch(rows)).max() < 1e-5


def test_an_operator_with_other_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "linear", lambda x, weight, bias: torch.zeros(8, 16, dtype=x.dtype))
    assert "other numbers" in str(why_not(bert(), torch.float32))


def test_a_folder_is_read_without_the_model_classes_and_gives_the_same_bits(tmp_path: Path) -> None:
    copy_model(tiny_bert(tmp_path / "plain"), tmp_path, import_settings("tiny"), None)
    program = (
        "import sys; from pathlib import Path; from zerodr.encoders.inference.encoder import load_encoder; "
        "encoder = load_encoder(Path(sys.argv[1]), device='cpu'); "
        "assert encoder.backend == 'packed, fused attention' and 'transformers.modeling_utils' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    encoder = load_encoder(tmp_path, device="cpu")
    ids, mask = torch.randint(5, 30, (3, 12)), torch.ones(3, 12, dtype=torch.int64)
    with torch.inference_mode():
        through_classes = PackedBert(load_transformer(tmp_path, "cls"), torch.float32)(ids, mask)
        assert torch.equal(encoder.hidden(ids, mask), through_classes)


@pytest.mark.parametrize("change", ["prefix", "missing", "shape", "damaged", "absent"])
def test_other_folders_are_left_to_transformers(tmp_path: Path, change: str) -> None:
    folder = tiny_bert(tmp_path / "plain")
    file = folder / "model.safetensors"
    weights = load_file(file)
    name = "encoder.layer.1.output.dense.weight"
    if change == "prefix":
        weights = {f"bert.{key}": value for key, value in weights.items()}
    elif change == "missing":
        del weights[name]
    elif change == "shape":
        weights[name] = weights[name][:1].contiguous()
    assert read_bert(folder) is not None
    save_file(weights, file)
    if change == "damaged":
        file.write_bytes(file.read_bytes()[:100])
    elif change == "absent":
        file.unlink()
    assert read_bert(folder) is None
