"""Read and write a model folder's contract, `zerodr.json`: how texts are prepared, pooled and compared.

Papers add to model folders, for loading and publishing: each registers one record as `FOLDERS` of its module `folders`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator

from zerodr.config.base import Settings
from zerodr.config.params import ExportParams
from zerodr.errors import ModelError
from zerodr.papers import modules

CONTRACT = "zerodr.json"
Precision = Literal["fp32", "bf16", "fp16"]
Side = Literal["query", "document"]
SIDES: tuple[Side, Side] = ("query", "document")


class EncoderContract(Settings):
    """Preparation, pooling and comparison of texts. Every model folder of the bench holds one."""

    pooling: Literal["mean", "cls", "max", "last", "decoder_first"]
    """From token vectors to the text's vector. `decoder_first`: T5's decoder state at its start token."""
    normalize: bool
    """Scale vectors to length 1."""
    similarity: Literal["cosine", "dot"]
    """How vectors are compared. `cosine` needs `normalize`, so that search is one inner product."""
    query_prefix: str = ""
    """Precedes every query."""
    document_prefix: str = ""
    """Precedes every document."""
    max_tokens: int = Field(ge=2)
    """Longest input, special tokens included; longer texts are cut."""
    query_tokens: int | None = Field(None, ge=2)
    """Length of queries unless a protocol says otherwise. None: max_tokens."""
    document_tokens: int | None = Field(None, ge=2)
    """Length of documents unless a protocol says otherwise. None: max_tokens."""
    dimension: int = Field(ge=1)
    """Components of a vector."""
    lowercase: bool = False
    """Lower-case texts before tokenisation."""
    projections: tuple[str, ...] = ()
    """Subfolders with dense layers and layer norms that follow the pooling, in order."""
    towers: Literal["tied", "separate"] = "tied"
    """One network for both sides, or two: then the subfolders `query` and `document` are model folders, too."""
    modules: str | None = None
    """Subfolder with networks that are inserted into the transformer (DDR's modular form); other tools ignore them."""
    architecture: str
    """Class of the transformer, such as `BertModel`."""
    source: str
    """Origin of the weights: a hub name, a package, a folder or a stage."""
    revision: str | None = None
    """Hub commit."""

    @model_validator(mode="after")
    def _comparable(self) -> EncoderContract:
        if self.similarity == "cosine" and not self.normalize:
            raise ValueError("similarity cosine contradicts normalize false; use normalize true, or similarity dot")
        longest = max(self.query_tokens or 0, self.document_tokens or 0)
        if longest > self.max_tokens:
            raise ValueError(f"a side takes {longest} tokens, more than max_tokens {self.max_tokens}; lower it")
        return self

    def prefix(self, side: Side) -> str:
        """Return the prefix of every text of a side."""
        return self.query_prefix if side == "query" else self.document_prefix

    def tokens(self, side: Side) -> int:
        """Return the longest input of a side, special tokens included."""
        return (self.query_tokens if side == "query" else self.document_tokens) or self.max_tokens


def make_contract(folder: Path | str, values: dict[str, Any]) -> EncoderContract:
    """Validate `values` as a contract.

    >>> values = {"pooling": "cls", "normalize": True, "similarity": "cosine", "max_tokens": 256, "query_tokens": 32}
    >>> values |= {"dimension": 384, "architecture": "BertModel", "source": "folder"}
    >>> contract = make_contract("models/mine", values)
    >>> contract.tokens("query"), contract.tokens("document")
    (32, 256)

    Raises:
        ModelError: names the key at fault, with what was found.
    """
    try:
        return EncoderContract.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        problem = f"{key}: {message.lower()}, found {first['input']!r}" if key else message
        step = "correct the method's settings or the folder"
        raise ModelError(folder, f"its contract is wrong: {problem}", step) from None


def read_contract(folder: Path) -> EncoderContract:
    """Read the contract of a model folder.

    Raises:
        ModelError: there is none, it is no JSON, or it contradicts itself.
    """
    path = folder / CONTRACT
    if not path.exists():
        raise ModelError(folder, f"has no {CONTRACT}", "import the model with an encoder method (kind: encoder)")
    return make_contract(folder, read_json(path))


def write_contract(folder: Path, contract: EncoderContract) -> None:
    """Write `zerodr.json`; equal contracts give equal bytes."""
    excluded = {"modules"} if contract.modules is None else set()
    write_model_json(folder / CONTRACT, contract.model_dump(mode="json", exclude=excluded))


def read_json(path: Path) -> Any:
    """Read a JSON file of a model folder: an object, or the modules in `modules.json`.

    Raises:
        ModelError: the file is missing, is no JSON, or holds something else.
    """
    step = "fetch the model again"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        step = "download the whole folder, subfolders included"
        raise ModelError(path, "is missing, and another file of the model names it", step) from None
    except ValueError as error:
        raise ModelError(path, f"is no JSON ({error})", step) from None
    if path.name == "modules.json":
        if not (
            isinstance(value, list) and all(isinstance(row, dict) and {"type", "path"} <= row.keys() for row in value)
        ):
            raise ModelError(path, "is no JSON list of objects with type and path", step)
    elif not isinstance(value, dict):
        raise ModelError(path, f"expected a JSON object, found {type(value).__name__}", step)
    return value


def write_model_json(path: Path, value: Any) -> None:
    """Write a JSON file of a model folder, keys sorted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


class CardSection(NamedTuple):
    """A section of a model card before its section on use with sentence-transformers.

    Attributes:
        text: Markdown.
        without: limits of such use, behind the heading `Use`.
    """

    text: str
    without: str


@dataclass(frozen=True)
class PaperFolders:
    """Additions of a paper to model folders.

    Attributes:
        insert: (folder of `contract.modules`, transformers module) -> None: put the modules into the network.
        subfolders: next to a plain model; a saved step of training has them, too.
        export: (model folder, exported folder, params) -> None: add files to an exported model.
        describe: params -> a section of its card, or None.
    """

    insert: Callable[[Path, Any], None] | None = None
    subfolders: tuple[str, ...] = ()
    export: Callable[[Path, Path, ExportParams], None] | None = None
    describe: Callable[[ExportParams], CardSection | None] | None = None


def papers() -> list[PaperFolders]:
    """List the additions of all papers, in their order."""
    return [module.FOLDERS for module in modules("folders")]


def insert_modules(folder: Path, transformer: Any) -> None:
    """Insert the modules of a folder into a transformers module."""
    for paper in papers():
        if paper.insert is not None:
            paper.insert(folder, transformer)
