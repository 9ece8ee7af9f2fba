"""The contract of a model folder and the layout of sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerodr.encoders.folder.contract import EncoderContract, make_contract, read_contract
from zerodr.encoders.folder.foreign import ModelFolder
from zerodr.encoders.folder.layout import check_layout, write_layout
from zerodr.encoders.folder.statements import read_layout
from zerodr.errors import ModelError

ST = "sentence_transformers.models"
VALUES = {
    "pooling": "mean",
    "normalize": True,
    "similarity": "cosine",
    "max_tokens": 32,
    "dimension": 8,
    "architecture": "BertModel",
    "source": "here",
}


def contract(**changes: object) -> EncoderContract:
    return EncoderContract.model_validate(VALUES | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooling": "cls"},
        {"pooling": "last", "normalize": False, "similarity": "dot"},
        {"query_prefix": "query: ", "document_prefix": "passage: "},
        {"pooling": "max", "lowercase": True},
    ],
)
def test_round_trip_through_files(tmp_path: Path, changes: dict) -> None:
    made = contract(**changes)
    write_layout(tmp_path, made, 8)
    assert read_contract(tmp_path) == made
    check_layout(tmp_path, made)
    found = read_layout(ModelFolder(tmp_path))
    assert all(getattr(made, key) == value for key, value in found.items())
    assert {"pooling", "normalize", "similarity", "max_tokens", "dimension"} <= set(found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pooling": "median"}, "pooling"),
        ({"normalize": False}, "contradicts"),
        ({"dimension": 0}, "dimension"),
        ({"poling": "mean"}, "poling"),
    ],
)
def test_wrong_contract_names_the_key(changes: dict, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        make_contract("folder", VALUES | changes)


def test_folder_without_contract_or_with_broken_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no zerodr.json"):
        read_contract(tmp_path)
    (tmp_path / "zerodr.json").write_text("{")
    with pytest.raises(ModelError, match="is no JSON"):
        read_contract(tmp_path)


def test_contradiction_between_contract_and_layout(tmp_path: Path) -> None:
    write_layout(tmp_path, contract(), 8)
    with pytest.raises(ModelError, match=r"pooling is 'cls' in zerodr.json, but 'mean'"):
        check_layout(tmp_path, contract(pooling="cls"))


def test_plain_folder_says_nothing(tmp_path: Path) -> None:
    assert read_layout(ModelFolder(tmp_path)) == {}


def test_new_and_old_spelling_of_pooling(tmp_path: Path) -> None:
    write_layout(tmp_path, contract(), 8)
    config = tmp_path / "1_Pooling" / "config.json"
    config.write_text(json.dumps({"embedding_dimension": 8, "pooling_mode": "lasttoken", "include_prompt": True}))
    assert (read_layout(ModelFolder(tmp_path))["pooling"], read_layout(ModelFolder(tmp_path))["dimension"]) == (
        "last",
        8,
    )
    config.write_text(json.dumps({"word_embedding_dimension": 8, "pooling_mode_cls_token": True}))
    assert read_layout(ModelFolder(tmp_path))["pooling"] == "cls"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "pooling weightedmean is not known"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, r"pooling cls \+ mean is not known"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "manhattan"}, "similarity manhattan"),
        (
            "modules.json",
            [{"type": f"{ST}.Transformer", "path": ""}, {"type": f"{ST}.CNN", "path": "1"}],
            "former, CNN",
        ),
        ("modules.json", [{"type": "a.Transformer", "path": ""}], "names the class a.Transformer"),
    ],
)
def test_what_this_bench_does_not_run(tmp_path: Path, name: str, value: object, said: str) -> None:
    write_layout(tmp_path, contract(), 8)
    (tmp_path / name).write_text(json.dumps(value))
    with pytest.raises(ModelError, match=said):
        read_layout(ModelFolder(tmp_path))


def test_prompt_left_out_of_pooling_is_refused(tmp_path: Path) -> None:
    write_layout(tmp_path, contract(query_prefix="q: "), 8)
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": "mean", "include_prompt": False}))
    with pytest.raises(ModelError, match="ignores the prompt"):
        read_layout(ModelFolder(tmp_path))
