"""Read and check the whole configuration of a checkout. No torch, pandas, pyarrow or mlflow here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from zerodr.config.base import mapping, validate
from zerodr.config.bench import Bench
from zerodr.config.checks import check_bench, known
from zerodr.config.methods import METHOD_KINDS, Method, Variant
from zerodr.config.registry import Collection, read_registry
from zerodr.config.settings import Config, Protocol, Scale
from zerodr.config.sizes import estimated_documents
from zerodr.errors import ConfigError


def read_yaml(path: Path) -> Any:
    """A YAML file through `yaml.safe_load`, with the place of a syntax error in one sentence."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigError(place, f"is no YAML ({getattr(error, 'problem', error)})", "correct the line") from None
    except OSError as error:
        raise ConfigError(path, f"can't be read ({error.strerror})", "run from the project's root") from None


def load_bench(root: Path, overrides: dict[str, Any] | None = None) -> Bench:
    """Everything under `root/config`, with `overrides` (the command line's `--config`) on top of config.yaml.

    Raises:
        ConfigError: names file, key, value and the nearest known name.
    """
    folder = root / "config"
    values = (read_yaml(folder / "config.yaml") or {}) if overrides is None else overrides
    config = validate(Config, _tuples(values), "config/config.yaml")
    scales = {k: validate(Scale, v, f"config/scales.yaml: {k}")
              for k, v in mapping(read_yaml(folder / "scales.yaml"), "config/scales.yaml").items()}  # fmt: skip
    written = mapping(read_yaml(folder / "protocols.yaml"), "config/protocols.yaml")
    protocols = {k: validate(Protocol, v, f"config/protocols.yaml: {k}") for k, v in written.items()}
    collections = read_registry(folder / "collections.tsv")
    own_files: tuple[str, ...] = ()
    if config.byo:
        own_files = tuple(sorted(str(path) for path in Path(config.byo).rglob("*") if path.is_file()))
        own = own_collection(Path(config.byo), collections)
        collections[own.name] = own
    scale = known("scale", config.scale, scales)
    bench = Bench(config, collections, load_methods(folder / "methods"), protocols, scale, own_files)
    check_bench(bench)
    return bench


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """`--config methods=a,b` comes as a string."""
    lists = ("methods", "collections", "mirrors", "gated")
    return {k: tuple(v.split(",")) if k in lists and isinstance(v, str) else v for k, v in values.items()}


def load_methods(folder: Path) -> dict[str, Method]:
    """All recipes with their variants, by full name."""
    methods: dict[str, Method] = {}
    for path in sorted(folder.glob("*.yaml")):
        value, where = read_yaml(path), f"config/methods/{path.name}"
        variants = mapping(mapping(value, where).pop("variants", None), f"{where}: variants")
        kind = known(f"{where}: kind", str(value.get("kind")), METHOD_KINDS)
        base = validate(kind, value, where)
        methods[path.stem] = base
        for name, change in variants.items():
            variant = validate(Variant, change, f"{where}: variants.{name}")
            full = value | {
                "label": variant.label or f"{base.label} ({name})",
                "settings": (value.get("settings") or {}) | variant.settings,
            }
            methods[f"{path.stem}+{name}"] = validate(kind, full, f"{where}: variants.{name}")
    return methods


def own_collection(folder: Path, taken: dict[str, Collection]) -> Collection:
    """The row of a user's folder. Counts are unknown, so nothing is compared with published numbers."""
    name = folder.resolve().name.lower().replace(" ", "-")
    if name in taken:
        raise ConfigError(f"byo={folder}", f"the registry already has a collection named {name!r}", "rename the folder")
    if not folder.is_dir():
        raise ConfigError(f"byo={folder}", "is no folder", "give a folder with corpus.{jsonl,tsv,parquet}")
    splits: dict[str, int | None] = {p.stem: None for p in sorted((folder / "qrels").glob("*.tsv"))}
    split = next((s for s in ("test", "dev", *splits) if s in splits), "")
    row = {"name": name, "label": folder.name, "kind": "own", "format": "folder", "archive": str(folder),
           "splits": splits, "evaluation_split": split, "estimated_documents": estimated_documents(folder)}  # fmt: skip
    return validate(Collection, row, f"byo={folder}")


def files_of_model(model: str) -> list[str]:
    """Files of a model that is a local folder, so that a changed folder is imported again; none for other models."""
    return sorted(str(path) for path in Path(model).glob("**/*") if path.is_file()) if Path(model).is_dir() else []


def site_of(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that say where things are found; they change no result and cause no rerun."""
    return validate(Config, _tuples(values), "config/config.yaml").model_dump(
        mode="json", include={"mirrors", "offline"}
    )


def config_schema() -> str:
    """JSON Schema of `config/config.yaml`, as `config/schema.json` holds it."""
    return json.dumps(Config.model_json_schema(), indent=1, sort_keys=True) + "\n"
