"""Open a model folder that another tool wrote, and refuse one that is no bi-encoder, by what it is instead."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from zerodr.encoders.folder.contract import CONTRACT, read_json
from zerodr.errors import ModelError

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
TOKENIZERS = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))
UNAPPLIED = (  # keys of config.json that change vectors, and that transformers does not read, or not without more
    ("quantization_config", None, "choose the model in fp32, fp16 or bf16"),
    ("is_decoder", None, "choose a model that reads in both directions, or set it to false where this one does"),
    ("position_embedding_type", "absolute", "choose a model with absolute positions: this transformers has no others"),
)
INDEX = "model.safetensors.index.json"
PROMPT_CONFIG = "config_sentence_transformers.json"
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
ADAPTER = "adapter_config.json"
MERGE = (
    "merge it first: in Python, peft.AutoPeftModel.from_pretrained(FOLDER).merge_and_unload().save_pretrained(NEW), "
    "then copy the tokenizer and the files of sentence-transformers there"
)


class ModelFolder:
    """A model folder as other tools leave it. Each JSON file is read once, when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Return `config.json` of transformers; {} where it is missing."""
        return read_optional(self.path / "config.json")

    @cached_property
    def prompts(self) -> dict[str, Any]:
        """Return sentence-transformers' prompts and similarity; {} where there are none."""
        return read_optional(self.path / PROMPT_CONFIG)

    @cached_property
    def listed(self) -> bool:
        """True where the folder is one of sentence-transformers, with `modules.json`."""
        return (self.path / "modules.json").exists()

    @cached_property
    def modules(self) -> list[tuple[str, str]]:
        """List path and kind of each module of `modules.json`; [] where there is no such file.

        Raises:
            ModelError: a class that is not one of sentence-transformers' for bi-encoders, or a path outside the folder.
        """
        return check_modules(self.path) if self.listed else []


def read_optional(path: Path) -> dict[str, Any]:
    """Read a JSON file of a model folder; {} where it is missing."""
    return read_json(path) if path.exists() else {}


def check_files(folder: Path, bi_encoder: bool = True) -> ModelFolder:
    """Open a folder that holds a configuration, weights as safetensors, and a tokenizer, and no adapter.

    Args:
        folder: of a model.
        bi_encoder: it must be one; no other kind of model.

    Raises:
        ModelError: names what is missing, or what it is instead.
    """
    check_adapter(folder)
    files = ModelFolder(folder)
    if bi_encoder:
        check_kind(files)
    if not (folder / "config.json").exists():
        raise ModelError(folder, "has no config.json", "give a folder that transformers loads")
    if not list(folder.glob("*.safetensors")):
        if any(list(folder.glob(pattern)) for pattern in PICKLED):
            problem = "has pickled weights only (.bin), which may run code; expected safetensors"
            raise ModelError(folder, problem, f"run: zerodr convert {folder} NEW_FOLDER")
        step = "fetch the model again; if it comes as .bin alone, download its folder and run zerodr convert"
        raise ModelError(folder, "has no weights (*.safetensors)", step)
    check_shards(folder)
    for key, usual, step in UNAPPLIED:
        if (value := files.config.get(key) or usual) != usual:
            raise ModelError(folder, f"states {key} {json.dumps(value):.80}, which is not applied", step)
    if not any(all((folder / name).exists() for name in names) for names in TOKENIZERS):
        problem = "has no tokenizer (tokenizer.json, vocab.txt, or vocab.json with merges.txt)"
        raise ModelError(folder, problem, "copy the tokenizer's files into the folder")
    return files


def check_shards(folder: Path) -> None:
    """Check that the folder has the file of weights that transformers reads, or each part that their index names.

    Raises:
        ModelError: names the one that is missing.
    """
    names = ["model.safetensors"]
    if not (folder / names[0]).exists() and (folder / INDEX).exists():
        shards = read_json(folder / INDEX).get("weight_map")
        names = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else names
    if lacking := [name for name in names if not (folder / name).exists()]:
        present = ", ".join(sorted(path.name for path in folder.glob("*.safetensors") if path.exists())[:3])
        step = "download the whole folder, with the names that its files have there"
        raise ModelError(folder, f"lacks {lacking[0]}, found {present or 'a link to nothing'}", step)


def check_adapter(folder: Path) -> None:
    """Check that the folder's weights are all of its model.

    Raises:
        ModelError: it holds an adapter, with its base or without.
    """
    if (folder / ADAPTER).exists():
        base = read_json(folder / ADAPTER).get("base_model_name_or_path")
        raise ModelError(folder, f"holds an adapter ({ADAPTER}) of {base or 'another model'}, which is not read", MERGE)


def check_kind(files: ModelFolder) -> None:
    """Check that the folder holds one network of a bi-encoder, before its files are looked at one by one.

    Raises:
        ModelError: another kind of model.
    """
    folder, config = files.path, files.config
    _ = files.modules  # refused first: its classes say most
    kind = TYPES.get(files.prompts.get("model_type", ""))
    names = " ".join([*map(str, config.get("architectures") or ()), *map(str, (config.get("auto_map") or {}).values())])
    if "colbert" in names.lower() or (folder / "artifact.metadata").exists() or _has_weight(folder, "linear.weight"):
        kind = kind or MULTIPLE
    if "splade" in names.lower():
        kind = kind or SPARSE
    if kind is not None:
        raise ModelError(folder, f"is {kind}, expected a bi-encoder with one vector a text", "choose a bi-encoder")
    if list(folder.glob("**/*.onnx")) and not [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        raise ModelError(folder, "has ONNX weights alone, expected safetensors", "fetch the model with *.safetensors")
    if config.get("auto_map") and not _is_known(config):
        problem = f"needs code of its own ({next(iter(config['auto_map'].values()))}), which is not run"
        raise ModelError(folder, problem, "choose a model whose architecture transformers has")


def check_modules(folder: Path) -> list[tuple[str, str]]:
    """List path and kind of each module of `modules.json`; see `ModelFolder.modules`."""
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


def check_head(files: ModelFolder) -> None:
    """Check a folder without `modules.json` and without a stated pooling: its network is no language model.

    Raises:
        ModelError: it was made for something else than vectors of texts.
    """
    if files.listed or (files.path / CONTRACT).exists():
        return
    name = next(iter(files.config.get("architectures") or ()), "")
    kind = HEADS.get(str(name).partition("For")[2])
    if kind is not None:
        problem = f"has no modules.json and is {kind} ({name}); expected a bi-encoder"
        raise ModelError(files.path, problem, "where it is one all the same, state pooling: in its method")


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


def _is_known(config: dict[str, Any]) -> bool:
    """Check that transformers has a class for a configuration, and that its network is of the class's family."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    name = CONFIG_MAPPING_NAMES.get(config.get("model_type", ""))
    networks = [str(network) for network in config.get("architectures") or ()]
    return name is not None and all(network.startswith(name.removesuffix("Config")) for network in networks)
