"""Sources of the values that recipes of papers set: the paper, its authors' code, or ours."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from zerodr.config.base import mapping, validate
from zerodr.config.canonical import canonical_json
from zerodr.config.files import read_yaml
from zerodr.config.methods import Origins
from zerodr.errors import ConfigError

PAPER, CODE, OURS = "paper", "code", "ours"


def recipe_values(root: Path = Path(".")) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Give each recipe with `origins`, and its values by source as `key value`; keys of stages without `chain.`.

    Args:
        root: of the checkout.

    Raises:
        ConfigError: a key of `origins` that the recipe does not set, or one that both sources claim.
    """
    for path in sorted((root / "config/methods").glob("*.yaml")):
        where = f"config/methods/{path.name}"
        written = mapping(read_yaml(path), where)
        if "origins" not in written:
            continue
        origins, values = validate(Origins, written["origins"], f"{where}: origins"), dict(_leaves(written["settings"]))
        sources: dict[str, list[str]] = {PAPER: [], CODE: [], OURS: []}
        for key, value in values.items():
            sources[_source(key, origins, where)].append(f"{key.removeprefix('chain.')} {value}")
        _refuse_unset(origins, values, where)
        yield path.stem, sources


def _source(key: str, origins: Origins, where: str) -> str:
    claims = [name for name in (PAPER, CODE) if any(fnmatchcase(key, pattern) for pattern in getattr(origins, name))]
    if len(claims) > 1:
        raise ConfigError(f"{where}: origins", f"{key} is claimed by paper and by code", "leave it in one of them")
    return claims[0] if claims else OURS


def _refuse_unset(origins: Origins, values: dict[str, str], where: str) -> None:
    for pattern in (*origins.paper, *origins.code):
        if not any(fnmatchcase(key, pattern) for key in values):
            raise ConfigError(
                f"{where}: origins", f"{pattern} is no value of the recipe", "correct it, or leave it out"
            )


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, value if isinstance(value, str) else canonical_json(value)
