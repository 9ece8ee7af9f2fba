"""Damage to the model folder of a tiny BERT: a name of each fault, and what writes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _json(name: str, **changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / name
        values = json.loads(path.read_text()) if path.exists() else {}
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values | changes))

    return change


def _remove(*names: str) -> Callable[[Path], object]:
    return lambda folder: [(folder / name).unlink() for name in names]


def _text(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def _cut(name: str, keep: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


def _weights(value: float) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        next(iter(tensors.values())).view(-1)[0] = value
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _listed(first: str = "Transformer", *more: str, package: str = "sentence_transformers.models") -> str:
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(more, start=1))]
    kinds = [f"{package}.{kind}" for kind in (first, *more)]
    return json.dumps([{"idx": 0, "path": path, "type": kind} for path, kind in zip(paths, kinds, strict=True)])


def _modules(*changes: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / "modules.json").write_text(_listed("Transformer", "Pooling"))
        _json("1_Pooling/config.json", word_embedding_dimension=32)(folder)
        for one in changes:
            one(folder)

    return change


SETTINGS, OPTIONS = "config_sentence_transformers.json", "sentence_bert_config.json"
MODELS: dict[str, Callable[[Path], object]] = {
    "no config": _remove("config.json"),
    "no weights": _remove("model.safetensors"),
    "no tokenizer": _remove("tokenizer.json", "tokenizer_config.json"),
    "pickled weights": _pickled,
    "config that is no JSON": _text("config.json", "{"),
    "config that is a list": _text("config.json", "[]"),
    "config without type": _text("config.json", "{}"),
    "config of an unknown type": _json("config.json", model_type="magic"),
    "config of other sizes": _json("config.json", hidden_size=48, intermediate_size=96),
    "config with a word as size": _json("config.json", hidden_size="large"),
    "config with other layers": _json("config.json", num_hidden_layers=5),
    "config with a larger vocabulary": _json("config.json", vocab_size=9),
    "tokenizer that is no JSON": _text("tokenizer.json", "{"),
    "tokenizer of another shape": _text("tokenizer.json", '{"model": {}}'),
    "weights cut in half": lambda folder: _cut("model.safetensors", 20_000)(folder),
    "weights that are empty": _text("model.safetensors", ""),
    "weights that are a text": _text("model.safetensors", "weights " * 100),
    "weights that are a pointer": _text("model.safetensors", "version https://git-lfs.github.com/spec/v1\n"),
    "weights with NaN": _weights(float("nan")),
    "weights with infinity": _weights(float("inf")),
    "modules that are no JSON": _text("modules.json", "{"),
    "modules of an unknown type": _text("modules.json", '[{"idx": 0, "name": "0", "path": "", "type": "a.B"}]'),
    "contract that is no JSON": _text("zerodr.json", "{"),
    "modules that are an object": _text("modules.json", "{}"),
    "modules that are numbers": _text("modules.json", "[1]"),
    "modules without names": _text("modules.json", '[{"idx": 0}, {"idx": 1}]'),
    "modules of none": _text("modules.json", "[]"),
    "contract that is a list": _text("zerodr.json", "[]"),
    "contract of other keys": _text("zerodr.json", '{"colour": "red"}'),
    "tokenizer settings that are a list": _text("tokenizer_config.json", "[]"),
    "modules without their folders": _text("modules.json", _listed("Transformer", "Pooling")),
    "modules without a layer's folder": _modules(_text("modules.json", _listed("Transformer", "Pooling", "Dense"))),
    "modules of code of their own": _text("modules.json", _listed("Transformer", "Pooling", package="my")),
    "modules outside": _text("modules.json", '[{"path": "../..", "type": "sentence_transformers.models.Transformer"}]'),
    "an adapter next to weights": _json("adapter_config.json", peft_type="LORA"),
    "an adapter without weights": lambda folder: [
        _json("adapter_config.json", peft_type="LORA")(folder),
        _remove("model.safetensors")(folder),
    ],
    "a sparse encoder": _modules(_json(SETTINGS, model_type="SparseEncoder")),
    "a multi-vector model": _json("config.json", architectures=["HF_ColBERT"]),
    "code of its own": _json("config.json", model_type="magic", auto_map={"AutoModel": "magic.Magic"}),
    "fewer components": _modules(_json(SETTINGS, truncate_dim=8)),
    "prompts that are a list": _modules(_json(SETTINGS, prompts=["query: "])),
    **{
        f"{key} in a sibling's file": _modules(_json("sentence_roberta_config.json", **{key: {"x": 1}}))
        for key in ("config_kwargs", "model_args", "processor_kwargs", "tokenizer_args")
    },
    "processing_kwargs": _modules(_json(OPTIONS, processing_kwargs={"text": {"truncation": False}})),
    "a task of another kind": _modules(_json(OPTIONS, transformer_task="fill-mask")),
}
