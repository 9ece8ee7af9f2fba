"""Read a BERT folder's weights without transformers' model classes: importing those takes seconds in every job."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from zerodr.encoders.network.loading import load_config

LAYER = "encoder.layer"
EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
DENSE = (
    *(f"attention.self.{name}" for name in ("query", "key", "value")),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)


def read_bert(folder: Path) -> Any | None:
    """Read a folder as `PackedBert` reads a `BertModel`: its configuration, and weights in float32 by name.

    Returns None where the folder is no plain BERT with all weights under BertModel's names in one file: then
    transformers loads it, or says what is wrong.
    """
    file = folder / "model.safetensors"
    if not file.is_file() or '"bert"' not in (folder / "config.json").read_text(encoding="utf-8"):
        return None
    try:
        config = load_config(folder, None)
        if config.model_type != "bert":
            return None
        with safe_open(file, "pt") as weights:
            shapes = dict(_shapes(config))
            if not shapes.keys() <= set(weights.keys()):
                return None
            tensors = {name: weights.get_tensor(name).to(torch.float32) for name in shapes}
    except (OSError, ValueError, KeyError, SafetensorError):
        return None
    if any(tuple(tensors[name].shape) != shape for name, shape in shapes.items()):
        return None
    return _tree(tensors, config)


def _shapes(config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Give the names and shapes of the weights that a forward pass reads."""
    width, inner = config.hidden_size, config.intermediate_size
    counts = config.vocab_size, config.max_position_embeddings, config.type_vocab_size
    yield from ((f"embeddings.{name}.weight", (count, width)) for name, count in zip(EMBEDDINGS, counts, strict=True))
    norms = ["embeddings.LayerNorm"]
    for number in range(config.num_hidden_layers):
        norms += [f"{LAYER}.{number}.{name}" for name in NORMS]
        for name in DENSE:
            rows = inner if name.startswith("intermediate") else width
            columns = inner if name == "output.dense" else width
            yield f"{LAYER}.{number}.{name}.weight", (rows, columns)
            yield f"{LAYER}.{number}.{name}.bias", (rows,)
    yield from ((f"{name}.{key}", (width,)) for name in norms for key in ("weight", "bias"))


def _tree(tensors: dict[str, Tensor], config: Any) -> SimpleNamespace:
    """Build attributes of the names: `model.encoder.layer[0].output.dense.weight`."""
    layers = [SimpleNamespace() for _ in range(config.num_hidden_layers)]
    root = SimpleNamespace(config=config, encoder=SimpleNamespace(layer=layers))
    for name, tensor in tensors.items():
        inside = re.fullmatch(rf"{LAYER}\.(\d+)\.(.+)", name)
        node = layers[int(inside[1])] if inside else root
        *path, last = (inside[2] if inside else name).split(".")
        for attribute in path:
            if not hasattr(node, attribute):
                setattr(node, attribute, SimpleNamespace())
            node = getattr(node, attribute)
        setattr(node, last, tensor)
    return root
