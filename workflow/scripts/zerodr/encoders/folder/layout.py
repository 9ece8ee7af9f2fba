"""Reading and writing the folder layout of sentence-transformers: modules.json and what it points to.

A folder without modules.json is a plain transformers folder; it says nothing about pooling, normalisation or prefixes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zerodr.encoders.folder.contract import SIDES, EncoderContract, read_contract, read_json, write_model_json
from zerodr.encoders.network.heads import kind_of_projection
from zerodr.errors import ModelError

POOLING_NAMES = {"cls": "cls", "max": "max", "mean": "mean", "lasttoken": "last"}
OLD_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
SIMILARITIES = {"cosine": "cosine", "dot": "dot", "dot_product": "dot"}
QUERY_PROMPTS = ("query",)
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
MODULE_TYPES = {
    "Transformer": "sentence_transformers.models.Transformer",
    "Pooling": "sentence_transformers.models.Pooling",
    "Dense": "sentence_transformers.models.Dense",
    "LayerNorm": "sentence_transformers.models.LayerNorm",
    "Normalize": "sentence_transformers.models.Normalize",
    "Router": "sentence_transformers.models.Router",
}
PROJECTIONS = ("Dense", "LayerNorm")
ROUTER = "router_config.json"
DECODER_STATES = ["decoder_hidden_states", -1]
DECODER_FIRST = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": DECODER_STATES}},
    "module_output_name": "token_embeddings",
}
"""All decoder states of an encoder-decoder; the decoder is causal, so the first is that of the start token alone."""


def read_layout(folder: Path) -> dict[str, Any]:
    """What a sentence-transformers folder says, in the contract's words; {} for a plain transformers folder.

    Keys, each only when the folder says it: pooling, normalize, similarity, query_prefix, document_prefix, max_tokens,
    lowercase, projections, dimension, query_tokens, document_tokens, towers.

    Raises:
        ModelError: a module or a pooling that this bench does not run.
    """
    if not (folder / "modules.json").exists():
        return {}
    modules = read_json(folder / "modules.json")
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
    strange = [kind for kind in kinds if kind not in MODULE_TYPES]
    if kinds == ["Router"]:
        return {"towers": "separate"} | _lengths(folder) | _prompts(folder)
    if strange or kinds[:2] != ["Transformer", "Pooling"] or {"Normalize", "Router"} & {*kinds[:-1]}:
        raise ModelError(
            folder,
            f"modules.json lists {', '.join(kinds)}; expected Transformer, Pooling, any Dense "
            "or LayerNorm, then Normalize or not",
            "choose a bi-encoder with these modules",
        )
    if modules[0].get("path"):
        raise ModelError(
            folder,
            f"its transformer lies in {modules[0]['path']}, expected the folder itself",
            "save it with a current sentence-transformers",
        )
    pooling = read_json(folder / modules[1]["path"] / "config.json")
    found: dict[str, Any] = {"normalize": "Normalize" in kinds, "pooling": _pooling(folder, pooling)}
    size = pooling.get("embedding_dimension", pooling.get("word_embedding_dimension"))
    if size is not None:
        found["dimension"] = size
    after = [module["path"] for module, kind in zip(modules, kinds, strict=True) if kind in PROJECTIONS]
    if after:
        config = read_json(folder / after[-1] / "config.json")
        found |= {"projections": after, "dimension": config.get("out_features", config.get("dimension"))}
    return found | _task(folder, found["pooling"]) | _lengths(folder) | _prompts(folder)


def _task(folder: Path, pooling: str) -> dict[str, Any]:
    path = folder / "sentence_bert_config.json"
    config = read_json(path) if path.exists() else {}
    task = config.get("transformer_task", "feature-extraction")
    if pooling == "cls" and {key: config.get(key) for key in DECODER_FIRST} == DECODER_FIRST:
        return {"pooling": "decoder_first"}
    if task != "feature-extraction":
        raise ModelError(folder, f"its transformer is for {task}, expected feature-extraction", "choose a bi-encoder")
    return {}


def _pooling(folder: Path, config: dict[str, Any]) -> str:
    stated = config.get("pooling_mode")
    if stated is None:
        stated = [name for key, name in OLD_POOLING_KEYS.items() if config.get(key)] or ["mean"]
    modes = [stated] if isinstance(stated, str) else list(stated)
    if len(modes) != 1 or modes[0] not in POOLING_NAMES:
        raise ModelError(folder, f"pooling {' + '.join(modes)} is not known", f"known: {', '.join(POOLING_NAMES)}")
    if config.get("include_prompt") is False and any(
        _prompts(folder).get(k) for k in ("query_prefix", "document_prefix")
    ):
        raise ModelError(
            folder,
            "its pooling leaves the prompt out (include_prompt: false), which is not supported",
            "choose a model that pools over its prompt",
        )
    return POOLING_NAMES[modes[0]]


def _lengths(folder: Path) -> dict[str, Any]:
    path = folder / "sentence_bert_config.json"
    config = read_json(path) if path.exists() else {}
    found: dict[str, Any] = {}
    if config.get("max_seq_length"):
        found["max_tokens"] = config["max_seq_length"]
    if "do_lower_case" in config:
        found["lowercase"] = bool(config["do_lower_case"])
    for key in ("query", "document"):
        if config.get(f"{key}_length"):
            found[f"{key}_tokens"] = config[f"{key}_length"]
    return found


def _prompts(folder: Path) -> dict[str, Any]:
    path = folder / "config_sentence_transformers.json"
    config = read_json(path) if path.exists() else {}
    prompts, found = config.get("prompts") or {}, {}
    default = prompts.get(config.get("default_prompt_name") or "", "")
    for key, names in (("query_prefix", QUERY_PROMPTS), ("document_prefix", DOCUMENT_PROMPTS)):
        said = [prompts[name] for name in names if name in prompts]
        if said or default:
            found[key] = said[0] if said else default
    similarity = config.get("similarity_fn_name")
    if similarity is not None:
        if similarity not in SIMILARITIES:
            raise ModelError(folder, f"similarity {similarity} is not supported", "choose a model with cosine or dot")
        found["similarity"] = SIMILARITIES[similarity]
    return found


def write_layout(folder: Path, contract: EncoderContract, hidden: int) -> None:
    """Write modules.json and its configurations so that `SentenceTransformer(folder)` follows the contract.

    Args:
        folder: holds the transformer's files and those of the contract's projections; of separate towers, the finished
            folders `query` and `document`.
        contract: what to write.
        hidden: components of a token's vector.
    """
    general = {
        "default_prompt_name": None,
        "similarity_fn_name": contract.similarity,
        "prompts": {side: contract.prefix(side) for side in SIDES},
    }
    write_model_json(folder / "config_sentence_transformers.json", general)
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
    pooling = {name: mode == POOLING_NAMES.get(known) for name, known in OLD_POOLING_KEYS.items()}
    write_model_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": hidden} | pooling)
    lengths: dict[str, Any] = {"max_seq_length": contract.max_tokens, "do_lower_case": contract.lowercase}
    lengths |= {f"{side}_length": value for side in SIDES if (value := getattr(contract, f"{side}_tokens"))}
    decoder = DECODER_FIRST if contract.pooling == "decoder_first" else {}
    write_model_json(folder / "sentence_bert_config.json", lengths | decoder)


def _write_modules(folder: Path, modules: list[tuple[str, str]]) -> None:
    listing = [
        {"idx": i, "name": str(i), "path": path, "type": MODULE_TYPES[kind]} for i, (path, kind) in enumerate(modules)
    ]
    write_model_json(folder / "modules.json", listing)


def _write_router(folder: Path) -> None:
    """`encode_query` takes the modules of folder `query`; `encode_document`, and `encode`, those of `document`."""
    _write_modules(folder, [("", "Router")])
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for side in SIDES:
        listed = read_json(folder / side / "modules.json")
        names = [f"{side}/{module['path']}".rstrip("/") for module in listed]
        types |= {name: module["type"] for name, module in zip(names, listed, strict=True)}
        structure[side] = names
    parameters = {"default_route": "document", "allow_empty_key": True}
    write_model_json(folder / ROUTER, {"types": types, "structure": structure, "parameters": parameters})


def check_layout(folder: Path, contract: EncoderContract) -> None:
    """What sentence-transformers would do with the folder, and with each of separate towers, is what its contract says.

    Raises:
        ModelError: names the first key that differs.
    """
    for side in SIDES if contract.towers == "separate" else ():
        tower = read_contract(folder / side)
        if tower != contract.model_copy(update={"towers": "tied"}):
            raise ModelError(folder, f"contradicts itself: tower {side} has another contract", "import the model again")
        check_layout(folder / side, tower)
    for key, found in read_layout(folder).items():
        promised = getattr(contract, key)
        if (list(promised) if isinstance(promised, tuple) else promised) != found:
            raise ModelError(
                folder,
                f"contradicts itself: {key} is {promised!r} in zerodr.json, but {found!r} in the "
                "files of sentence-transformers",
                "import the model again",
            )
