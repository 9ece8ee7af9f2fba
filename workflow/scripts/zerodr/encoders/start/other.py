"""Read the settings of a model that recipes start from, and refuse one that they can't train."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zerodr.config.counterparts import OtherStart
from zerodr.config.starts import PACKAGE
from zerodr.encoders.folder import checkpoint
from zerodr.encoders.inference.encoder import load_tokenizer
from zerodr.encoders.start.importing import OVERRIDES, ImportSettings, copy_model, describe, resolve
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
    checkpoint.check_files(source)
    unchanged: dict[str, Any] = dict.fromkeys(("revision", *OVERRIDES))
    settings = ImportSettings(model=model, **unchanged)
    values, _ = describe(source, settings)
    name = UNSAFE.sub("-", Path(model.removeprefix(PACKAGE)).name.lower()).strip("-._")
    name = f"start-{name}" if name in recipes or not name else name
    where = f"--start {model}"
    if values["pooling"] not in POOLINGS or values["projections"] or values.get("towers") == "separate":
        problem = f"pools by {values['pooling']}, with {len(values['projections'])} layers behind; "
        problem += "recipes train one network that pools by mean or cls, with none"
        raise ModelError(where, problem, "choose another model")
    if not values["normalize"]:
        step = "choose one with a Normalize module, as most of sentence-transformers are"
        raise ModelError(where, "compares by inner product, and the recipes' temperature is for cosines", step)
    prefix = len(load_tokenizer(source)(values.get("query_prefix") or "", add_special_tokens=False)["input_ids"])
    if prefix > values["max_tokens"] // 2:
        problem = f"wants a prefix of {prefix} tokens for queries and reads {values['max_tokens']}"
        raise ModelError(where, problem, "shorten the prompt in its config_sentence_transformers.json")
    with TemporaryDirectory() as folder:
        copy_model(source, Path(folder), settings, revision)  # loads it, and compares its vectors
    limits = (checkpoint.position_limit(source), checkpoint.tokenizer_limit(source))
    longest = min([limit for limit in limits if limit], default=values["max_tokens"])
    return OtherStart(
        name=name,
        model=model,
        revision=revision,
        pooling=values["pooling"],
        max_tokens=values["max_tokens"],
        stated_tokens=values["max_tokens"] if values["max_tokens"] < longest else None,
        prefix_tokens=prefix,
    )
