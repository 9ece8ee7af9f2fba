"""Read YAML safely and look names up, with one sentence for a mistake."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from zerodr.errors import ConfigError, nearest

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MERGE = "tag:yaml.org,2002:merge"


class StandsTwice(yaml.MarkedYAMLError):
    """A key stands twice in a mapping, where plain YAML takes the last one."""


class UniqueLoader(Loader):
    """Safe, and refuses a key that stands twice in a mapping. A key beside `<<` goes before a merged one."""

    def construct_document(self, node: yaml.Node) -> Any:
        """The value of a document.

        Raises:
            StandsTwice: a key does.
        """
        _refuse_twice(node, set())
        return super().construct_document(node)


def _refuse_twice(node: yaml.Node, seen: set[int]) -> None:
    if id(node) in seen or isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    keys: set[tuple[str, str]] = set()
    for key, _ in pairs:
        if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
            if (key.tag, key.value) in keys:
                raise StandsTwice(problem=f"key {key.value!r} stands twice", problem_mark=key.start_mark)
            keys.add((key.tag, key.value))
    for inner in [value for _, value in pairs] if pairs else node.value:
        _refuse_twice(inner, seen)


def read_text(path: Path) -> str:
    """A text file.

    Raises:
        ConfigError: it can't be read, or is not in UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}", "is not in UTF-8", "save the file in UTF-8") from None
    except OSError as error:
        raise ConfigError(path, f"can't be read ({error.strerror})", "run from the project's root") from None


def read_yaml(path: Path) -> Any:
    """A YAML file's value, safely, with the place of a mistake in one sentence."""
    try:
        return UniqueLoader(read_text(path)).get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = " ".join(str(getattr(error, "problem", error)).split())
        if isinstance(error, StandsTwice):
            raise ConfigError(place, f"{problem} in one mapping", "remove one of them") from None
        raise ConfigError(place, f"is no YAML ({problem})", "correct the line") from None


def known(what: str, name: str, table: Iterable[str]) -> Any:
    """`table[name]`, or a ConfigError with the nearest name."""
    if name not in table:
        raise ConfigError(f"{what} {name!r}", "is not known", nearest(name, table))
    return table[name] if isinstance(table, dict) else name
