"""Conversion of pickled checkpoints: same tensors, a head that pretraining continues with, and what is refused."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
import torch
from tests.unit.encoder_helpers import VOCABULARY, save_tokenizer
from transformers import BertConfig, BertForMaskedLM
from typer.testing import CliRunner

from zerodr.config.training import InitSettings
from zerodr.encoders.pretraining.additions import carry_additions, load_additions
from zerodr.encoders.pretraining.condenser import HeadedEncoder
from zerodr.encoders.start.convert import convert_checkpoint
from zerodr.encoders.start.initial import from_checkpoint
from zerodr.errors import ModelError
from zerodr.operations.lookup_commands import app


def network(seed: int = 3) -> BertForMaskedLM:
    """A random BERT of four layers with its prediction layer."""
    torch.manual_seed(seed)
    config = BertConfig(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64, vocab_size=len(VOCABULARY)
    )
    return BertForMaskedLM(config)


def checkpoint(folder: Path, layers: int = 2) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A checkpoint as Condenser's code saves it: pytorch_model.bin, model.pt, args.pt; its weights and its head's."""
    folder.mkdir(parents=True)
    model, head = network(), {}
    for number, layer in enumerate(network(4).bert.encoder.layer[:layers]):
        head |= {f"c_head.{number}.{name}": value for name, value in layer.state_dict().items()}
    weights = model.state_dict()
    model.config.save_pretrained(folder)
    save_tokenizer(folder)
    torch.save(weights, folder / "pytorch_model.bin")
    torch.save(head | {"co_target": torch.arange(4)}, folder / "model.pt")
    torch.save([argparse.Namespace(skip_from=2)], folder / "args.pt")
    return weights, head


def test_pretraining_continues_with_the_converted_head(tmp_path):
    weights, head = checkpoint(tmp_path / "condenser")
    facts = convert_checkpoint(tmp_path / "condenser", tmp_path / "safe")
    assert facts == {"tensors": len(weights), "layers": 2, "skip_layer": 2, "left_out": ["co_target"]}
    assert not [path for path in (tmp_path / "safe").rglob("*") if path.suffix in (".bin", ".pt")]
    settings = InitSettings(init=str(tmp_path / "safe"), query_tokens=12, document_tokens=40)
    encoder, _ = from_checkpoint(settings, tmp_path / "safe", None, 0)
    encoder.save(tmp_path / "init")
    assert carry_additions(tmp_path / "safe", tmp_path / "init")
    model = HeadedEncoder(encoder, "condenser", 2)
    assert load_additions(model, tmp_path / "init", "from_model") == {"prediction": "pretraining", "layers": "model"}
    for name, value in model.layers.state_dict().items():
        assert torch.equal(value, head[f"c_head.{name}"]), name
    assert torch.equal(model.prediction.dense.weight, weights["cls.predictions.transform.dense.weight"])
    assert torch.equal(
        encoder.state_dict()["towers.shared.transformer.embeddings.word_embeddings.weight"].cpu(),
        weights["bert.embeddings.word_embeddings.weight"],
    )


def test_a_checkpoint_without_a_head_is_named_where_one_is_needed(tmp_path):
    checkpoint(tmp_path / "plain")
    (tmp_path / "plain/model.pt").unlink()
    assert convert_checkpoint(tmp_path / "plain", tmp_path / "safe")["layers"] == 0
    settings = InitSettings(init=str(tmp_path / "safe"), query_tokens=12, document_tokens=40)
    model = HeadedEncoder(from_checkpoint(settings, tmp_path / "safe", None, 0)[0], "condenser", 2)
    with pytest.raises(ModelError, match="lacks the head .*zerodr convert"):
        load_additions(model, tmp_path / "safe", "from_model")


class Runs:
    """Code that runs when a pickle is read without care."""

    def __reduce__(self):
        return os.mkdir, ("was-run",)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.pt"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"weight": Runs()}, "holds more than tensors"),
        ([torch.zeros(2)], "is no dictionary of tensors"),
        ({"weight": "text"}, "is no dictionary of tensors"),
        (None, "holds more than tensors, or is damaged"),
    ],
)
def test_what_is_no_tensor_is_refused_and_never_run(tmp_path, monkeypatch, file, content, said):
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "bad")
    if content is None:
        (tmp_path / "bad" / file).write_bytes(b"PK not a zip")
    else:
        torch.save(content, tmp_path / "bad" / file)
    with pytest.raises(ModelError, match=said):
        convert_checkpoint(tmp_path / "bad", tmp_path / "safe")
    assert not (tmp_path / "safe").exists() and not Path("was-run").exists()


def test_the_command(tmp_path):
    checkpoint(tmp_path / "condenser", layers=1)
    words = ["convert", str(tmp_path / "condenser"), str(tmp_path / "safe"), "--skip-layer", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "layers: 1\nskip_layer: 1" in done.output
    with pytest.raises(ModelError, match="exists already"):
        convert_checkpoint(tmp_path / "condenser", tmp_path / "safe")
    (tmp_path / "condenser/pytorch_model.bin").unlink()
    with pytest.raises(ModelError, match="download the whole checkpoint"):
        convert_checkpoint(tmp_path / "condenser", tmp_path / "other")


def test_safetensors_in_several_files_are_copied_with_their_index(tmp_path):
    """The index was left out, and the converted folder could not be loaded."""
    checkpoint(tmp_path / "condenser")
    (tmp_path / "condenser/pytorch_model.bin").unlink()
    network().save_pretrained(tmp_path / "condenser", max_shard_size="40KB")
    (tmp_path / "condenser/flax_model.msgpack.index.json").write_text("{}", encoding="utf-8")
    convert_checkpoint(tmp_path / "condenser", tmp_path / "safe")
    assert len(list((tmp_path / "safe").glob("model-*.safetensors"))) > 1
    assert [path.name for path in (tmp_path / "safe").glob("*.index.json")] == ["model.safetensors.index.json"]
    settings = InitSettings(init=str(tmp_path / "safe"), query_tokens=12, document_tokens=40)
    encoder, _ = from_checkpoint(settings, tmp_path / "safe", None, 0)
    table = encoder.state_dict()["towers.shared.transformer.embeddings.word_embeddings.weight"]
    assert torch.equal(table, network().bert.embeddings.word_embeddings.weight)
