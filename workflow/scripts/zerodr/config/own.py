"""Find what is a user's own: recipes, collections and settings in `config/my/`, next to what the bench ships.

Git ignores the folder, and so do the tests. ZERODR_MY names another one; empty: none.
"""

import os
from pathlib import Path
from typing import Any

from zerodr.config.base import mapping
from zerodr.config.files import read_yaml, yaml_files
from zerodr.errors import ConfigError

SETTINGS = "config.yaml"
KINDS = {"collections": "collections", "kind": "recipe", "like": "recipe"}  # key of a file -> what the file holds


def own_folder(config: Path) -> Path | None:
    """Return the user's own folder next to `config`'s files; None where there is none."""
    named = os.environ.get("ZERODR_MY")
    folder = config / "my" if named is None else Path(named)
    return folder if named != "" and folder.is_dir() else None


def own_files(config: Path, kind: str) -> dict[str, dict[str, Any]]:
    """Read the user's own files of a kind: `recipe` or `collections`, by path.

    Raises:
        ConfigError: a file is neither, or names two kinds.
    """
    folder, files = own_folder(config), dict[str, dict[str, Any]]()
    for path in yaml_files(folder, str(folder), "file of yours") if folder else ():
        if path.name == SETTINGS:
            continue
        written = mapping(read_yaml(path), str(path))
        kinds = {KINDS[key] for key in KINDS if key in written}
        if len(kinds) != 1:
            step = "begin a recipe with `kind:` or `like: <recipe>`, collections with `collections:`"
            raise ConfigError(path, f"is neither a recipe nor a list of collections, and not {SETTINGS}", step)
        if kinds == {kind}:
            files[str(path)] = written
    return files


def own_settings(config: Path) -> dict[str, Any]:
    """Read the user's own settings, which lie over those of `config/config.yaml`."""
    folder = own_folder(config)
    path = folder / SETTINGS if folder else None
    return mapping(read_yaml(path), str(path)) if path is not None and path.is_file() else {}


def place_of(recipe: str, config: Path) -> str:
    """Return the file of a recipe, for messages."""
    folder = own_folder(config)
    mine = folder / f"{recipe}.yaml" if folder else None
    return str(mine) if mine is not None and mine.is_file() else f"config/methods/{recipe}.yaml"
