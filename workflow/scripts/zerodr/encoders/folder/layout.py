"""Read and write model folders: modules.json of sentence-transformers and the files that it names, weights, tokenizer.

A folder without modules.json is a plain transformers folder, without pooling, normalisation or prefixes.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zerodr.encoders.folder.contract import (
    SIDES,
    EncoderContract,
    Side,
    read_contract,
    read_json,
    write_contract,
    write_model_json,
)
from zerodr.encoders.folder.known import (
    IN_AND_OUT,
    MODULES,
    OLD_POOLINGS,
    PROMPT_CONFIG,
    TOKENIZER_OPTIONS,
    TRANSFORMER_CONFIGS,
    check_modules,
    read_optional,
    transformer_config,
)
from zerodr.encoders.network.families import T5_FAMILY
from zerodr.encoders.network.heads import SENTENCE, kind_of_projection, save_projection
from zerodr.encoders.network.loading import quiet
from zerodr.encoders.network.towers import Tower
from zerodr.errors import ModelError

POOLING_NAMES = {"cls": "cls", "max": "max", "mean": "mean", "lasttoken": "last"}
NEW_NAMES = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean", "weightedmean_tokens": "weightedmean"}
OLD_POOLING_KEYS = {f"pooling_mode_{old}": NEW_NAMES.get(old, old) for old in OLD_POOLINGS}
SIMILARITIES = {"cosine": "cosine", "dot": "dot", "dot_product": "dot"}
PROMPTS: dict[Side, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
PROJECTIONS = ("Dense", "LayerNorm")
MODULE_TYPES = {name: f"sentence_transformers.models.{name}" for name in MODULES}
TRANSFORMER_CONFIG = TRANSFORMER_CONFIGS[0]
ROUTER = "router_config.json"
DECODER_STATES = ["decoder_hidden_states", -1]
DECODER_FIRST = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": DECODER_STATES}},
    "module_output_name": "token_embeddings",
}
"""All decoder states of an encoder-decoder; the decoder is causal, so the first is that of the start token alone."""
TOKENS, TEXT_STATES = "token_embeddings", {"method": "forward", "method_output_name": "last_hidden_state"}
ONE_FILE = "1TB"
LOCATION_KEYS = ("is_local", "local_files_only", "name_or_path", "tokenizer_file")
CLASSIFIER = {family: f"{family.upper()}ForSequenceClassification" for family in T5_FAMILY}


def read_layout(folder: Path) -> dict[str, Any]:
    """Read a sentence-transformers folder as the contract's keys; {} for a plain transformers folder.

    Keys, each only when the folder states it: pooling, normalize, similarity, query_prefix, document_prefix,
    max_tokens, lowercase, projections, dimension, query_tokens, document_tokens, towers.

    Raises:
        ModelError: a module, a pooling or an option that this bench does not run.
    """
    modules = check_modules(folder)
    if not (folder / "modules.json").exists():
        return {}
    kinds = [kind for _, kind in modules]
    if kinds == ["Router"]:
        return {"towers": "separate"} | _lengths(folder) | _prompts(folder)
    if {*kinds} - {*MODULES} or kinds[:2] != ["Transformer", "Pooling"] or {"Normalize", "Router"} & {*kinds[:-1]}:
        expected = "Transformer, Pooling, any Dense or LayerNorm, then Normalize or not"
        problem = f"modules.json lists {', '.join(kinds)}; expected {expected}"
        raise ModelError(folder, problem, "choose a bi-encoder with these modules")
    if modules[0][0]:
        problem = f"its transformer is in {modules[0][0]}, expected the folder itself"
        raise ModelError(folder, problem, "save it with a current sentence-transformers")
    pooling = read_json(folder / modules[1][0] / "config.json")
    values: dict[str, Any] = {"normalize": "Normalize" in kinds, "pooling": _pooling(folder, pooling)}
    size = pooling.get("embedding_dimension", pooling.get("word_embedding_dimension"))
    if size is not None:
        values["dimension"] = size
    projections = [path for path, kind in modules if kind in PROJECTIONS]
    if projections:
        config = read_json(folder / projections[-1] / "config.json")
        values |= {"projections": projections, "dimension": config.get("out_features", config.get("dimension"))}
    if "Normalize" in kinds:
        names = read_optional(folder / modules[-1][0] / "config.json")
        if {names.get(key) or SENTENCE for key in IN_AND_OUT} != {SENTENCE}:
            problem = f"its {modules[-1][0]} normalizes {names}, expected {SENTENCE}"
            raise ModelError(folder, problem, "choose a bi-encoder with one vector a text")
    _check_size(folder, values.get("dimension"))
    return values | _task(folder, values["pooling"]) | _lengths(folder) | _prompts(folder)


def _check_size(folder: Path, dimension: int | None) -> None:
    size = read_optional(folder / PROMPT_CONFIG).get("truncate_dim")
    if size is not None and (dimension is None or size < dimension):
        problem = f"states truncate_dim {size}: vectors are cut to {size} of {dimension} components, which is not done"
        raise ModelError(folder / PROMPT_CONFIG, problem, "remove truncate_dim to use all components")


def _task(folder: Path, pooling: str) -> dict[str, Any]:
    name, config = transformer_config(folder)
    task = config.get("transformer_task", "feature-extraction")
    if pooling == "cls" and {key: config.get(key) for key in DECODER_FIRST} == DECODER_FIRST:
        return {"pooling": "decoder_first"}
    if task != "feature-extraction":
        raise ModelError(folder, f"its transformer is for {task}, expected feature-extraction", "choose a bi-encoder")
    stated = {
        "modality_config": (config.get("modality_config") or {}).get("text", TEXT_STATES),
        "module_output_name": config.get("module_output_name") or TOKENS,
    }
    for key, expected in (("modality_config", TEXT_STATES), ("module_output_name", TOKENS)):
        if stated[key] != expected:
            problem = f"states {key} {stated[key]!r} for texts, expected {expected!r}"
            raise ModelError(folder / name, problem, "choose a bi-encoder that pools last hidden states")
    return {}


def _pooling(folder: Path, config: dict[str, Any]) -> str:
    stated = config.get("pooling_mode")
    if stated is None:
        stated = [name for key, name in OLD_POOLING_KEYS.items() if config.get(key)] or ["mean"]
    modes = [stated] if isinstance(stated, str) else list(stated)
    if len(modes) != 1 or modes[0] not in POOLING_NAMES:
        raise ModelError(folder, f"pooling {' + '.join(modes)} is not known", f"known: {', '.join(POOLING_NAMES)}")
    prompts = _prompts(folder)
    if config.get("include_prompt") is False and (prompts.get("query_prefix") or prompts.get("document_prefix")):
        problem = "its pooling ignores the prompt (include_prompt: false), which is not supported"
        raise ModelError(folder, problem, "choose a model that pools over its prompt")
    return POOLING_NAMES[modes[0]]


def _lengths(folder: Path) -> dict[str, Any]:
    _, config = transformer_config(folder)
    values: dict[str, Any] = {}
    options: dict[str, Any] = next((config[key] for key in TOKENIZER_OPTIONS if config.get(key)), {})
    length = options.get("model_max_length", config.get("max_seq_length"))
    if length:
        values["max_tokens"] = length
    if "do_lower_case" in config:
        values["lowercase"] = bool(config["do_lower_case"])
    return values | {f"{side}_tokens": length for side in SIDES if (length := config.get(f"{side}_length"))}


def _prompts(folder: Path) -> dict[str, Any]:
    config = read_optional(folder / PROMPT_CONFIG)
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise ModelError(folder / PROMPT_CONFIG, "prompts is no object of texts", "correct the prompts")
    names = {side: side_prompt(prompts, side) for side in SIDES}
    values: dict[str, Any] = {f"{side}_prefix": prompts[name] or "" for side, name in names.items() if name}
    similarity = config.get("similarity_fn_name")
    if similarity is not None:
        if similarity not in SIMILARITIES:
            raise ModelError(folder, f"similarity {similarity} is not supported", "choose a model with cosine or dot")
        values["similarity"] = SIMILARITIES[similarity]
    return values


def side_prompt(prompts: dict[str, str | None], side: Side) -> str | None:
    """Name the prompt of a side; None where none is stated for it."""
    return next((name for name in PROMPTS[side] if name in prompts), None)


def unused_prompts(folder: Path) -> list[str]:
    """List, as sentences, prompts of a folder of sentence-transformers that it, or this bench, ignores."""
    config = read_optional(folder / PROMPT_CONFIG)
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    used = {side_prompt(prompts, side) for side in SIDES}
    others = [name for name, text in prompts.items() if text and name not in used]
    stated = [f"prompts {', '.join(others)}"] if others else []
    stated += [f"default_prompt_name {default}"] if default and default not in used else []
    sentences = []
    if stated:
        how = "encode_query and encode_document of sentence-transformers do not use; to use one, set query_prefix"
        sentences.append(f"the folder states {' and '.join(stated)}, which {how} or document_prefix")
    if ignored_prompt(folder):
        name = side_prompt(prompts, "document")
        sentences.append(
            f"documents get the folder's prompt {name}, which encode_document does not use; it reads document"
        )
    return sentences


def ignored_prompt(folder: Path) -> bool:
    """True where documents get a prompt that encode_document ignores: it always finds `document`, if only empty."""
    prompts = read_optional(folder / PROMPT_CONFIG).get("prompts") or {}
    name = side_prompt(prompts, "document")
    return name not in (None, "document") and bool(prompts[name])


def write_layout(folder: Path, contract: EncoderContract, hidden: int) -> None:
    """Write modules.json and its configurations so that `SentenceTransformer(folder)` follows the contract.

    Args:
        folder: holds the transformer's files and those of the contract's projections; of separate towers, the finished
            folders `query` and `document`.
        contract: what to write.
        hidden: components of a token's vector.
    """
    prompts = {"default_prompt_name": None, "prompts": {side: contract.prefix(side) for side in SIDES}}
    write_model_json(folder / PROMPT_CONFIG, prompts | {"similarity_fn_name": contract.similarity})
    if contract.towers == "separate":
        _write_router(folder)
        return
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [(path, kind_of_projection(folder / path)) for path in contract.projections]
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
    for key, value in read_layout(folder).items():
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
