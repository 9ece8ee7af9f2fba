"""Read what a foreign model folder is from its files, and refuse what is no bi-encoder before any weight is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from zerodr.config.methods import ImportedModel
from zerodr.encoders.folder.contract import CONTRACT, EncoderContract, make_contract, read_contract, read_json
from zerodr.encoders.folder.foreign import PROMPT_CONFIG, ModelFolder, check_files, check_head
from zerodr.encoders.folder.layout import check_layout
from zerodr.encoders.folder.statements import length_limit, position_limit, read_layout, unread, unused_prompts
from zerodr.encoders.network.heads import load_projection
from zerodr.encoders.network.loading import load_config, short
from zerodr.errors import ModelError

ASSUMED = ("pooling", "normalize", "max_tokens")
ASSUMPTION = "the folder does not state its {}; assumed: {}"
PROMPTED = {
    r"(?i)(^|[/_-])e5-(?!mistral)(?!.*instruct)": ("E5", "query: ", "passage: "),
    r"(?i)nomic-embed-text": ("Nomic", "search_query: ", "search_document: "),
}
"""Names of models that want prompts which their files do not state."""
OVERRIDES = ("pooling", "normalize", "query_prefix", "document_prefix", "max_tokens")


class ImportSettings(ImportedModel):
    """Params of rule import_model."""

    offline: bool = False
    """Never ask the hub."""


class Source(NamedTuple):
    """A model folder whose files were read.

    Attributes:
        files: of the folder.
        contract: of the imported model.
        width: components of a token's vector.
        assumed: sentences about what the folder does not state.
    """

    files: ModelFolder
    contract: EncoderContract
    width: int
    assumed: list[str]


def read_source(folder: Path, settings: ImportSettings, revision: str | None) -> Source:
    """Read a folder of one network, this bench's or another tool's; no weights of its transformer.

    Raises:
        ModelError: one clear reason why it is no bi-encoder of this bench.
    """
    files = check_files(folder)
    stated = read_contract(folder) if (folder / CONTRACT).exists() else None
    values, assumed = describe(files, stated, settings)
    if values.get("towers") == "separate":
        problem = "routes queries and documents to modules of their own (Router)"
        raise ModelError(folder, problem, "import both: kind: encoder with model (queries) and document_model")
    width = width_of(folder)
    dimension = values.setdefault("dimension", width)
    if dimension != width and not values["projections"]:
        problem = f"promises vectors of {dimension} components, its transformer makes {width}"
        raise ModelError(folder, problem, "correct the pooling's configuration")
    values["architecture"] = (files.config.get("architectures") or [files.config.get("model_type", "unknown")])[0]
    contract = make_contract(folder, values | {"source": settings.model, "revision": revision})
    for name in contract.projections:
        load_projection(folder / name)
    return Source(files, contract, width, [*assumed, *missing_prompts(contract), *check_tokens(folder)])


def missing_prompts(contract: EncoderContract) -> list[str]:
    """Say which prompts a model of a known name was trained with, where its files state none."""
    if contract.query_prefix or contract.document_prefix:
        return []
    return [
        f"{family} models were trained with {query!r} before queries and {document!r} before documents, which the "
        f"files do not state: set query_prefix and document_prefix, or write prompts into {PROMPT_CONFIG}"
        for name, (family, query, document) in PROMPTED.items()
        if re.search(name, contract.source)
    ]


def width_of(folder: Path) -> int:
    """Read the components of a token's vector, of a configuration that transformers knows.

    Raises:
        ModelError: it knows none, or one without a width.
    """
    try:
        width = getattr(load_config(folder, None), "hidden_size", None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"transformers can't load it ({short(error)})"
        raise ModelError(folder, problem, "choose a model that it knows") from None
    if not isinstance(width, int):
        raise ModelError(folder, "config.json states no hidden_size", "choose a text encoder")
    return width


def describe(
    files: ModelFolder, contract: EncoderContract | None, settings: ImportSettings
) -> tuple[dict[str, Any], list[str]]:
    """Return the contract's values (of the folder, overridden by the method, else assumed) and the assumptions.

    Args:
        contract: the folder's, where it is a model of this bench.
    """
    if settings.pooling is None:
        check_head(files)
    if contract is not None:
        check_layout(files.path, contract)
        stated, notes = contract.model_dump(mode="json", exclude={"architecture", "source", "revision"}), list[str]()
    else:
        stated, notes = read_layout(files), unread(files) + unused_prompts(files)
    values: dict[str, Any] = {"pooling": "mean", "normalize": False, "lowercase": False, "projections": []} | stated
    rows = position_limit(files)
    if "max_tokens" not in stated:
        values["max_tokens"] = length_limit(files, 512)
    keys = [key for key in ASSUMED if key not in stated and getattr(settings, key) is None]
    assumed = notes + [ASSUMPTION.format(key, values[key]) for key in keys]
    values |= {key: value for key in OVERRIDES if (value := getattr(settings, key)) is not None}
    for key in ("query_tokens", "document_tokens"):
        if values.get(key):
            values[key] = min(values[key], values["max_tokens"])
    if rows is not None and values["max_tokens"] > rows:
        problem = f"max_tokens is {values['max_tokens']}, but its position table holds {rows}"
        raise ModelError(files.path, problem, f"set max_tokens to at most {rows}")
    if "similarity" not in values:
        listed = files.listed and settings.normalize is None  # then as sentence-transformers
        values["similarity"] = "cosine" if values["normalize"] or listed else "dot"
        assumed.append(ASSUMPTION.format("similarity", values["similarity"]))
    if values["similarity"] == "cosine" and settings.normalize is None:
        values["normalize"] = True  # cosine is the inner product of unit vectors
    return values, assumed


def check_tokens(folder: Path) -> list[str]:
    """Check that each token of a model has a row in the embedding table, and that there is one to pad with.

    Returns:
        a sentence about special tokens without one, which no ordinary text holds.

    Raises:
        ModelError: a word of the tokenizer has none, or texts of several lengths can't be padded.
    """
    from zerodr.encoders.network.tokenizing import added_special, load_tokenizer

    tokenizer = load_tokenizer(folder)
    if tokenizer.pad_token_id is None:
        step = "choose one in Python: tokenizer.pad_token = tokenizer.eos_token, then tokenizer.save_pretrained(FOLDER)"
        raise ModelError(folder, "its tokenizer has no padding token, as sentence-transformers needs", step)
    rows = read_json(folder / "config.json").get("vocab_size")
    if not isinstance(rows, int):
        return []
    special = added_special(tokenizer)
    beyond = sorted(token for token, number in tokenizer.get_vocab().items() if number >= rows)
    words = [token for token in beyond if token not in special]
    if words:
        problem = f"the tokenizer's token {words[0]!r} has no row in the embedding table of {rows}"
        problem += f", nor have {len(words) - 1} more" if len(words) > 1 else ""
        raise ModelError(folder, problem, "use the model's own tokenizer, or resize its embeddings and save it")
    return [f"special tokens have no row, and a text that holds one fails: {', '.join(beyond)}"] if beyond else []
