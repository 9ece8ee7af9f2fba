"""Convert a checkpoint with pickled weights, and a Condenser's head, to safetensors without running its code."""

import shutil
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from zerodr.encoders.folder.checkpoint import PATTERNS
from zerodr.encoders.folder.contract import read_json
from zerodr.encoders.folder.foreign import INDEX
from zerodr.encoders.network.loading import short
from zerodr.encoders.pretraining.additions import LAYERS, PREDICTION, write_additions
from zerodr.encoders.pretraining.prediction import checkpoint_prediction
from zerodr.errors import ModelError

WEIGHTS, HEAD = "pytorch_model*.bin", "model.pt"
HEAD_PREFIX = "c_head."  # of Condenser's released code, a list of the backbone's layers
SAFE = "model.safetensors"
UNREADABLE = (UnpicklingError, RuntimeError, EOFError, LookupError, ValueError, TypeError)


def convert_checkpoint(source: Path, target: Path, skip_layer: int | None = None) -> dict[str, Any]:
    """Write `target`, the model of folder `source` with weights as safetensors, and its Condenser head if it has one.

    Weights come from `pytorch_model*.bin`, unless the folder has safetensors; the head from `model.pt`. Files are read
    as tensors only, so none of their code runs.

    Args:
        source: folder with config.json and a tokenizer.
        target: folder to make; must not exist.
        skip_layer: layer whose tokens the head reads, which no file states safely. None: the middle one.

    Returns:
        `tensors`, the number of weights; `layers` and `skip_layer` of the head; `left_out`, names of other tensors.

    Raises:
        ModelError: no checkpoint, a file that holds more than tensors, or `target` exists.
    """
    if target.exists():
        raise ModelError(target, "exists already", "name a new folder")
    if not (source / "config.json").exists():
        raise ModelError(source, "has no config.json", "give the folder of a checkpoint of transformers")
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        staged = Path(folder) / target.name
        staged.mkdir()
        for path in sorted(path for pattern in PATTERNS for path in source.glob(pattern)):
            if path.name == INDEX or not path.name.endswith(".index.json"):  # others list files that are not copied
                shutil.copyfile(path, staged / path.name)
        _copy_modules(source, staged)
        facts = _convert_weights(source, staged) | _convert_head(source, staged, skip_layer)
        staged.rename(target)
    return facts


def _copy_modules(source: Path, target: Path) -> None:
    """Copy the subfolders that modules.json names, weights as safetensors."""
    listing = read_json(source / "modules.json") if (source / "modules.json").exists() else []
    for name in [module["path"] for module in listing if module["path"]]:
        files = [path for pattern in PATTERNS for path in (source / name).glob(pattern)]
        (target / name).mkdir()
        for path in files:
            shutil.copyfile(path, target / name / path.name)
        if list((source / name).glob(WEIGHTS)):
            _convert_weights(source / name, target / name)


def _convert_weights(source: Path, target: Path) -> dict[str, Any]:
    """Write `model.safetensors` from pickled files, unless there are safetensors already."""
    from safetensors.torch import save_file

    if list(target.glob("*.safetensors")):
        return {"tensors": 0}
    files = sorted(source.glob(WEIGHTS))
    if not files:
        raise ModelError(source, f"has neither *.safetensors nor {WEIGHTS}", "download the whole checkpoint")
    weights = {name: tensor for path in files for name, tensor in read_tensors_only(path).items()}
    save_file({name: tensor.contiguous().clone() for name, tensor in weights.items()}, target / SAFE, {"format": "pt"})
    return {"tensors": len(weights)}


def _convert_head(source: Path, target: Path, skip_layer: int | None) -> dict[str, Any]:
    """Write subfolder `pretraining` from `model.pt`, where there is one, with the checkpoint's prediction layer."""
    if not (source / HEAD).exists():
        return {"layers": 0}
    saved = read_tensors_only(source / HEAD)
    layers = {name.removeprefix(HEAD_PREFIX): value for name, value in saved.items() if name.startswith(HEAD_PREFIX)}
    if not layers:
        names = ", ".join(sorted(saved)[:3]) or "no tensor"
        raise ModelError(source / HEAD, f"has no layer of a head ({HEAD_PREFIX}*), found {names}", "leave the file out")
    depth = read_json(source / "config.json").get("num_hidden_layers")
    if skip_layer is None and not isinstance(depth, int):
        raise ModelError(source / "config.json", "states no num_hidden_layers", "give --skip-layer")
    skip = depth // 2 if skip_layer is None else skip_layer
    count = 1 + max(int(name.partition(".")[0]) for name in layers)
    weights = {LAYERS + name: value for name, value in layers.items()}
    prediction = checkpoint_prediction(target) or {}
    weights |= {PREDICTION + name: value for name, value in prediction.items()}
    write_additions(target, weights, {"kind": "condenser", "layers": count, "skip_layer": skip})
    left_out = sorted(name for name in saved if not name.startswith(HEAD_PREFIX))
    return {"layers": count, "skip_layer": skip, "left_out": left_out}


def read_tensors_only(path: Path) -> dict[str, Tensor]:
    """Read a pickled file of named tensors.

    Raises:
        ModelError: it is damaged, or holds anything else, which could run code when it is read.
    """
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        problem = f"holds more than tensors, or is damaged ({short(error)})"
        raise ModelError(path, problem, "ask its authors for tensors alone; nothing of it was run") from None
    if not isinstance(saved, dict) or not all(isinstance(value, Tensor) for value in saved.values()):
        raise ModelError(
            path, "is no dictionary of tensors", "ask its authors for tensors alone; nothing was converted"
        )
    return {str(name): value for name, value in saved.items()}
