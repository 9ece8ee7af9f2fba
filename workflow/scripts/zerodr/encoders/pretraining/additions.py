"""Save and load the layers of pretraining in subfolder `pretraining`, which search and export do not read."""

import logging
import shutil
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from zerodr.encoders.folder.contract import read_json, write_model_json
from zerodr.encoders.pretraining.prediction import checkpoint_prediction
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
SUBFOLDER = "pretraining"
WEIGHTS, FACTS = "head.safetensors", "head.json"
LAYERS, PREDICTION = "layers.", "prediction."
NO_HEAD = {"kind": "none", "layers": 0, "skip_layer": 0}
NO_HEAD_STEP = (
    "name a model that was pretrained with this head (`zerodr convert` takes it from Condenser's model.pt), "
    "or set objective.head: init, which trains a fresh one"
)


class Headed(Protocol):
    """A bi-encoder with extra layers of a kind, which read the tokens of layer `skip`."""

    kind: Any
    skip: int
    layers: nn.ModuleList
    prediction: Any

    def state_dict(self) -> dict[str, Any]:
        """Return weights by name."""


def save_additions(model: Headed, folder: Path) -> None:
    """Write extra layers and the prediction layer, where the model has them."""
    weights = {key: value for key, value in model.state_dict().items() if key.startswith((LAYERS, PREDICTION))}
    if weights:
        write_additions(folder, weights, _facts(model))


def load_additions(model: Headed, folder: Path, head: str) -> dict[str, str]:
    """Copy the layers of pretraining from a model folder into `model`.

    The prediction layer comes from the folder's earlier pretraining, else from its checkpoint, else it stays fresh.

    Args:
        head: `from_model` if the extra layers come from the folder, too; `if_present` if they do where it has
            some; else they stay fresh.

    Returns:
        the sources of `prediction` and `layers`.

    Raises:
        ModelError: the folder has no such layers, or others.
    """
    saved, sources = _read(folder / SUBFOLDER), {}
    if model.prediction is not None:
        pretrained = _select(saved, PREDICTION)
        weights = pretrained or checkpoint_prediction(folder)
        if weights:
            _load(model.prediction, weights, folder)
        sources["prediction"] = "pretraining" if pretrained else "checkpoint" if weights else "fresh"
    if len(model.layers):
        continues = head == "from_model" or (head == "if_present" and bool(_select(saved, LAYERS)))
        sources["layers"] = "model" if continues else "fresh"
        if head == "if_present" and not continues:
            log.warning("%s holds no head of a pretraining: its layers start from random weights", folder)
        if continues:
            _check(model, folder)
            _load(model.layers, _select(saved, LAYERS), folder)
    return sources


def carry_additions(source: Path, target: Path) -> bool:
    """Copy a checkpoint's layers of pretraining to a model that starts from it; False where it has none."""
    if (source / SUBFOLDER / WEIGHTS).exists():
        shutil.copytree(source / SUBFOLDER, target / SUBFOLDER)
        return True
    prediction = checkpoint_prediction(source)
    if prediction:
        write_additions(target, {f"{PREDICTION}{key}": value for key, value in prediction.items()}, NO_HEAD)
    return prediction is not None


def _facts(model: Headed) -> dict[str, Any]:
    return {"kind": model.kind, "layers": len(model.layers), "skip_layer": model.skip}


def _check(model: Headed, folder: Path) -> None:
    path = folder / SUBFOLDER / FACTS
    facts, expected = read_json(path) if path.exists() else NO_HEAD, _facts(model)
    if facts != expected:
        heads = "; ".join(", ".join(f"{key} {head[key]}" for key in expected) for head in (expected, facts))
        problem = f"lacks the head that head: from_model continues with (expected; found: {heads})"
        raise ModelError(folder, problem, NO_HEAD_STEP)


def _select(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}


def _load(module: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        problem = f"its head does not fit its backbone ({str(error).splitlines()[-1].strip()})"
        raise ModelError(folder, problem, "use head and backbone of one model") from None


def _read(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS
    try:
        return load_file(path) if path.exists() else {}
    except SafetensorError as error:
        raise ModelError(path, f"is no whole safetensors file ({error})", "pretrain the model again") from None


def write_additions(model: Path, weights: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write layers of pretraining, named `layers.*` and `prediction.*`, into a model folder."""
    from safetensors.torch import save_file

    folder = model / SUBFOLDER
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    write_model_json(folder / FACTS, facts)
