"""A model that reads pairs of texts before any training of ours, or one that comes trained."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.training import PairSettings
from zerodr.encoders.cross_encoder.pair_model import PairModel
from zerodr.encoders.folder.checkpoint import check_files, check_weights, position_limit
from zerodr.encoders.folder.contract import CONTRACT, read_contract, read_json
from zerodr.encoders.inference.encoder import load_tokenizer
from zerodr.encoders.network.trainable import parameter_count
from zerodr.encoders.start.importing import start_folder
from zerodr.errors import ModelError

Model = TypeVar("Model", bound=PairModel)
log = logging.getLogger("zerodr")
FAMILIES = ("bert", "roberta", "xlm-roberta", "distilbert", "electra")
CLASSIFIER = "ForSequenceClassification"
SPREAD = 0.02  # deviation of a fresh head's weights where the configuration states none


def init_pair_model(stage: Stage, model_type: type[PairModel], settings_type: type[PairSettings]) -> None:
    """Stage: input `parent` (a model folder of the bench) or none; output `model`, trained or to be trained."""
    settings = validate(settings_type, stage.params, stage.spec.name())
    model, facts = pair_from_checkpoint(model_type, settings, *start_folder(stage, settings), stage.seed)
    model.save(stage.output("model"))
    model_type.load(stage.output("model"))
    stage.note(contract=model.contract.model_dump(mode="json"), parameters=parameter_count(model), **facts)


def pair_from_checkpoint(
    model_type: type[Model], settings: PairSettings, folder: Path, revision: str | None, seed: int
) -> tuple[Model, dict[str, Any]]:
    """A model with the weights of a folder.

    Args:
        model_type: its class.
        settings: what it shall be.
        folder: a model with such a head, taken as it is; or another checkpoint, which gets a head.
        revision: its hub commit, for the contract.
        seed: of a new head.

    Returns:
        the model in evaluation mode, and facts for lineage.

    Raises:
        ModelError: the folder does not fit, has a head for something else, or was promised to be trained and is not.
    """
    check_files(folder)
    check_weights(folder)
    _check_family(model_type, folder, read_json(folder / "config.json"))
    limit = position_limit(folder)
    if limit is not None and settings.max_tokens > limit:
        raise ModelError(
            folder,
            f"takes {limit} tokens, max_tokens asks for {settings.max_tokens}",
            f"set max_tokens to at most {limit}",
        )
    network, missing = model_type.load_network(folder, settings.layers)
    body = [name for name in missing if not _of_head(network, name, model_type.heads)]
    if body:
        raise ModelError(
            folder,
            f"lacks {len(body)} weights of {type(network).__name__}, the first is {body[0]}",
            "choose a whole model",
        )
    known = model_type.read_contract(folder).trained if (folder / model_type.file).exists() else not missing
    if settings.trained and settings.layers is not None:
        raise ModelError(
            folder,
            f"comes trained, its first {settings.layers} layers alone would be another model",
            "leave layers out, or train it",
        )
    if settings.trained and not known:
        raise ModelError(
            folder,
            f"{_what(model_type, folder)}: it has no trained head {model_type.purpose}",
            f"name a trained {model_type.what}, or train it (settings.chain)",
        )
    fresh = _make_head(network, missing, seed) if missing else []
    contract = model_type.contract_type(
        **model_type.contract_values(settings),
        trained=known and settings.layers is None,
        architecture=type(network).__name__,
        source=settings.init,
        revision=revision,
    )
    return model_type(contract, load_tokenizer(folder), network).eval(), {"fresh_weights": fresh}


def _check_family(model_type: type[PairModel], folder: Path, config: dict[str, Any]) -> None:
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ModelError(
            folder,
            f"is a {family}, which this bench does not make a {model_type.what} of",
            f"choose one of {', '.join(FAMILIES)}",
        )
    named = config.get("id2label")
    labels = len(named) if named else config.get("num_labels", 2)  # transformers writes neither for 2
    is_classifier = (config.get("architectures") or [""])[0].endswith(CLASSIFIER)
    if is_classifier and model_type.auto.endswith(CLASSIFIER) and labels != model_type.labels:
        raise ModelError(
            folder,
            f"is a classifier with {labels} logits, expected one logit for a pair",
            "choose a cross-encoder with one, or a checkpoint without a head",
        )
    if (folder / CONTRACT).exists():
        head = read_contract(folder).projections
        if head:
            log.warning("%s: its head (%s) is left out of the %s", folder, ", ".join(head), model_type.what)


def _what(model_type: type[PairModel], folder: Path) -> str:
    if (folder / model_type.file).exists():
        return f"is an untrained {model_type.what}"
    known = (folder / CONTRACT).exists() or (folder / "modules.json").exists()
    return "is a bi-encoder" if known else "is a checkpoint without a head"


def _of_head(network: nn.Module, name: str, heads: tuple[str, ...]) -> bool:
    inner = name.removeprefix(f"{network.base_model_prefix}.")
    return inner.split(".")[0] in heads


def _make_head(network: Any, missing: list[str], seed: int) -> list[str]:
    """Draw the missing weights from N(0, spread), biases 0; returns their names.

    A pooler that is there but all zero, as folders of bi-encoders have that never used one, is drawn, too.
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
