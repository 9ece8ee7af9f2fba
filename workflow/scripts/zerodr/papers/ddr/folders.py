"""Read and write files of a relevance module (REM): LoRA as peft has it, parallel adapters, and `rem.json`.

`FOLDERS` adds them to model folders: modules to insert, and the relevance module next to a plain model.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from zerodr.artifacts.record import artifact_digest
from zerodr.config.base import validate
from zerodr.encoders.folder.contract import PaperFolders, read_json, write_model_json
from zerodr.errors import ModelError
from zerodr.papers.ddr import inserting
from zerodr.papers.ddr.settings import RemSettings

MANIFEST = "manifest.json"
Source = dict[str, str]
REM = "rem"  # subfolder of a model folder
FACTS, LORA, LORA_CONFIG, ADAPTERS = "rem.json", "adapter_model.safetensors", "adapter_config.json", "pa.safetensors"


def write_rem(folder: Path, transformer: Any, settings: RemSettings, facts: dict[str, Any]) -> None:
    """Write modules inserted into a transformer. peft loads its file; equal weights give equal bytes.

    Args:
        facts: further keys of `rem.json`: `source` and `contract`.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    lora, parallel = inserting.weights(transformer)
    for name, weights in ((LORA, lora), (ADAPTERS, parallel)):
        if weights:
            tensors = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
            save_file(tensors, folder / name, metadata={"format": "pt"})
    if lora:
        config = inserting.lora_config(transformer.config.model_type, settings).to_dict()
        sets = {key: sorted(value) for key, value in config.items() if isinstance(value, (set, frozenset))}
        write_model_json(folder / LORA_CONFIG, config | sets)
    write_model_json(
        folder / FACTS, facts | {"settings": settings.model_dump(mode="json"), "shape": shape_of(transformer)}
    )


def source_of(folder: Path) -> Source | None:
    """Digests of a model artifact and of its weights, by which a DAM's ancestors are known; None for other folders."""
    if not (folder / MANIFEST).exists():
        return None
    return {"artifact": artifact_digest(folder), "weights": weights_digest(folder)}


def weights_digest(folder: Path) -> str:
    """SHA-256 of a model artifact's weights file, as its manifest has it; empty where there is none."""
    files = {entry["path"]: entry.get("sha256", "") for entry in read_json(folder / MANIFEST)["files"]}
    return files.get("model.safetensors", "")


def rem_facts(folder: Path) -> dict[str, Any]:
    """`rem.json`: settings, source (digests of what it was trained on, or None), shape, contract.

    Raises:
        ModelError: there is none.
    """
    if not (folder / FACTS).exists():
        raise ModelError(folder, f"holds no relevance module ({FACTS})", "name a stage that was trained with `rem`")
    return read_json(folder / FACTS)


def read_rem(folder: Path) -> tuple[RemSettings, Source | None]:
    """Settings of a REM's files, and digests of what it was trained on.

    Raises:
        ModelError: there is none.
    """
    facts = rem_facts(folder)
    return validate(RemSettings, facts["settings"], f"{folder / FACTS}: settings"), facts["source"]


def read_weights(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """LoRA and adapters, as `inserting.weights` has them.

    Raises:
        ModelError: a file is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        lora, parallel = (load_file(folder / name) if (folder / name).exists() else {} for name in (LORA, ADAPTERS))
    except SafetensorError as error:
        raise ModelError(folder, f"has no whole safetensors file ({error})", "train the module again") from None
    return lora, parallel


def insert_from(folder: Path, transformer: Any) -> None:
    """Put a REM's modules with their weights into a transformers module, which is frozen.

    Raises:
        ModelError: it is for another shape.
    """
    check_shapes(folder, rem_facts(folder)["shape"], transformer.config.name_or_path, shape_of(transformer))
    inserting.insert(transformer, read_rem(folder)[0], 0)
    inserting.take_weights(transformer, *read_weights(folder), folder)


def shape_of(transformer: Any) -> dict[str, Any]:
    """Return the facts that a REM must have in common with a DAM."""
    config = transformer.config
    return {"family": config.model_type, "hidden": config.hidden_size, "layers": len(inserting.blocks(transformer))}


def check_shapes(rem: Path, wanted: dict[str, Any], dam: Path | str, actual: dict[str, Any]) -> None:
    """Check that a REM fits a DAM.

    Raises:
        ModelError: with both shapes.
    """
    if wanted == actual:
        return
    shapes = [f"{s['family']}, {s['layers']} feed-forward blocks, hidden size {s['hidden']}" for s in (wanted, actual)]
    problem = f"is a relevance module for another shape ({shapes[0]}) than the domain module {dam} has ({shapes[1]})"
    raise ModelError(rem, problem, "train both from one checkpoint")


FOLDERS = PaperFolders(insert=insert_from, subfolders=(REM,))
