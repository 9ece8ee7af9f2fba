"""Read the settings of a model that recipes start from, and refuse one that they can't train."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zerodr.config.counterparts import OtherStart
from zerodr.config.starts import PACKAGE
from zerodr.encoders.folder.foreign import ModelFolder
from zerodr.encoders.folder.statements import length_limit
from zerodr.encoders.network.tokenizing import load_tokenizer
from zerodr.encoders.start.importing import OVERRIDES, ImportSettings, copy_model, resolve
from zerodr.errors import ModelError

UNSAFE = re.compile(r"[^a-z0-9._-]+")
POOLINGS = ("mean", "cls")


def read_start(model: str, offline: bool, recipes: Collection[str] = ()) -> OtherStart:
    """Read the settings of a bi-encoder that adaptation shall start from.

    Args:
        model: a folder, `organisation/name` on the hub, or `package:<module>`.
        offline: never ask the hub.
        recipes: names that are in use; a model that is called like one of them gets a longer name.

    Raises:
        ModelError: it is none, or one that the recipes can't train.
    """
    source, revision = resolve(model, None, offline)
    unchanged: dict[str, Any] = dict.fromkeys(("revision", *OVERRIDES))
    with TemporaryDirectory() as folder:  # loads the copy, and compares its vectors
        contract, _ = copy_model(source, Path(folder), ImportSettings(model=model, **unchanged), revision)
    name = UNSAFE.sub("-", Path(model.removeprefix(PACKAGE)).name.lower()).strip("-._")
    name = f"start-{name}" if name in recipes or not name else name
    where = f"--start {model}"
    if contract.pooling not in POOLINGS or contract.projections or contract.towers == "separate":
        problem = f"pools by {contract.pooling}, with {len(contract.projections)} layers behind; "
        problem += "recipes train one network that pools by mean or cls, with none"
        raise ModelError(where, problem, "choose another model")
    if not contract.normalize:
        step = "choose one with a Normalize module, as most of sentence-transformers are"
        raise ModelError(where, "compares by inner product, and the recipes' temperature is for cosines", step)
    prefix = len(load_tokenizer(source)(contract.query_prefix, add_special_tokens=False)["input_ids"])
    if prefix > contract.max_tokens // 2:
        problem = f"wants a prefix of {prefix} tokens for queries and reads {contract.max_tokens}"
        raise ModelError(where, problem, "shorten the prompt in its config_sentence_transformers.json")
    longest = length_limit(ModelFolder(source), contract.max_tokens)
    return OtherStart(
        name=name,
        model=model,
        revision=revision,
        pooling=contract.pooling,
        max_tokens=contract.max_tokens,
        stated_tokens=contract.max_tokens if contract.max_tokens < longest else None,
        prefix_tokens=prefix,
    )
