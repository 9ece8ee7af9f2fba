"""Read and check the configuration of a checkout, and find its archives. No torch, pandas, pyarrow or mlflow here."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zerodr.config.base import Model, describe, mapping, validate
from zerodr.config.bench import Bench, read_counted
from zerodr.config.checks import check_bench
from zerodr.config.counterparts import seeds_in, with_seeds, with_start
from zerodr.config.custom import custom_settings, refuse_taken
from zerodr.config.files import known, read_yaml
from zerodr.config.layers import Start, overlay
from zerodr.config.measures import CUSTOM as MEASURE_FILE
from zerodr.config.measures import CUT, MEASURES, WHOLE
from zerodr.config.mirrors import shared_mirrors
from zerodr.config.overrides import add_overrides
from zerodr.config.papers import load_papers
from zerodr.config.pins import LOCK, read_lock, with_revisions
from zerodr.config.recipes import load_methods, read_files
from zerodr.config.registry import Collection, read_registry
from zerodr.config.settings import Config, Protocol, Scale
from zerodr.config.training import CUSTOM as LOSS_FILE
from zerodr.config.training import LOSSES
from zerodr.config.user_folders import read_folders, split_folders, with_proxies
from zerodr.config.words import parse_words
from zerodr.errors import ConfigError
from zerodr.papers import modules

DOWNLOADED, NORMALISED = "resources/archives", "results/collections"


def find_mirrored(rows: Iterable[Collection], mirrors: Sequence[str]) -> dict[str, str]:
    """Return the path of each archive, and of each file of a publisher, that a mirror folder has: the first one."""
    names = {name for row in rows if row.archive and row.kind != "own" for name in row.mirror_files}
    paths = ((name, Path(folder, name)) for folder in reversed(mirrors) for name in sorted(names))
    return {name: str(path) for name, path in paths if path.is_file()}


def sizes_of_unpinned(rows: Iterable[Collection], mirrored: dict[str, str]) -> dict[str, int]:
    """Return the bytes of mirrored files that no checksum pins: another file shows by them, whatever its time."""
    names = {name for row in rows if row.kind != "own" for name, pinned in row.mirror_files.items() if not pinned}
    return {name: Path(mirrored[name]).stat().st_size for name in sorted(names & mirrored.keys())}


def find_absent(rows: Iterable[Collection], mirrored: dict[str, str]) -> frozenset[str]:
    """Return the public collections that have no address and no archive here."""
    closed = [row for row in rows if row.access == "public" and row.has_archive and not row.addresses]
    return frozenset(row.name for row in closed if row.archive not in mirrored and not _is_here(row))


def _is_here(row: Collection) -> bool:
    """True if the archive or the collection is present, and a plan may fetch the archive again.

    A record next to the archive says that a mirror had it. Without a checksum, the mirror's file is an input of
    `fetch_archive`: a plan without this file would delete the archive to fetch it again. Refusing keeps it.
    """
    archive = Path(DOWNLOADED, row.archive)
    if not row.checksums and archive.with_name(f"{row.archive}.lineage.json").is_file():
        return False
    return archive.is_file() or Path(NORMALISED, row.name, "manifest.json").is_file()


def refuse_absent(bench: Bench, row: Collection) -> None:
    """Raise a ConfigError when a collection has no address and no archive here.

    Inputs of `fetch_archive` raise it; Snakemake continues without them where the collection exists.
    """
    if row.name in bench.absent:
        folders = " or ".join(bench.config.mirrors) or "a folder, and name it in mirrors of config/config.yaml"
        raise ConfigError(
            f"collection {row.name}",
            f"has no public address, and no mirror folder has {row.archive}",
            f"put the archive into {folders}, or leave the collection out",
        )


SEED = Config.model_fields["seed"].default


def shipped_losses() -> set[str]:
    """Name the losses of the bench, those of papers included."""
    return {*LOSSES, *(name for paper in modules("settings") for name in paper.SETTINGS.losses)}


def load_bench(root: Path, overrides: dict[str, Any] | None = None) -> Bench:
    """Load everything under `root/config`, with `overrides` (the command line's `--config`) over config.yaml.

    Raises:
        ConfigError: names file, key, value and the nearest known name.
    """
    folder = root / "config"
    refuse_taken(LOSS_FILE, shipped_losses())
    refuse_taken(MEASURE_FILE, {*MEASURES, *WHOLE, *CUT, *(name.rpartition("_")[0] for name in MEASURES)})
    written = read_config(folder) if overrides is None or (folder / "config.yaml").exists() else {}
    values = written if overrides is None else overrides
    config = validate(Config, _tuples(values), "config/config.yaml, or --config")
    scales = read_table(folder / "scales.yaml", Scale)
    scale = known("scale", config.scale, scales)
    protocols = read_table(folder / "protocols.yaml", Protocol)
    collections = read_registry(folder / "collections")
    if config.substitutes:
        collections = {name: row.unpinned() for name, row in collections.items()}
    chosen = {"drop_missing": config.byo_drop_missing, "exclude_self": config.byo_exclude_self}
    rows, folders = read_folders(
        config.byo, collections, config.byo_language, chosen, config.byo_name, config.byo_columns, config.byo_cut
    )
    collections |= rows
    collections = with_proxies(collections, config.held_out)
    recipes, names = read_files(folder / "methods"), dict[str, str]()
    if config.start is not None:
        recipes, names = with_start(recipes, config.start)
    named = [name for name in config.methods or () if name.partition("+")[0].partition("@")[0] not in recipes]
    seeds = tuple(dict.fromkeys([*config.seeds, *(seed for seed in seeds_in(named) if seed != config.seed)]))
    recipes = with_seeds(recipes, seeds)
    starts = read_starts(folder)
    methods = load_methods(folder / "methods", config.scale, set(scales), starts, recipes)
    overridden: dict[str, tuple[str, ...]] = {}
    if config.set:
        recipes, methods, overridden = add_overrides(
            recipes, methods, config.set, config.scale, {*scales}, starts, seeds, folder
        )
    locked = {model: commit for model, (commit, _) in read_lock(root / LOCK).items()}
    methods = with_revisions(methods, config.revisions, locked)
    config = config.model_copy(update={"candidates": tuple(names.get(name, name) for name in config.candidates)})
    papers = load_papers(folder / "papers")
    mirrored = find_mirrored(collections.values(), config.mirrors)
    sizes = sizes_of_unpinned(collections.values(), mirrored)
    absent = find_absent(collections.values(), mirrored)
    bench = Bench(
        config,
        collections,
        methods,
        protocols,
        scale,
        folders,
        papers,
        mirrored,
        sizes,
        absent,
        root,
        recipes,
        overridden,
        read_counted(root),
    )
    check_bench(bench)
    return bench


def read_table(path: Path, kind: type[Model]) -> dict[str, Model]:
    """Read a file of `config/` that holds settings of one kind by name.

    Raises:
        ConfigError: names file, entry, key, value and the nearest known key.
    """
    where = f"config/{path.name}"
    return {name: validate(kind, value, f"{where}: {name}") for name, value in mapping(read_yaml(path), where).items()}


def read_starts(folder: Path) -> dict[str, Start]:
    """Read `starts.yaml` of the folder; a configuration without the file has no starts."""
    path = folder / "starts.yaml"
    return read_table(path, Start) if path.exists() else {}


def mirrors_of(root: Path) -> list[Path]:
    """List the mirror folders of a checkout: the configuration's, then the machine's."""
    named = _tuples({"mirrors": read_config(root / "config").get("mirrors") or ()})["mirrors"]
    return [root / folder for folder in dict.fromkeys((*named, *shared_mirrors(root)))]


def read_config(folder: Path, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read `config.yaml` of the folder, the user's own over it, and `values` over both, key by key as Snakemake does.

    Snakemake overlooks a key that occurs twice.
    """
    written = overlay(mapping(read_yaml(folder / "config.yaml"), "config/config.yaml"), custom_settings(folder))
    return overlay(written, dict(values or {}))


def with_scale(words: Sequence[str], profile: str, folder: Path = Path("config")) -> list[str]:
    """Add scale `paper` to words of `--config` where a Slurm profile means it: neither they nor a file name a scale."""
    named = "scale" in read_config(folder, parse_words(words))
    return [*words] if named or "slurm" not in Path(profile).name else [*words, "scale=paper"]


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Split a list that Snakemake passes as one string (`--config methods=a,b`)."""
    lists = ("methods", "collections", "mirrors", "gated", "candidates", "set", "measures")
    if isinstance(values.get("seeds"), int | str):  # seeds=14 and seeds=14,15
        words = str(values["seeds"]).split(",")
        values["seeds"] = tuple(
            int(word) if word.strip().isascii() and word.strip().isdigit() else word for word in words
        )
    if isinstance(values.get("seeds"), list | tuple):  # the first one is there anyway
        if len({*map(str, values["seeds"])}) < len(values["seeds"]):
            raise ConfigError("seeds", "name one seed twice", "name each once")
        values["seeds"] = tuple(seed for seed in values["seeds"] if str(seed) != str(values.get("seed", SEED)))
    values = {
        k: tuple(word.strip() for word in v.split(",")) if k in lists and isinstance(v, str) else v
        for k, v in values.items()
    }
    if isinstance(values.get("set"), list | tuple):  # YAML reads the 32 of [a.b=8,32] as a number
        values["set"] = tuple(word if isinstance(word, str) else json.dumps(word) for word in values["set"])
    named = values.get("mirrors", ())
    if isinstance(named, list | tuple):
        folders = [os.path.expanduser(str(folder)) for folder in named]
        values["mirrors"] = tuple(dict.fromkeys([*folders, *shared_mirrors()]))
    return values | ({"byo": split_folders(values["byo"])} if "byo" in values else {})


def files_of_model(model: str) -> list[str]:
    """List the files of a model that is a local folder, so that a changed folder is imported again.

    What tools write into folders of theirs, as `.git` and `.cache` of a download, is no part of the model.
    """
    folder = Path(model)
    if not folder.is_dir():
        return []
    files = ((path, path.relative_to(folder).parent.parts) for path in folder.glob("**/*") if path.is_file())
    return sorted(str(path) for path, parents in files if not any(name.startswith(".") for name in parents))


def site_of(values: dict[str, Any]) -> dict[str, Any]:
    """Select the settings of the machine: where inputs come from. They cause no rerun."""
    return validate(Config, _tuples(values), "config/config.yaml").model_dump(
        mode="json", include={"mirrors", "offline"}
    )


def config_schema() -> str:
    """Write the JSON Schema of `config/config.yaml`, as in `config/schema.json`."""
    return json.dumps(describe(Config.model_json_schema(), Config), indent=1, sort_keys=True) + "\n"
