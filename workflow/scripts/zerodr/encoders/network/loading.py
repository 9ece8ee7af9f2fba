"""Load networks of transformers from folders: safetensors only, in float32, without downloads.

`read_bert` reads a BERT folder's weights without transformers' model classes: importing those takes seconds in every
job.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from zerodr.encoders.network.families import T5_FAMILY
from zerodr.errors import ModelError

LAYER = "encoder.layer"
EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
DENSE = (
    *(f"attention.self.{name}" for name in ("query", "key", "value")),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)


def load_config(folder: Path, layers: int | None) -> Any:
    """Load a folder's configuration of transformers, for the first `layers` layers (None: all)."""
    from transformers import AutoConfig

    quiet()
    config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    cut_layers(folder, config, layers)
    config.output_hidden_states = False
    return config


def load_network(factory: Any, folder: Path, config: Any) -> tuple[Any, list[str]]:
    """Load a folder's float32 weights as a class of transformers; return the names of missing weights, too."""
    network, report = factory.from_pretrained(
        str(folder),
        config=config,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    return network, sorted(report["missing_keys"])


def cut_layers(folder: Path | str, config: Any, layers: int | None) -> None:
    """Change a configuration of transformers to the first `layers` layers.

    Raises:
        ModelError: the checkpoint has fewer.
    """
    if layers is None:
        return
    counts = [name for name in ("num_layers", "num_decoder_layers") if config.model_type in T5_FAMILY]
    for name in counts or ["num_hidden_layers"]:
        count = getattr(config, name, None)
        if count is None or count < layers:
            problem = f"layers is {layers}, the checkpoint has {count or 'no count of layers'}"
            raise ModelError(folder, problem, f"set layers to at most {count}" if count else "remove layers")
        setattr(config, name, layers)
    if getattr(config, "layer_types", None):
        config.layer_types = list(config.layer_types)[:layers]


def short(error: Exception) -> str:
    """Return the first line of an error of another library."""
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def quiet() -> None:
    """Keep messages and progress bars of transformers out of the log."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


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
