"""Read what a foreign model folder states about its vectors, and list or refuse what this bench does not read.

One table for all keys: what is not in it is refused by name where it would change vectors, else listed as not used.
A folder without modules.json is a plain transformers folder, without pooling, normalisation or prefixes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zerodr.encoders.folder.contract import SIDES, Side, read_json
from zerodr.encoders.folder.foreign import MODULES, PROMPT_CONFIG, ModelFolder, read_optional
from zerodr.encoders.network.heads import SENTENCE
from zerodr.encoders.network.loading import family_of
from zerodr.errors import ModelError

FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
TRANSFORMER_CONFIGS = tuple(f"sentence_{family}_config.json" for family in FAMILIES)
LOADING = (
    *("trust_remote_code", "attn_implementation", "use_cache", "use_safetensors", "low_cpu_mem_usage"),
    *("torch_dtype", "dtype", "device_map", "use_fast", "padding_side", "model_max_length"),
)
OPTIONS = ("model_args", "model_kwargs", "config_args", "config_kwargs", "tokenizer_args", "processor_kwargs")
TOKENIZER_OPTIONS = ("processor_kwargs", "tokenizer_args")
LENGTHS = ("max_seq_length", "query_length", "document_length")
TASK = ("transformer_task", "modality_config", "module_output_name")
REFUSED = ("processing_kwargs", "query_expansion", "tokenizer_name_or_path")
HARMLESS = ("do_lower_case", "unpad_inputs", "backend")
ROTARY = ("rope", "rotary", "local_rope", "global_rope")  # begin of keys of networks without a position table
OLD_POOLINGS = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
IN_AND_OUT = ("module_input_name", "module_output_name")
KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TRANSFORMER_CONFIGS, (*LENGTHS, *TASK, *OPTIONS, *REFUSED, *HARMLESS)),
    PROMPT_CONFIG: (
        *("__version__", "model_type", "requirements"),
        *("prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim"),
    ),
    "Pooling": (
        *("embedding_dimension", "word_embedding_dimension", "pooling_mode", "include_prompt"),
        *(f"pooling_mode_{name}" for name in OLD_POOLINGS),
    ),
    "Dense": ("in_features", "out_features", "bias", "activation_function", *IN_AND_OUT, "use_residual"),
    "LayerNorm": ("dimension",),
    "Normalize": IN_AND_OUT,
}
"""Keys of each file, and of the `config.json` of each module."""
POOLING_NAMES = {"cls": "cls", "max": "max", "mean": "mean", "lasttoken": "last"}
NEW_NAMES = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean", "weightedmean_tokens": "weightedmean"}
OLD_POOLING_KEYS = {f"pooling_mode_{old}": NEW_NAMES.get(old, old) for old in OLD_POOLINGS}
LENGTH_FIELDS = {"max_seq_length": "max_tokens"} | {f"{side}_length": f"{side}_tokens" for side in SIDES}
SIMILARITIES = {"cosine": "cosine", "dot": "dot", "dot_product": "dot"}
PROMPTS: dict[Side, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
PROJECTIONS = ("Dense", "LayerNorm")
DECODER_STATES = ["decoder_hidden_states", -1]
DECODER_FIRST = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": DECODER_STATES}},
    "module_output_name": "token_embeddings",
}
"""All decoder states of an encoder-decoder; the decoder is causal, so the first is that of the start token alone."""
TOKENS, TEXT_STATES = "token_embeddings", {"method": "forward", "method_output_name": "last_hidden_state"}


def read_layout(files: ModelFolder) -> dict[str, Any]:
    """Read a sentence-transformers folder as the contract's keys; {} for a plain transformers folder.

    Keys, each only when the folder states it: pooling, normalize, similarity, query_prefix, document_prefix,
    max_tokens, lowercase, projections, dimension, query_tokens, document_tokens, towers.

    Raises:
        ModelError: a module, a pooling or an option that this bench does not run.
    """
    folder, modules = files.path, files.modules
    if not files.listed:
        return {}
    kinds = [kind for _, kind in modules]
    if kinds == ["Router"]:
        return {"towers": "separate"} | _lengths(files) | _prompts(files)
    if {*kinds} - {*MODULES} or kinds[:2] != ["Transformer", "Pooling"] or {"Normalize", "Router"} & {*kinds[:-1]}:
        expected = "Transformer, Pooling, any Dense or LayerNorm, then Normalize or not"
        problem = f"modules.json lists {', '.join(kinds)}; expected {expected}"
        raise ModelError(folder, problem, "choose a bi-encoder with these modules")
    if modules[0][0]:
        problem = f"its transformer is in {modules[0][0]}, expected the folder itself"
        raise ModelError(folder, problem, "save it with a current sentence-transformers")
    pooling = read_json(folder / modules[1][0] / "config.json")
    values: dict[str, Any] = {"normalize": "Normalize" in kinds, "pooling": _pooling(files, pooling)}
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
    _check_size(files, values.get("dimension"))
    return values | _task(files, values["pooling"]) | _lengths(files) | _prompts(files)


def _check_size(files: ModelFolder, dimension: int | None) -> None:
    size = files.prompts.get("truncate_dim")
    if size is not None and (dimension is None or size < dimension):
        problem = f"states truncate_dim {size}: vectors are cut to {size} of {dimension} components, which is not done"
        raise ModelError(files.path / PROMPT_CONFIG, problem, "remove truncate_dim to use all components")


def _task(files: ModelFolder, pooling: str) -> dict[str, Any]:
    name, config = transformer_config(files)
    task = config.get("transformer_task", "feature-extraction")
    if pooling == "cls" and {key: config.get(key) for key in DECODER_FIRST} == DECODER_FIRST:
        return {"pooling": "decoder_first"}
    if task != "feature-extraction":
        raise ModelError(
            files.path, f"its transformer is for {task}, expected feature-extraction", "choose a bi-encoder"
        )
    stated = {
        "modality_config": (config.get("modality_config") or {}).get("text", TEXT_STATES),
        "module_output_name": config.get("module_output_name") or TOKENS,
    }
    for key, expected in (("modality_config", TEXT_STATES), ("module_output_name", TOKENS)):
        if stated[key] != expected:
            problem = f"states {key} {stated[key]!r} for texts, expected {expected!r}"
            raise ModelError(files.path / name, problem, "choose a bi-encoder that pools last hidden states")
    return {}


def _pooling(files: ModelFolder, config: dict[str, Any]) -> str:
    stated = config.get("pooling_mode")
    if stated is None:
        stated = [name for key, name in OLD_POOLING_KEYS.items() if config.get(key)] or ["mean"]
    modes = [stated] if isinstance(stated, str) else list(stated)
    if len(modes) != 1 or modes[0] not in POOLING_NAMES:
        raise ModelError(files.path, f"pooling {' + '.join(modes)} is not known", f"known: {', '.join(POOLING_NAMES)}")
    prompts = _prompts(files)
    if config.get("include_prompt") is False and (prompts.get("query_prefix") or prompts.get("document_prefix")):
        problem = "its pooling ignores the prompt (include_prompt: false), which is not supported"
        raise ModelError(files.path, problem, "choose a model that pools over its prompt")
    return POOLING_NAMES[modes[0]]


def _lengths(files: ModelFolder) -> dict[str, Any]:
    name, config = transformer_config(files)
    values: dict[str, Any] = {}
    options: dict[str, Any] = next((config[key] for key in TOKENIZER_OPTIONS if config.get(key)), {})
    stated = config | {"max_seq_length": options.get("model_max_length", config.get("max_seq_length"))}
    for key, field in LENGTH_FIELDS.items():
        if (length := stated.get(key)) is not None:
            if type(length) is not int or length < 2:
                problem = f"states {key} {json.dumps(length)}, expected a whole number of at least 2"
                raise ModelError(files.path / name, problem, "correct it, or remove it")
            values[field] = length
    if "do_lower_case" in config:
        if not isinstance(config["do_lower_case"], bool):
            problem = f"states do_lower_case {json.dumps(config['do_lower_case'])}, expected true or false"
            raise ModelError(files.path / name, problem, "write it without quotes")
        values["lowercase"] = config["do_lower_case"]
    return values


def _prompts(files: ModelFolder) -> dict[str, Any]:
    config = files.prompts
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise ModelError(files.path / PROMPT_CONFIG, "prompts is no object of texts", "correct the prompts")
    names = {side: side_prompt(prompts, side) for side in SIDES}
    values: dict[str, Any] = {f"{side}_prefix": prompts[name] or "" for side, name in names.items() if name}
    similarity = config.get("similarity_fn_name")
    if similarity is not None:
        if not isinstance(similarity, str) or similarity not in SIMILARITIES:
            raise ModelError(
                files.path, f"similarity {similarity} is not supported", "choose a model with cosine or dot"
            )
        values["similarity"] = SIMILARITIES[similarity]
    return values


def side_prompt(prompts: dict[str, str | None], side: Side) -> str | None:
    """Name the prompt of a side; None where none is stated for it."""
    return next((name for name in PROMPTS[side] if name in prompts), None)


def unused_prompts(files: ModelFolder) -> list[str]:
    """List, as sentences, prompts of a folder of sentence-transformers that it, or this bench, ignores."""
    config = files.prompts
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    used = {side_prompt(prompts, side) for side in SIDES}
    others = [name for name, text in prompts.items() if text and name not in used]
    stated = [f"prompts {', '.join(others)}"] if others else []
    stated += [f"default_prompt_name {default}"] if default and default not in used else []
    sentences = []
    if stated:
        how = "encode_query and encode_document of sentence-transformers do not use; to use one, set query_prefix"
        sentences.append(f"the folder states {' and '.join(stated)}, which {how} or document_prefix")
    if ignored_prompt(files):
        name = side_prompt(prompts, "document")
        sentences.append(
            f"documents get the folder's prompt {name}, which encode_document does not use; it reads document"
        )
    return sentences


def ignored_prompt(files: ModelFolder) -> bool:
    """True where documents get a prompt that encode_document ignores: it always finds `document`, if only empty."""
    prompts = files.prompts.get("prompts") or {}
    name = side_prompt(prompts, "document")
    return name not in (None, "document") and bool(prompts[name])


def transformer_config(files: ModelFolder) -> tuple[str, dict[str, Any]]:
    """Read the first of sentence-transformers' files of a transformer that states anything; ("", {}) for none.

    Raises:
        ModelError: it states options that change vectors, which are not applied.
    """
    for name in TRANSFORMER_CONFIGS:
        config = read_optional(files.path / name)
        if config:
            _check_options(files.path / name, config)
            return name, config
    return "", {}


def _check_options(path: Path, config: dict[str, Any]) -> None:
    step = "save the model with these settings in config.json and the tokenizer's files, and without this key"
    for key in OPTIONS:
        options = {name: value for name, value in (config.get(key) or {}).items() if name not in LOADING}
        if options:
            raise ModelError(path, f"states {key} {json.dumps(options)}, which is not applied", step)
    for key in REFUSED:
        value = config.get(key)
        if isinstance(value, dict):
            value = {name: inner for name, inner in value.items() if inner}
        if value:
            raise ModelError(path, f"states {key} {json.dumps(value)}, which is not applied", step)


def unread(files: ModelFolder) -> list[str]:
    """List, as sentences, what a foreign folder states and nothing here reads; each is without effect on vectors."""
    sentences, folder = [], files.path
    listed = [(folder / path / "config.json", kind) for path, kind in files.modules[1:] if path]
    stated = [(path, kind) for path, kind in listed if kind in KEYS and path.exists()]
    configs = (transformer_config(files)[0], PROMPT_CONFIG)
    if listed:
        stated += [(folder / name, name) for name in configs if name and (folder / name).exists()]
    else:
        names = [name for name in (*TRANSFORMER_CONFIGS, PROMPT_CONFIG) if (folder / name).exists()]
        if names:
            sentences.append(f"the folder has no modules.json, so {', '.join(names)} is not read")
    for path, kind in stated:
        more = [key for key in read_json(path) if key not in KEYS[kind]]
        if more:
            sentences.append(f"{path.relative_to(folder)} states {', '.join(more)}, which is not read")
    code = files.config.get("auto_map")
    if code:
        sentences.append(f"config.json names code of its own ({next(iter(code.values()))}), which is not run")
    return sentences


def position_limit(files: ModelFolder) -> int | None:
    """Read the longest input that the position table holds; None when the architecture has no table."""
    return None if any(key.startswith(ROTARY) for key in files.config) else stated_positions(files)


def stated_positions(files: ModelFolder) -> int | None:
    """Read the longest input that the network was made for, with a position table or without; None: not stated."""
    config = files.config
    rows = config.get("max_position_embeddings")
    if not isinstance(rows, int) or rows < 1:
        return None
    if family_of(config.get("model_type")).offset:
        padding = config.get("pad_token_id")
        return rows - 1 - (1 if padding is None else int(padding))
    return rows


def length_limit(files: ModelFolder, default: int) -> int:
    """Return the longest input that both the network and the tokenizer were made for."""
    return min([limit for limit in (stated_positions(files), tokenizer_limit(files)) if limit], default=default)


def tokenizer_limit(files: ModelFolder) -> int | None:
    """Read the longest input of the tokenizer's configuration; None when it states none."""
    limit = read_optional(files.path / "tokenizer_config.json").get("model_max_length")
    return int(limit) if limit is not None and limit < 10**6 else None
