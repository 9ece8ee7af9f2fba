"""Bring an existing bi-encoder into the bench: from a folder, the hub or a Python package to a checked model folder."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any, Literal

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.training import StartSettings
from zerodr.encoders.folder.checkpoint import (
    KEPT,
    check_files,
    check_weights,
    copy_files,
    model_files,
    position_limit,
    tokenizer_limit,
    whole_model,
)
from zerodr.encoders.folder.contract import (
    CONTRACT,
    SIDES,
    EncoderContract,
    make_contract,
    read_contract,
    read_json,
    write_contract,
)
from zerodr.encoders.folder.layout import check_layout, read_layout, write_layout
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
PACKAGE = "package:"
PROBE = ("", "A text to try the model with.")
OVERRIDES = ("pooling", "normalize", "query_prefix", "document_prefix", "max_tokens")


class ImportSettings(Settings):
    """Params of rule import_model."""

    model: str
    """Folder, hub name, or `package:<module>`."""
    revision: str | None
    """Hub revision."""
    pooling: Literal["mean", "cls", "max", "last"] | None
    """Instead of what the folder says."""
    normalize: bool | None
    """Instead of what the folder says."""
    query_prefix: str | None
    """Instead of what the folder says."""
    document_prefix: str | None
    """Instead of what the folder says."""
    max_tokens: int | None
    """Instead of what the folder says."""
    offline: bool = False
    """Never ask the hub."""


def _asking(stage: Stage) -> dict[str, bool]:
    site = stage.spec.site
    return {"offline": site["offline"]} if "offline" in site else {}


def import_model(stage: Stage) -> None:
    """Stage: no inputs; output `model`, a folder that load_encoder and sentence-transformers load alike."""
    settings = validate(ImportSettings, stage.params | _asking(stage), stage.spec.name())
    source, revision = resolve(settings.model, settings.revision, settings.offline)
    contract, assumed = copy_model(source, stage.output("model"), settings, revision)
    stage.note(contract=contract.model_dump(mode="json"), assumed=assumed)


def start_folder(stage: Stage, settings: StartSettings) -> tuple[Path, str | None]:
    """The folder that an initial model comes from, input `parent` or the one that `init` names, and its hub commit."""
    if "parent" in stage.spec.inputs:
        return stage.path("parent"), None
    return resolve(settings.init, settings.revision, bool(stage.spec.site.get("offline", False)))


def resolve(model: str, revision: str | None, offline: bool) -> tuple[Path, str | None]:
    """The local folder of a model, and its hub commit where it has one.

    Raises:
        ModelError: no such folder, package or hub model, or the hub can't be asked.
    """
    if model.startswith(PACKAGE):
        return _package(model.removeprefix(PACKAGE)), revision
    if Path(model).is_dir():
        return Path(model), revision
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ModelError(model, "is no folder", "give a folder, organisation/name on the hub, or package:<module>")
    return _hub(model, revision, offline)


def _package(module: str) -> Path:
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ModelError(PACKAGE + module, f"the package can't be imported ({error})", f"install {module}") from None
    folder = getattr(found, "MODEL_DIR", None)
    if folder is None or not Path(folder).is_dir():
        raise ModelError(PACKAGE + module, "has no folder MODEL_DIR", "name a package that ships a model")
    return Path(folder)


def _hub(name: str, revision: str | None, offline: bool) -> tuple[Path, str | None]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=list(KEPT),
                local_files_only=offline,
                ignore_patterns=["onnx/*", "openvino/*"],
            )
        )
    except LocalEntryNotFoundError:
        what = (
            "is not in the hub cache, and offline is true"
            if offline
            else "is not in the hub cache, and the hub can't be asked"
        )
        step = (
            "fetch it once with offline: false, or give a folder" if offline else "check the network, or give a folder"
        )
        raise ModelError(name, f"is no folder, and {what}", step) from None
    except HFValidationError:
        raise ModelError(name, "is neither a folder nor a hub name", "write organisation/name") from None
    except (HfHubHTTPError, OSError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(name, f"can't be had from the hub ({first})", "check name, revision and access") from None
    return folder, folder.name  # snapshots/<commit>


def copy_model(
    source: Path, target: Path, settings: ImportSettings, revision: str | None
) -> tuple[EncoderContract, list[str]]:
    """Copy the model's files, write contract and layout, then load the copy and check it.

    Returns:
        the contract, and sentences about what the source did not say and was assumed.

    Raises:
        ModelError: one clear reason why the folder is no bi-encoder of this bench.
    """
    if (source / CONTRACT).exists() and read_contract(source).towers == "separate":
        return _copy_towers(source, target, settings, revision), []
    check_files(source)
    config = read_json(source / "config.json")
    values, assumed = describe(source, settings)
    hidden = config.get("hidden_size") or config.get("d_model") or config.get("dim")
    _check_dimension(source, values, hidden)
    values |= {
        "architecture": (config.get("architectures") or [config.get("model_type", "unknown")])[0],
        "source": settings.model,
        "revision": revision,
    }
    contract = make_contract(source, values)
    check_weights(source)
    copy_files(model_files(source, contract.projections), source, target)
    write_layout(target, contract, hidden)
    write_contract(target, contract)
    check_model(target)
    for sentence in assumed:
        log.info("%s: %s", settings.model, sentence)
    return contract, assumed


def _copy_towers(source: Path, target: Path, settings: ImportSettings, revision: str | None) -> EncoderContract:
    """A model of this bench with two towers, as it is."""
    changed = [key for key in OVERRIDES if getattr(settings, key) is not None]
    if changed:
        raise ModelError(source, f"has two towers, whose {', '.join(changed)} can't be overridden", "leave it out")
    contract = read_contract(source)
    check_layout(source, contract)
    check_weights(source)
    copy_files(whole_model(source, contract), source, target)
    came_from = {"source": settings.model, "revision": revision}
    for side in SIDES:
        write_contract(target / side, contract.model_copy(update=came_from | {"towers": "tied"}))
    contract = contract.model_copy(update=came_from)
    write_contract(target, contract)
    check_model(target)
    return contract


def describe(source: Path, settings: ImportSettings) -> tuple[dict[str, Any], list[str]]:
    """The contract's values: what the folder says, then what the method overrides, then stated assumptions."""
    found = _own_contract(source) or read_layout(source)
    values: dict[str, Any] = {"pooling": "mean", "normalize": False, "lowercase": False, "projections": []}
    values |= found
    assumed = [
        f"the folder does not say its {key}; taken: {values[key]}"
        for key in ("pooling", "normalize")
        if key not in found and getattr(settings, key) is None
    ]
    limits = [limit for limit in (position_limit(source), tokenizer_limit(source)) if limit]
    if "max_tokens" not in found:
        values["max_tokens"] = min(limits, default=512)
        if settings.max_tokens is None:
            assumed.append(f"the folder does not say its max_tokens; taken: {values['max_tokens']}")
    values |= {key: value for key in OVERRIDES if (value := getattr(settings, key)) is not None}
    for key in ("query_tokens", "document_tokens"):
        if values.get(key):
            values[key] = min(values[key], values["max_tokens"])
    rows = position_limit(source)
    if rows is not None and values["max_tokens"] > rows:
        raise ModelError(
            source,
            f"max_tokens is {values['max_tokens']}, but its position table holds {rows}",
            f"set max_tokens to at most {rows}",
        )
    if "similarity" not in values:
        values["similarity"] = "cosine" if values["normalize"] else "dot"
        assumed.append(f"the folder does not say its similarity; taken: {values['similarity']}")
    elif values["similarity"] == "cosine" and settings.normalize is None:
        values["normalize"] = True  # cosine is the inner product of unit vectors
    return values, assumed


def _own_contract(source: Path) -> dict[str, Any] | None:
    if not (source / CONTRACT).exists():
        return None
    contract = read_contract(source)
    check_layout(source, contract)
    return contract.model_dump(mode="json", exclude={"architecture", "source", "revision"})


def _check_dimension(source: Path, values: dict[str, Any], hidden: Any) -> None:
    if not isinstance(hidden, int):
        raise ModelError(source, "config.json states no hidden_size", "choose a text encoder")
    promised = values.setdefault("dimension", hidden)
    if promised != hidden and not values["projections"]:
        raise ModelError(
            source,
            f"promises vectors of {promised} components, its transformer makes {hidden}",
            "mend the pooling's configuration",
        )


def check_model(folder: Path) -> EncoderContract:
    """Load the folder and encode two texts, one of them empty.

    Raises:
        ModelError: contract and layout differ, it can't be loaded, or it gives no finite vectors of the promised size.
    """
    import numpy as np

    from zerodr.encoders.inference.encoder import load_encoder

    contract = read_contract(folder)
    check_layout(folder, contract)
    for side in SIDES if contract.towers == "separate" else SIDES[1:]:
        encoder = load_encoder(folder, "fp32", "cpu", side=side)
        tokens = encoder.tokenize(PROBE, contract.prefix(side))
        vectors = encoder.encode_batch([tokens[row] for row in range(len(tokens))])
        finite = bool(np.isfinite(vectors).all())
        if vectors.shape != (len(PROBE), contract.dimension) or not finite:
            raise ModelError(
                folder,
                f"gave vectors of shape {vectors.shape}, finite: {finite}; expected "
                f"finite ones of {contract.dimension} components",
                "choose another model",
            )
    return contract
