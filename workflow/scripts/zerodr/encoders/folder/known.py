"""Check what a foreign model folder states: classes, keys and files that this bench reads, and those that it does not.

One table for all: what is not in it is refused by name where it would change vectors, else listed as not used.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

from zerodr.encoders.folder.contract import CONTRACT, read_json
from zerodr.errors import ModelError

MODULES = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "Router")
CLASS = re.compile(r"sentence_transformers\.(models|base\.modules|sentence_transformer\.modules)(\.\w+)?\.(\w+)")
SPARSE, MULTIPLE = "a sparse encoder (as SPLADE)", "a multi-vector model (as ColBERT)"
PACKAGES = {"sentence_transformers.sparse_encoder": SPARSE, "sentence_transformers.cross_encoder": "a cross-encoder"}
PACKAGES |= {"sentence_transformers.multi_vector_encoder": MULTIPLE, "pylate": MULTIPLE}
STATIC = "a model of static word vectors"
CLASSES = {"StaticEmbedding": STATIC, "WordEmbeddings": STATIC, "BoW": STATIC, "CLIPModel": "a model of images"}
TYPES = {"SparseEncoder": SPARSE, "MultiVectorEncoder": MULTIPLE, "CrossEncoder": "a cross-encoder"}
HEADS = {
    "MaskedLM": "a masked language model, or a sparse encoder (as SPLADE)",
    "CausalLM": "a language model",
    "SequenceClassification": "a classifier, or a cross-encoder",
    "TokenClassification": "a classifier of tokens",
    "QuestionAnswering": "a reader",
}
FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
TRANSFORMER_CONFIGS = tuple(f"sentence_{family}_config.json" for family in FAMILIES)
PROMPT_CONFIG = "config_sentence_transformers.json"
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
ADAPTER = "adapter_config.json"
MERGE = (
    "merge it first: in Python, peft.AutoPeftModel.from_pretrained(FOLDER).merge_and_unload().save_pretrained(NEW), "
    "then copy the tokenizer and the files of sentence-transformers there"
)


def check_adapter(folder: Path) -> None:
    """Check that the folder's weights are all of its model.

    Raises:
        ModelError: it holds an adapter, with its base or without.
    """
    if (folder / ADAPTER).exists():
        base = read_json(folder / ADAPTER).get("base_model_name_or_path")
        raise ModelError(folder, f"holds an adapter ({ADAPTER}) of {base or 'another model'}, which is not read", MERGE)


def check_kind(folder: Path) -> None:
    """Check that the folder holds one network of a bi-encoder, before its files are looked at one by one.

    Raises:
        ModelError: another kind of model.
    """
    check_modules(folder)
    kind = TYPES.get(read_optional(folder / PROMPT_CONFIG).get("model_type", ""))
    config = read_optional(folder / "config.json")
    names = " ".join([*map(str, config.get("architectures") or ()), *map(str, (config.get("auto_map") or {}).values())])
    if "colbert" in names.lower() or (folder / "artifact.metadata").exists() or _has_weight(folder, "linear.weight"):
        kind = kind or MULTIPLE
    if "splade" in names.lower():
        kind = kind or SPARSE
    if kind is not None:
        raise ModelError(folder, f"is {kind}, expected a bi-encoder with one vector a text", "choose a bi-encoder")
    if list(folder.glob("**/*.onnx")) and not [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        raise ModelError(folder, "has ONNX weights alone, expected safetensors", "fetch the model with *.safetensors")
    if config.get("auto_map") and not _is_known(config.get("model_type")):
        problem = f"needs code of its own ({next(iter(config['auto_map'].values()))}), which is not run"
        raise ModelError(folder, problem, "choose a model whose architecture transformers has")


def check_modules(folder: Path) -> list[tuple[str, str]]:
    """List path and kind of each module of `modules.json`; [] where there is no such file.

    Raises:
        ModelError: a class that is not one of sentence-transformers' for bi-encoders, or a path outside the folder.
    """
    if not (folder / "modules.json").exists():
        return []
    modules = []
    for module in read_json(folder / "modules.json"):
        name, path = str(module["type"]), PurePosixPath(str(module["path"]))
        if path.is_absolute() or ".." in path.parts:
            raise ModelError(folder / "modules.json", f"names {path}, outside the folder", "download the whole folder")
        package = next((kind for start, kind in PACKAGES.items() if name.startswith(start + ".")), None)
        standard = CLASS.fullmatch(name)
        kind = package or (CLASSES.get(standard[3]) if standard else None)
        if kind is not None:
            problem = f"is {kind} ({name} in modules.json), expected a bi-encoder of one transformer"
            raise ModelError(folder, problem, "choose a bi-encoder")
        if standard is None:
            problem = f"modules.json names the class {name}, expected one of sentence_transformers"
            raise ModelError(folder, problem, "choose a model of standard modules")
        modules.append((str(module["path"]), standard[3]))
    return modules


def check_head(folder: Path) -> None:
    """Check a folder without `modules.json` and without a stated pooling: its network is no language model.

    Raises:
        ModelError: it was made for something else than vectors of texts.
    """
    if (folder / "modules.json").exists() or (folder / CONTRACT).exists():
        return
    name = next(iter(read_json(folder / "config.json").get("architectures") or ()), "")
    kind = HEADS.get(str(name).partition("For")[2])
    if kind is not None:
        problem = f"has no modules.json and is {kind} ({name}); expected a bi-encoder"
        raise ModelError(folder, problem, "where it is one all the same, state pooling: in its method")


def transformer_config(folder: Path) -> tuple[str, dict[str, Any]]:
    """Read the first of sentence-transformers' files of a transformer that states anything; ("", {}) for none.

    Raises:
        ModelError: it states options that change vectors, which are not applied.
    """
    for name in TRANSFORMER_CONFIGS:
        config = read_optional(folder / name)
        if config:
            _check_options(folder / name, config)
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


def unread(folder: Path) -> list[str]:
    """List, as sentences, what a foreign folder states and nothing here reads; each is without effect on vectors."""
    sentences = []
    listed = [(folder / path / "config.json", kind) for path, kind in check_modules(folder)[1:] if path]
    stated = [(path, kind) for path, kind in listed if kind in KEYS and path.exists()]
    configs = (transformer_config(folder)[0], PROMPT_CONFIG)
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
    code = read_optional(folder / "config.json").get("auto_map")
    if code:
        sentences.append(f"config.json names code of its own ({next(iter(code.values()))}), which is not run")
    return sentences


def read_optional(path: Path) -> dict[str, Any]:
    """Read a JSON file of a model folder; {} where it is missing."""
    return read_json(path) if path.exists() else {}


def _has_weight(folder: Path, name: str) -> bool:
    from safetensors import SafetensorError, safe_open

    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="np") as file:
                if name in file.keys():
                    return True
        except (OSError, SafetensorError):
            continue  # check_weights says what is wrong with it
    return False


def _is_known(model_type: str | None) -> bool:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return model_type in CONFIG_MAPPING_NAMES
