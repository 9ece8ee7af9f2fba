"""Create a model that reads pairs of texts from a checkpoint, with a new head or a trained one."""

import logging
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.training import PairSettings
from zerodr.encoders.cross_encoder.pair_model import PairModel
from zerodr.encoders.folder.checkpoint import check_weights
from zerodr.encoders.folder.contract import CONTRACT, read_contract
from zerodr.encoders.folder.foreign import check_files
from zerodr.encoders.folder.statements import position_limit
from zerodr.encoders.network.loading import families_with, family_of
from zerodr.encoders.network.tokenizing import load_tokenizer
from zerodr.encoders.network.trainable import parameter_count
from zerodr.encoders.start.importing import start_folder
from zerodr.errors import ModelError

Model = TypeVar("Model", bound=PairModel)
log = logging.getLogger("zerodr")
CLASSIFIER = "ForSequenceClassification"
SPREAD = 0.02  # deviation of a fresh head's weights where the configuration states none


def init_pair_model(stage: Stage, model_type: type[PairModel], settings_type: type[PairSettings]) -> None:
    """Read `parent` (another recipe's model) or nothing; write `model`, trained or to be trained."""
    settings = validate(settings_type, stage.params, stage.spec.name())
    model, facts = pair_from_checkpoint(model_type, settings, *start_folder(stage, settings), stage.seed)
    model.save(stage.output("model"))
    model_type.load(stage.output("model"))
    stage.note(contract=model.contract.model_dump(mode="json"), parameters=parameter_count(model), **facts)


def pair_from_checkpoint(
    model_type: type[Model], settings: PairSettings, folder: Path, revision: str | None, seed: int
) -> tuple[Model, dict[str, Any]]:
    """Create a model with the weights of a folder.

    Args:
        model_type: its class.
        settings: layers, length and whether the folder must be trained.
        folder: a model with such a head, used unchanged; or another checkpoint, which gets a head.
        revision: its hub commit, for the contract.
        seed: of a new head.

    Returns:
        the model in evaluation mode, and facts for lineage.

    Raises:
        ModelError: the folder does not fit, has a head for another task, or is untrained although `trained`.
    """
    files = check_files(folder, bi_encoder=False)
    check_weights(folder)
    _check_kind(model_type, folder, files.config)
    limit = position_limit(files)
    if limit is not None and settings.max_tokens > limit:
        problem = f"its limit is {limit} tokens, max_tokens is {settings.max_tokens}"
        raise ModelError(folder, problem, f"set max_tokens to at most {limit}")
    network, missing = model_type.load_network(folder, settings.layers)
    body = [name for name in missing if not _of_head(network, name, model_type.heads)]
    if body:
        problem = f"lacks {len(body)} weights of {type(network).__name__}, the first is {body[0]}"
        raise ModelError(folder, problem, "choose a complete model")
    trained = model_type.read_contract(folder).trained if (folder / model_type.file).exists() else not missing
    if settings.trained and settings.layers is not None:
        problem = f"is trained, but its first {settings.layers} layers would be another model"
        raise ModelError(folder, problem, "remove layers, or train it")
    if settings.trained and not trained:
        problem = f"{_description(model_type, folder)}: it has no trained head {model_type.purpose}"
        raise ModelError(folder, problem, f"name a trained {model_type.what}, or train it (settings.chain)")
    fresh = _draw_head(network, missing, seed) if missing else []
    contract = model_type.contract_type(
        **model_type.contract_values(settings),
        trained=trained and settings.layers is None,
        architecture=type(network).__name__,
        revision=revision,
    )
    return model_type(contract, load_tokenizer(folder), network).eval(), {"fresh_weights": fresh}


def _check_kind(model_type: type[PairModel], folder: Path, config: dict[str, Any]) -> None:
    family = config.get("model_type")
    if not family_of(family).pairs:
        problem = f"is a {family}, which this bench does not support as a {model_type.what}"
        raise ModelError(folder, problem, f"choose one of {', '.join(families_with('pairs'))}")
    named = config.get("id2label")
    labels = len(named) if named else config.get("num_labels", 2)  # transformers writes neither for 2
    same = model_type.auto.endswith(CLASSIFIER) and (config.get("architectures") or [""])[0].endswith(CLASSIFIER)
    if same and labels != model_type.labels:
        problem = f"is a classifier with {labels} logits, expected one logit for a pair"
        raise ModelError(folder, problem, "choose a cross-encoder with one, or a checkpoint without a head")
    if (folder / CONTRACT).exists() and (projections := read_contract(folder).projections):
        log.warning("%s: the %s does not use its head (%s)", folder, model_type.what, ", ".join(projections))


def _description(model_type: type[PairModel], folder: Path) -> str:
    if (folder / model_type.file).exists():
        return f"is an untrained {model_type.what}"
    bi_encoder = (folder / CONTRACT).exists() or (folder / "modules.json").exists()
    return "is a bi-encoder" if bi_encoder else "is a checkpoint without a head"


def _of_head(network: nn.Module, name: str, heads: tuple[str, ...]) -> bool:
    inner = name.removeprefix(f"{network.base_model_prefix}.")
    return inner.split(".")[0] in heads


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
