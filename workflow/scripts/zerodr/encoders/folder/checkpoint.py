"""Choose and copy the files of a model folder; check its weights."""

import math
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from zerodr.encoders.folder.contract import SIDES, EncoderContract, read_json
from zerodr.errors import ModelError

WEIGHTS = ".safetensors"
PATTERNS = (f"*{WEIGHTS}", "*.json", "*.txt")
IGNORED = ("README*", "lineage.json", "manifest.json", ".*")
LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d+)\.")
LAYER_COUNTS = ("num_hidden_layers", "num_layers", "num_decoder_layers", "n_layers", "n_layer")
BLOCK_ELEMENTS = 1 << 24


def model_files(folder: Path, projections: Sequence[str] = ()) -> list[Path]:
    """List a model's files, sorted: of the folder and of its dense layers; weights only as safetensors."""
    folders = [folder, *(folder / name for name in projections)]
    files = {path for parent in folders for pattern in PATTERNS for path in parent.glob(pattern) if path.is_file()}
    return sorted(files - {path for pattern in IGNORED for path in folder.glob(pattern)})


def all_model_files(folder: Path, contract: EncoderContract) -> list[Path]:
    """List all files of a bench's model folder, sorted: both towers, projections, files of sentence-transformers."""
    files = model_files(folder, contract.projections if contract.towers == "tied" else ())
    for module in read_json(folder / "modules.json"):
        path = folder / module["path"] / "config.json"
        files += [path] if module["path"] and path.exists() and path not in files else []
    if contract.towers == "separate":
        tied = contract.model_copy(update={"towers": "tied"})
        files += [path for side in SIDES for path in all_model_files(folder / side, tied)]
    return sorted(files)


def copy_files(files: Iterable[Path], source: Path, target: Path, linked: bool = False) -> None:
    """Copy files of folder `source` to the same relative paths below `target`; `linked`: weights as symbolic links."""
    for path in files:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if linked and path.suffix == WEIGHTS:
            copy.symlink_to(path.resolve())
        else:
            shutil.copyfile(path, copy)


def count_weights(folder: Path) -> int:
    """Count the numbers in a folder's weights, by their shapes alone.

    Raises:
        ModelError: a file can't be read.
    """
    from safetensors import SafetensorError, safe_open

    count = 0
    for path in sorted(folder.glob(f"*{WEIGHTS}")):
        try:
            with safe_open(path, framework="np") as file:
                count += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())
        except SafetensorError as error:
            raise ModelError(path, f"is no whole safetensors file ({error})", "fetch the model again") from None
    return count


def check_weights(folder: Path) -> int:
    """Check that all weights are finite; return their number. Reads one tensor at a time.

    Raises:
        ModelError: names the first tensor with NaN or infinity or of one byte, or the file that can't be read.
    """
    from safetensors import SafetensorError, safe_open

    count = 0
    for path in sorted(folder.glob("**/*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():
                    tensor = file.get_tensor(name)
                    count += tensor.numel()
                    if tensor.element_size() == 1 and str(tensor.dtype) != "torch.bool":
                        problem = f"tensor {name} is quantised ({tensor.dtype}), and its scale is not read"
                        raise ModelError(path, problem, "fetch the model in fp32, fp16 or bf16")
                    if tensor.is_floating_point() and not _finite(tensor):
                        raise ModelError(path, f"tensor {name} holds NaN or infinity", "fetch or train the model again")
        except SafetensorError as error:
            raise ModelError(path, f"is no whole safetensors file ({error})", "fetch the model again") from None
    return count


def spare_layers(folder: Path, config: dict[str, Any]) -> list[str]:
    """Say, as a sentence, that weights hold more layers than the configuration, which are not read."""
    from safetensors import safe_open

    counts = [config[key] for key in LAYER_COUNTS if isinstance(config.get(key), int)]
    held = 0
    for path in folder.glob(f"*{WEIGHTS}"):
        with safe_open(path, framework="np") as file:
            held = max([held, *(int(match[1]) + 1 for name in file.keys() if (match := LAYER.search(name)))])
    if not counts or held <= max(counts):
        return []
    return [f"config.json states {max(counts)} layers, the weights hold {held}; the last ones are not read"]


def _finite(tensor: object) -> bool:
    flat = tensor.reshape(-1)  # type: ignore[attr-defined]
    return all(bool(block.isfinite().all()) for block in flat.split(BLOCK_ELEMENTS))
