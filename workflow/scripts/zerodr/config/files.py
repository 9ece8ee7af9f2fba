"""Read YAML safely and look names up, with one sentence for a mistake."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from zerodr.errors import ConfigError, nearest


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


def known(what: str, name: str, table: Iterable[str]) -> Any:
    """`table[name]`, or a ConfigError with the nearest name."""
    if name not in table:
        raise ConfigError(f"{what} {name!r}", "is not known", nearest(name, table))
    return table[name] if isinstance(table, dict) else name
