"""Files of what pretraining adds to a bi-encoder: subfolder `pretraining`, which search and export do not read."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from zerodr.encoders.folder.contract import read_json, write_model_json
from zerodr.encoders.pretraining.prediction import checkpoint_prediction
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
PLACE = "pretraining"
WEIGHTS, FACTS = "head.safetensors", "head.json"
LAYERS, PREDICTION = "layers.", "prediction."


class Headed(Protocol):
    """A bi-encoder with extra layers: of a kind, reading the tokens of layer `skip`."""

    kind: Any
    skip: int
    layers: nn.ModuleList
    prediction: Any

    def state_dict(self) -> dict[str, Any]:
        """Weights by name."""
        ...


def save_additions(model: Headed, folder: Path) -> None:
    """Write extra layers and the prediction layer, where the model has them."""
    weights = {key: value for key, value in model.state_dict().items() if key.startswith((LAYERS, PREDICTION))}
    if weights:
        _write(folder / PLACE, weights, _facts(model))


def take_additions(model: Headed, folder: Path, layers_from_model: bool) -> dict[str, str]:
    """Copy kept weights of a model folder into `model`.

    The prediction layer comes from the folder's earlier pretraining, else from its checkpoint, else it stays fresh.

    Args:
        layers_from_model: the extra layers come from the folder, too; else they stay fresh.

    Returns:
        where `prediction` and `layers` come from.

    Raises:
        ModelError: the folder has no such layers, or others.
    """
    kept, taken = _read(folder / PLACE), {}
    if model.prediction is not None:
        own = _part(kept, PREDICTION)
        given = own or checkpoint_prediction(folder)
        if given:
            _load(model.prediction, given, folder)
        taken["prediction"] = "pretraining" if own else "checkpoint" if given else "fresh"
    if len(model.layers):
        taken["layers"] = "model" if layers_from_model else "fresh"
        if layers_from_model:
            _check(model, folder)
            _load(model.layers, _part(kept, LAYERS), folder)
    return taken


def carry_additions(source: Path, target: Path) -> bool:
    """Put what a checkpoint knows beyond its backbone beside a model made of it; False where it knows no more."""
    if (source / PLACE / WEIGHTS).exists():
        shutil.copytree(source / PLACE, target / PLACE)
        return True
    prediction = checkpoint_prediction(source)
    if prediction:
        weights = {f"{PREDICTION}{key}": value for key, value in prediction.items()}
        _write(target / PLACE, weights, {"kind": "none", "layers": 0, "skip_layer": 0})
    return prediction is not None


def _facts(model: Headed) -> dict[str, Any]:
    return {"kind": model.kind, "layers": len(model.layers), "skip_layer": model.skip}


def _check(model: Headed, folder: Path) -> None:
    path = folder / PLACE / FACTS
    there, asked = read_json(path) if path.exists() else {"kind": "none", "layers": 0, "skip_layer": 0}, _facts(model)
    if there != asked:
        told = "; ".join(", ".join(f"{key} {facts[key]}" for key in asked) for facts in (asked, there))
        raise ModelError(
            folder,
            f"holds not the head that head: from_model continues with (asked and found: {told})",
            "set head: init, or name a model that was pretrained with this head",
        )


def _part(weights: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    return {key.removeprefix(start): value for key, value in weights.items() if key.startswith(start)}


def _load(module: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise ModelError(
            folder,
            f"its head does not fit its backbone ({str(error).splitlines()[-1].strip()})",
            "take head and backbone from one model",
        ) from None


def _read(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS
    try:
        return load_file(path) if path.exists() else {}
    except SafetensorError as error:
        raise ModelError(path, f"is no whole safetensors file ({error})", "pretrain the model again") from None


def _write(folder: Path, weights: dict[str, Tensor], facts: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {key: value.detach().cpu().contiguous() for key, value in weights.items()},
        folder / WEIGHTS,
        metadata={"format": "pt"},
    )
    write_model_json(folder / FACTS, facts)
