"""Read and check the whole configuration of a checkout. No torch, pandas, pyarrow or mlflow here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from zerodr.config.base import validate
from zerodr.config.methods import METHOD_KINDS, Method, Variant
from zerodr.config.registry import Collection, read_registry
from zerodr.config.settings import Config, Protocol, Scale
from zerodr.errors import ConfigError, nearest


@dataclass(frozen=True)
class Bench:
    """The checked configuration.

    Attributes:
        config: `config/config.yaml` with what the command line changed.
        collections: rows of the registry, and the user's own collection, by name.
        methods: every recipe and `recipe+variant`, by full name.
        protocols: by name.
        scale: the chosen preset.
        own_files: files of the user's own collection, sorted.
    """

    config: Config
    collections: dict[str, Collection]
    methods: dict[str, Method]
    protocols: dict[str, Protocol]
    scale: Scale
    own_files: tuple[str, ...] = ()


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
    scales = {k: validate(Scale, v, f"config/scales.yaml: {k}") for k, v in read_yaml(folder / "scales.yaml").items()}
    protocols = {k: validate(Protocol, v, f"config/protocols.yaml: {k}")
                 for k, v in read_yaml(folder / "protocols.yaml").items()}  # fmt: skip
    collections = read_registry(folder / "collections.tsv")
    own_files: tuple[str, ...] = ()
    if config.byo:
        own_files = tuple(sorted(str(path) for path in Path(config.byo).rglob("*") if path.is_file()))
        own = own_collection(Path(config.byo), collections)
        collections[own.name] = own
    scale = known("scale", config.scale, scales)
    bench = Bench(config, collections, load_methods(folder / "methods"), protocols, scale, own_files)
    _check_references(bench)
    return bench


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """`--config methods=a,b` comes as a string."""
    lists = ("methods", "collections", "mirrors", "gated")
    return {k: tuple(v.split(",")) if k in lists and isinstance(v, str) else v for k, v in values.items()}


def known(what: str, name: str, table: dict[str, Any]) -> Any:
    """`table[name]`, or a ConfigError with the nearest name."""
    if name not in table:
        raise ConfigError(f"{what} {name!r}", "is not known", nearest(name, table))
    return table[name]


def load_methods(folder: Path) -> dict[str, Method]:
    """All recipes with their variants, by full name."""
    methods: dict[str, Method] = {}
    for path in sorted(folder.glob("*.yaml")):
        value, where = read_yaml(path), f"config/methods/{path.name}"
        if not isinstance(value, dict):
            raise ConfigError(
                where, "expected a mapping with kind, label, description, settings", "see README, Configuration"
            )
        variants = value.pop("variants", None) or {}
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
           "splits": splits, "evaluation_split": split}  # fmt: skip
    return validate(Collection, row, f"byo={folder}")


def files_of_model(model: str) -> list[str]:
    """Files of a model that is a local folder, so that a changed folder is imported again; none for other models."""
    return sorted(str(path) for path in Path(model).glob("**/*") if path.is_file()) if Path(model).is_dir() else []


def _check_references(bench: Bench) -> None:
    config = bench.config
    known("protocol", config.protocol, bench.protocols)
    known("source", config.source or bench.scale.source, bench.collections)
    groups = {group: None for row in bench.collections.values() for group in (*row.groups, row.column)}
    for name in config.collections or bench.scale.collections:
        known("collection", name, bench.collections | groups)
    for name in config.gated:
        known("gated collection", name, bench.collections)
    for name in config.methods or bench.scale.methods:
        known("method", name, bench.methods)
    known("baseline", config.baseline, bench.methods)
    for protocol in bench.protocols.values():
        for name in protocol.overrides:
            known("protocol override of collection", name, bench.collections)
    for name, method in bench.methods.items():
        for run in method.settings.runs if method.kind == "fusion" else ():
            if known(f"method {name}: run", run, bench.methods).kind == "fusion":
                raise ConfigError(f"method {name}", f"fuses {run}, which is a fusion itself", "name two plain methods")


def site_of(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that say where things are found; they change no result and cause no rerun."""
    return validate(Config, _tuples(values), "config/config.yaml").model_dump(
        mode="json", include={"mirrors", "offline"}
    )


def config_schema() -> str:
    """JSON Schema of `config/config.yaml`, as `config/schema.json` holds it."""
    return json.dumps(Config.model_json_schema(), indent=1, sort_keys=True) + "\n"
