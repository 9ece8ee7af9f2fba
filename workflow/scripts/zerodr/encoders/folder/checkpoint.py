"""Choose and copy the files of a model folder; check its weights and tokenizer."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from zerodr.encoders.folder.contract import SIDES, EncoderContract, read_json
from zerodr.encoders.folder.known import check_adapter, check_kind
from zerodr.encoders.network.families import family_of
from zerodr.errors import ModelError

PATTERNS = ("*.safetensors", "*.json", "*.txt")
IGNORED = ("README*", "lineage.json", "manifest.json", ".*")
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
TOKENIZERS = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))
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


def copy_files(files: Iterable[Path], source: Path, target: Path) -> None:
    """Copy files of folder `source` to the same relative paths below `target`."""
    for path in files:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def check_files(folder: Path, bi_encoder: bool = True) -> None:
    """Check that the folder holds a configuration, weights as safetensors, and a tokenizer, and no adapter.

    Args:
        folder: of a model.
        bi_encoder: it must be one; no other kind of model.

    Raises:
        ModelError: names what is missing, or what it is instead.
    """
    check_adapter(folder)
    if bi_encoder:
        check_kind(folder)
    if not (folder / "config.json").exists():
        raise ModelError(folder, "has no config.json", "give a folder that transformers loads")
    if not list(folder.glob("*.safetensors")):
        if any(list(folder.glob(pattern)) for pattern in PICKLED):
            problem = "has pickled weights only (.bin), which may run code; expected safetensors"
            raise ModelError(folder, problem, f"run: python -m zerodr convert {folder} NEW_FOLDER")
        step = "fetch the model again; if it comes as .bin alone, download its folder and run python -m zerodr convert"
        raise ModelError(folder, "has no weights (*.safetensors)", step)
    if not any(all((folder / name).exists() for name in names) for names in TOKENIZERS):
        problem = "has no tokenizer (tokenizer.json, vocab.txt, or vocab.json with merges.txt)"
        raise ModelError(folder, problem, "copy the tokenizer's files into the folder")


def check_weights(folder: Path) -> int:
    """Check that all weights are finite; return their number. Reads one tensor at a time.

    Raises:
        ModelError: names the first tensor with NaN or infinity, or the file that can't be read.
    """
    from safetensors import SafetensorError, safe_open

    count = 0
    for path in sorted(folder.glob("**/*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():
                    tensor = file.get_tensor(name)
                    count += tensor.numel()
                    if tensor.is_floating_point() and not _finite(tensor):
                        raise ModelError(path, f"tensor {name} holds NaN or infinity", "fetch or train the model again")
        except SafetensorError as error:
            raise ModelError(path, f"is no whole safetensors file ({error})", "fetch the model again") from None
    return count


def _finite(tensor: object) -> bool:
    flat = tensor.reshape(-1)  # type: ignore[attr-defined]
    return all(bool(block.isfinite().all()) for block in flat.split(BLOCK_ELEMENTS))


def position_limit(folder: Path) -> int | None:
    """Read the longest input that the position table holds; None when the architecture has no table."""
    config = read_json(folder / "config.json")
    rows = config.get("max_position_embeddings")
    if not isinstance(rows, int) or rows < 1:
        return None
    if family_of(config.get("model_type")).offset:
        return rows - 1 - (config.get("pad_token_id") if config.get("pad_token_id") is not None else 1)
    return rows


def tokenizer_limit(folder: Path) -> int | None:
    """Read the longest input of the tokenizer's configuration; None when it states none."""
    path = folder / "tokenizer_config.json"
    limit = read_json(path).get("model_max_length") if path.exists() else None
    return int(limit) if limit is not None and limit < 10**6 else None
