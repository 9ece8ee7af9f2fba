"""Read the settings of a model that recipes start from."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from zerodr.config.counterparts import OtherStart
from zerodr.config.starts import PACKAGE
from zerodr.encoders.folder.checkpoint import count_weights
from zerodr.encoders.folder.contract import CONTRACT, SIDES, EncoderContract, read_contract
from zerodr.encoders.folder.statements import length_limit
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.tokenizing import load_tokenizer
from zerodr.encoders.start.hub import check_hub_model
from zerodr.encoders.start.importing import copy_model, resolve
from zerodr.encoders.start.reading import OVERRIDES, ImportSettings, missing_prompts, read_source
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
UNSAFE = re.compile(r"[^a-z0-9._-]+")
LARGE = 300_000_000  # weights that training with gradients and moments would take 5 GB for
TEXTS = ("what does a dense retriever compare?", "A dense retriever compares one vector of a query with one of a text.")


def read_start(model: str, offline: bool, recipes: Collection[str] = ()) -> OtherStart:
    """Read the settings of a bi-encoder that adaptation shall start from.

    Args:
        model: a folder, `organisation/name` on the hub, or `package:<module>`.
        offline: never ask the hub.
        recipes: names that are in use; a model that is called like one of them gets a longer name.

    Raises:
        ModelError: it is none, or one that the recipes can't train. Weights are loaded of a model that is taken alone.
    """
    if not Path(model).is_dir() and model.count("/") == 1:
        check_hub_model(model, None, offline)
    source, revision = resolve(model, None, offline)
    unchanged: dict[str, Any] = dict.fromkeys(("revision", *OVERRIDES))
    settings, where = ImportSettings(model=model, **unchanged), f"--start {model}"
    if (source / CONTRACT).exists() and read_contract(source).towers == "separate":
        raise ModelError(where, "has two towers, and recipes start from one network", "choose another model")
    files, contract, _, _ = read_source(source, settings, revision)
    if contract.pooling == "decoder_first":
        problem = "takes vectors from T5's decoder, and recipes start from a network that pools its own tokens"
        raise ModelError(where, problem, "choose another model; as a row (kind: encoder) it is compared")
    prefix = len(load_tokenizer(source)(contract.query_prefix, add_special_tokens=False)["input_ids"])
    if prefix > contract.max_tokens // 2:
        problem = f"wants a prefix of {prefix} tokens for queries and reads {contract.max_tokens}"
        raise ModelError(where, problem, "shorten the prompt in its config_sentence_transformers.json")
    for sentence in missing_prompts(contract):
        log.warning("%s: %s", where, sentence)
    with TemporaryDirectory() as folder:  # loads the copy, and compares its vectors
        copy_model(source, Path(folder), settings, revision, linked=True)
        product = None if contract.normalize else inner_product(Path(folder), contract)
    name = UNSAFE.sub("-", Path(model.removeprefix(PACKAGE)).name.lower()).strip("-._")
    longest = length_limit(files, contract.max_tokens)
    return OtherStart(
        name=f"start-{name}" if name in recipes or not name else name,
        model=model,
        revision=revision,
        pooling=contract.pooling,
        head=bool(contract.projections),
        inner_product=product,
        max_tokens=contract.max_tokens,
        stated_tokens=contract.max_tokens if contract.max_tokens != longest else None,
        prefix_tokens=prefix,
        large=count_weights(source) > LARGE,
    )


def inner_product(folder: Path, contract: EncoderContract) -> float:
    """Compute the inner product that vectors of a query and of a document would have in one direction, to 2 digits."""
    encoder = load_encoder(folder, "fp32", "cpu", graph=False)
    lengths = []
    for side in SIDES:
        tokens = encoder.tokenize(TEXTS, contract.prefix(side), contract.tokens(side))
        vectors = encoder.encode_batch([tokens[row] for row in range(len(tokens))])
        lengths.append(float(np.linalg.norm(vectors, axis=1).mean()))
    return float(f"{lengths[0] * lengths[1]:.2g}")
