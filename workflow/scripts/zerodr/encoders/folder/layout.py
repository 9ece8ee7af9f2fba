"""Write model folders: modules.json of sentence-transformers and the files that it names, weights, tokenizer."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zerodr.encoders.folder.contract import (
    SIDES,
    EncoderContract,
    read_contract,
    read_json,
    write_contract,
    write_model_json,
)
from zerodr.encoders.folder.foreign import MODULES, PROMPT_CONFIG, ModelFolder
from zerodr.encoders.folder.statements import (
    DECODER_FIRST,
    OLD_POOLING_KEYS,
    POOLING_NAMES,
    TRANSFORMER_CONFIGS,
    read_layout,
)
from zerodr.encoders.network.heads import kind_of_projection, save_projection
from zerodr.encoders.network.loading import T5_FAMILY, quiet
from zerodr.encoders.network.low_rank import weights_to_save
from zerodr.encoders.network.towers import Tower
from zerodr.errors import ModelError

MODULE_TYPES = {name: f"sentence_transformers.models.{name}" for name in MODULES}
TRANSFORMER_CONFIG = TRANSFORMER_CONFIGS[0]
ROUTER = "router_config.json"
ONE_FILE = "1TB"
LOCATION_KEYS = ("is_local", "local_files_only", "name_or_path", "tokenizer_file")
CLASSIFIER = {family: f"{family.upper()}ForSequenceClassification" for family in T5_FAMILY}


def write_layout(folder: Path, contract: EncoderContract, hidden: int) -> None:
    """Write the contract, and modules.json with its files, so that `SentenceTransformer(folder)` follows it.

    Args:
        folder: holds the transformer's files and those of the contract's projections; of separate towers, the finished
            folders `query` and `document`.
        contract: what to write.
        hidden: components of a token's vector.
    """
    write_contract(folder, contract)
    prompts = {"default_prompt_name": None, "prompts": {side: contract.prefix(side) for side in SIDES}}
    write_model_json(folder / PROMPT_CONFIG, prompts | {"similarity_fn_name": contract.similarity})
    if contract.towers == "separate":
        _write_router(folder)
        return
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [(path, kind_of_projection(read_json(folder / path / "config.json"))) for path in contract.projections]
    if contract.normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
        write_model_json(folder / modules[-1][0] / "config.json", {})
    _write_modules(folder, modules)
    mode = "cls" if contract.pooling == "decoder_first" else contract.pooling
    pooling = {key: mode == POOLING_NAMES.get(name) for key, name in OLD_POOLING_KEYS.items()}
    write_model_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": hidden} | pooling)
    lengths: dict[str, Any] = {"max_seq_length": contract.max_tokens, "do_lower_case": contract.lowercase}
    lengths |= {f"{side}_length": value for side in SIDES if (value := getattr(contract, f"{side}_tokens"))}
    decoder = DECODER_FIRST if contract.pooling == "decoder_first" else {}
    write_model_json(folder / TRANSFORMER_CONFIG, lengths | decoder)


def _write_modules(folder: Path, modules: list[tuple[str, str]]) -> None:
    listing = enumerate((path, MODULE_TYPES[kind]) for path, kind in modules)
    entries = [{"idx": number, "name": str(number), "path": path, "type": kind} for number, (path, kind) in listing]
    write_model_json(folder / "modules.json", entries)


def _write_router(folder: Path) -> None:
    """Route `encode_query` to the modules of folder `query`, `encode_document` and `encode` to those of `document`."""
    _write_modules(folder, [("", "Router")])
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for side in SIDES:
        modules = read_json(folder / side / "modules.json")
        structure[side] = [f"{side}/{module['path']}".rstrip("/") for module in modules]
        types |= {name: module["type"] for name, module in zip(structure[side], modules, strict=True)}
    parameters = {"default_route": "document", "allow_empty_key": True}
    write_model_json(folder / ROUTER, {"types": types, "structure": structure, "parameters": parameters})


def check_layout(folder: Path, contract: EncoderContract) -> None:
    """Check that sentence-transformers would use the folder, and each of separate towers, as its contract states.

    Raises:
        ModelError: names the first key that differs.
    """
    for side in SIDES if contract.towers == "separate" else ():
        tower = read_contract(folder / side)
        if tower != contract.model_copy(update={"towers": "tied"}):
            raise ModelError(folder, f"contradicts itself: tower {side} has another contract", "import the model again")
        check_layout(folder / side, tower)
    for key, value in read_layout(ModelFolder(folder)).items():
        stated = getattr(contract, key)
        if (list(stated) if isinstance(stated, tuple) else stated) != value:
            problem = f"{key} is {stated!r} in zerodr.json, but {value!r} in the files of sentence-transformers"
            raise ModelError(folder, f"contradicts itself: {problem}", "import the model again")


def save_tower(tower: Tower, tokenizer: Any, contract: EncoderContract, folder: Path) -> None:
    """Write one tower as a model folder. Equal weights give equal bytes."""
    quiet()
    folder.mkdir(parents=True, exist_ok=True)
    if contract.pooling == "decoder_first":
        _save_with_decoder(tower.transformer, folder)
    else:
        weights = weights_to_save(tower.transformer)
        tower.transformer.save_pretrained(folder, state_dict=weights, max_shard_size=ONE_FILE)
    save_tokenizer(tokenizer, folder)
    for name, module in zip(contract.projections, tower.projections, strict=True):
        save_projection(module, folder / name)  # type: ignore[arg-type]
    write_layout(folder, contract, tower.transformer.config.hidden_size)


def _save_with_decoder(transformer: Any, folder: Path) -> None:
    """Write an encoder-decoder so that sentence-transformers runs both halves.

    It loads only the encoder unless the task is another than feature extraction. As sequence classifier the same
    weights give all decoder states for a shifted input, whose first position is the start token. The classifier's
    layers are not read and are zero.
    """
    size = transformer.config.d_model
    state = {f"transformer.{name}": weight for name, weight in weights_to_save(transformer).items()}
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
