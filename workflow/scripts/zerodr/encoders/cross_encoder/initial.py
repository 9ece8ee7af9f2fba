"""Create a cross-encoder from a checkpoint, with a new head or a trained one."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import nn

from zerodr.config.base import Settings
from zerodr.encoders.cross_encoder.network import (
    CROSS_CONTRACT,
    CrossContract,
    CrossEncoder,
    load_classifier,
    read_cross_contract,
)
from zerodr.encoders.folder.checkpoint import check_files, check_weights, position_limit
from zerodr.encoders.folder.contract import CONTRACT, read_contract, read_json
from zerodr.encoders.inference.encoder import load_tokenizer
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
FAMILIES = ("bert", "roberta", "xlm-roberta", "distilbert", "electra")
HEADS = ("classifier", "pre_classifier", "pooler")  # of these families' sequence classifiers, on [CLS]
CLASSIFIER = "ForSequenceClassification"
SPREAD = 0.02  # deviation of a fresh head's weights where the configuration states none


class InitTeacherSettings(Settings):
    """Params of rule init_teacher."""

    init: str
    """A folder, `organisation/name`, `package:<module>`; with an input `parent`, the name that lineage gives it."""
    revision: str | None = None
    """Hub revision."""
    layers: int | None = Field(None, ge=1)
    """Keep the first n layers of the checkpoint."""
    max_tokens: int = Field(ge=8)
    """Length of a pair."""
    trained: bool
    """The checkpoint must be a trained cross-encoder with one logit. Else a missing head is drawn."""


def cross_from_checkpoint(
    settings: InitTeacherSettings, folder: Path, revision: str | None, seed: int
) -> tuple[CrossEncoder, dict[str, Any]]:
    """Create a cross-encoder with the weights of a folder.

    Args:
        settings: layers, length and whether the folder must be trained.
        folder: a sequence classifier with one label, used unchanged; or another checkpoint, which gets a head.
        revision: its hub commit, for the contract.
        seed: of a new head.

    Returns:
        the model in evaluation mode, and facts for lineage.

    Raises:
        ModelError: the folder does not fit, has a head for another task, or is untrained although `trained`.
    """
    check_files(folder)
    check_weights(folder)
    _check_kind(folder, read_json(folder / "config.json"))
    limit = position_limit(folder)
    if limit is not None and settings.max_tokens > limit:
        problem = f"its limit is {limit} tokens, max_tokens is {settings.max_tokens}"
        raise ModelError(folder, problem, f"set max_tokens to at most {limit}")
    network, missing = load_classifier(folder, settings.layers)
    body = [name for name in missing if not _of_head(network, name)]
    if body:
        problem = f"lacks {len(body)} weights of {type(network).__name__}, the first is {body[0]}"
        raise ModelError(folder, problem, "choose a complete model")
    trained = read_cross_contract(folder).trained if (folder / CROSS_CONTRACT).exists() else not missing
    if settings.trained and settings.layers is not None:
        problem = f"is trained, but its first {settings.layers} layers would be another model"
        raise ModelError(folder, problem, "remove layers, or train it")
    if settings.trained and not trained:
        problem = f"{_description(folder)}: it has no trained head that gives one logit for a pair"
        raise ModelError(folder, problem, "name a cross-encoder, or train it (settings.training)")
    fresh = _draw_head(network, missing, seed) if missing else []
    values = {"max_tokens": settings.max_tokens, "trained": trained and settings.layers is None, "revision": revision}
    contract = CrossContract(**values, architecture=type(network).__name__, source=settings.init)
    return CrossEncoder(contract, load_tokenizer(folder), network).eval(), {"fresh_weights": fresh}


def _check_kind(folder: Path, config: dict[str, Any]) -> None:
    family = config.get("model_type")
    if family not in FAMILIES:
        problem = f"is a {family}, which this bench does not support as a cross-encoder"
        raise ModelError(folder, problem, f"choose one of {', '.join(FAMILIES)}")
    named = config.get("id2label")
    labels = len(named) if named else config.get("num_labels", 2)  # transformers writes neither for 2
    if (config.get("architectures") or [""])[0].endswith(CLASSIFIER) and labels != 1:
        problem = f"is a classifier with {labels} logits, expected one logit for a pair"
        raise ModelError(folder, problem, "choose a cross-encoder with one, or a checkpoint without a head")
    if (folder / CONTRACT).exists() and (projections := read_contract(folder).projections):
        log.warning("%s: the cross-encoder does not use its head (%s)", folder, ", ".join(projections))


def _description(folder: Path) -> str:
    if (folder / CROSS_CONTRACT).exists():
        return "is an untrained cross-encoder"
    bi_encoder = (folder / CONTRACT).exists() or (folder / "modules.json").exists()
    return "is a bi-encoder" if bi_encoder else "is a checkpoint without a head"


def _of_head(network: nn.Module, name: str) -> bool:
    inner = name.removeprefix(f"{network.base_model_prefix}.")
    return inner.split(".")[0] in HEADS


def _draw_head(network: Any, missing: list[str], seed: int) -> list[str]:
    """Draw the missing weights from N(0, spread), biases 0; return their names.

    An existing pooler of zeros, as in folders of bi-encoders that never used one, is drawn, too.
    """
    generator = torch.Generator().manual_seed(seed)
    spread, named = getattr(network.config, "initializer_range", SPREAD), dict(network.named_parameters())
    idle = [name for name, weight in named.items() if ".pooler." in name and not weight.any()]
    drawn = sorted({*missing, *idle})
    with torch.no_grad():
        for name in drawn:
            weight = named[name]
            weight.zero_() if weight.ndim < 2 else weight.normal_(0, spread, generator=generator)
    return drawn
