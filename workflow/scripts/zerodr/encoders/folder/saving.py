"""Write a trained tower as a model folder: weights, tokenizer, contract and the layout of sentence-transformers."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zerodr.encoders.folder.contract import EncoderContract, read_json, write_contract, write_model_json
from zerodr.encoders.folder.layout import write_layout
from zerodr.encoders.network.heads import save_projection
from zerodr.encoders.network.loading import T5_FAMILY, quiet
from zerodr.encoders.network.towers import Tower

ONE_FILE = "1TB"
LOCATION_KEYS = ("is_local", "local_files_only", "name_or_path", "tokenizer_file")
CLASSIFIER = {family: f"{family.upper()}ForSequenceClassification" for family in T5_FAMILY}


def save_tower(tower: Tower, tokenizer: Any, contract: EncoderContract, folder: Path) -> None:
    """Write one tower as a model folder. Equal weights give equal bytes."""
    quiet()
    folder.mkdir(parents=True, exist_ok=True)
    if contract.pooling == "decoder_first":
        _save_with_decoder(tower.transformer, folder)
    else:
        tower.transformer.save_pretrained(folder, max_shard_size=ONE_FILE)
    save_tokenizer(tokenizer, folder)
    for name, module in zip(contract.projections, tower.projections, strict=True):
        save_projection(module, folder / name)  # type: ignore[arg-type]
    write_layout(folder, contract, tower.transformer.config.hidden_size)
    write_contract(folder, contract)


def _save_with_decoder(transformer: Any, folder: Path) -> None:
    """Write an encoder-decoder so that sentence-transformers runs both halves.

    It loads only the encoder unless the task is another than feature extraction. As sequence classifier the same
    weights give all decoder states for a shifted input, whose first position is the start token. The classifier's
    layers are not read and are zero.
    """
    size = transformer.config.d_model
    state = {f"transformer.{name}": weight for name, weight in transformer.state_dict().items()}
    transformer.save_pretrained(folder, state_dict=state | _classifier(size), max_shard_size=ONE_FILE)
    config = read_json(folder / "config.json")
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    config |= {"architectures": [CLASSIFIER[config["model_type"]]], "output_hidden_states": True} | labels
    write_model_json(folder / "config.json", config)


def _classifier(size: int) -> dict[str, Tensor]:
    shapes = {"dense.weight": (size, size), "dense.bias": (size,), "out_proj.weight": (1, size), "out_proj.bias": (1,)}
    return {f"classification_head.{name}": torch.zeros(shape) for name, shape in shapes.items()}


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write the tokenizer without state of earlier calls (truncation, padding) and without its path."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_truncation()
        backend.no_padding()
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = {key: value for key, value in read_json(path).items() if key not in LOCATION_KEYS}
    if config.get("tokenizer_class") == "TokenizersBackend":  # one class; older transformers know this name only
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    if tokenizer.split_special_tokens:
        config["split_special_tokens"] = True
    write_model_json(path, config)
