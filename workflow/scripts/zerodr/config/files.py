"""Read YAML safely and look names up, with one sentence for a mistake."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from zerodr.errors import ConfigError, nearest

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MERGE, TEXT, LIST, MAPPING, WHOLE, FRACTION = (
    f"tag:yaml.org,2002:{tag}" for tag in ("merge", "str", "seq", "map", "int", "float")
)
NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+)|[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
OCTAL = re.compile(r"[+-]?0[0-9]+")
UNUSUAL_NUMBER = "write it without leading zeros, underscores and colons, or in quotes where it is a text"
NO_NUMBER = re.compile(r"[+-]?\.(?:inf|Inf|INF|nan|NaN|NAN)")


class DuplicateKey(yaml.MarkedYAMLError):
    """A key occurs twice in a mapping, where plain YAML takes the last one."""


class OtherNumber(yaml.MarkedYAMLError):
    """A number has a form that YAML 1.1 takes for another one."""


class UniqueLoader(Loader):
    """Safe, refuses a key that occurs twice in a mapping, and builds plain values faster than PyYAML.

    A key next to `<<` replaces a merged one.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        """Build the value of a document.

        Raises:
            DuplicateKey: a key occurs twice.
        """
        return self._build(node, {})

    def _build(self, node: yaml.Node, built: dict[int, Any]) -> Any:
        if node.tag == TEXT:
            return node.value
        if node.tag in (WHOLE, FRACTION):
            _check_number(node)
        if node.tag not in (LIST, MAPPING):
            try:
                return self.construct_object(node, deep=True)
            except ValueError as error:  # 2024-31-12 looks like a date
                raise yaml.MarkedYAMLError(problem=f"{node.value}: {error}", problem_mark=node.start_mark) from None
        if id(node) not in built:
            built[id(node)] = None  # an anchor inside itself is null
            many = node.tag == LIST
            built[id(node)] = [self._build(n, built) for n in node.value] if many else self._mapping(node, built)
        return built[id(node)]

    def _mapping(self, node: yaml.Node, built: dict[int, Any]) -> dict[Any, Any]:
        merged: dict[Any, Any] = {}
        written: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            value = self._build(value_node, built)
            if key_node.tag == MERGE:
                for layer in reversed(value if isinstance(value, list) else [value]):
                    merged |= layer if isinstance(layer, dict) else _refuse("<< is no mapping", key_node)
                continue
            key = self._build(key_node, built)
            if isinstance(key, list | dict):
                _refuse("a key is a list or a mapping", key_node)
            if key in written:
                raise DuplicateKey(problem=f"key {key!r} occurs twice", problem_mark=key_node.start_mark)
            written[key] = value
        return merged | written


def _check_number(node: yaml.Node) -> None:
    """Refuse a number that YAML 1.1 and a reader understand differently.

    Raises:
        OtherNumber: `0100` (64 there), `1:30` (90), `1_000`, `0b11`.
    """
    usual = NUMBER.fullmatch(node.value) and not OCTAL.fullmatch(node.value)
    if not (usual or NO_NUMBER.fullmatch(node.value)):
        raise OtherNumber(
            problem=f"{node.value} is no usual number (YAML 1.1 takes 0100 for 64, 1:30 for 90)",
            problem_mark=node.start_mark,
        )


def _refuse(problem: str, node: yaml.Node) -> Any:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def refuse_braces(paths: Iterable[str]) -> None:
    """Raise ConfigError for the first path with `{`, from which Snakemake would take names of wildcards."""
    for path in paths:
        if "{" in path:
            step = "rename it" if "{" in Path(path).name else "rename the folder, or give a link to it: ln -s"
            raise ConfigError(path, "has braces in its path, which Snakemake takes for wildcards", step)


def yaml_files(folder: Path, where: str, what: str) -> list[Path]:
    """List the YAML files of a folder in alphabetical order, without hidden ones: editors and macOS write these.

    Raises:
        ConfigError: a file ends in .yml or .YAML.
    """
    for path in sorted(path for path in folder.glob("[!.]*.*") if path.suffix.lower() in (".yml", ".yaml")):
        if path.suffix == ".yaml":
            continue
        raise ConfigError(
            f"{where}/{path.name}", f"is no {what}, their files end in .yaml", f"rename it to {path.stem}.yaml"
        )
    return sorted(folder.glob("[!.]*.yaml"))


def read_text(path: Path) -> str:
    """Read a text file.

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
    """Read a YAML file safely; a mistake is a ConfigError with its line."""
    try:
        return UniqueLoader(read_text(path)).get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        location = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = " ".join(str(getattr(error, "problem", error)).split())
        if isinstance(error, DuplicateKey):
            raise ConfigError(location, f"{problem} in one mapping", "remove one of them") from None
        if isinstance(error, OtherNumber):
            raise ConfigError(location, problem, UNUSUAL_NUMBER) from None
        raise ConfigError(location, f"is no YAML ({problem})", "correct the line") from None


def read_value(text: str) -> Any:
    """Read a value of the command line as a file's: a number that YAML 1.1 takes for another one is refused.

    >>> read_value("1e-5"), read_value("[a, 2]"), read_value("")
    ('1e-5', ['a', 2], None)

    Raises:
        ConfigError: it is no YAML, or such a number.
    """
    try:
        return UniqueLoader(text).get_single_data()
    except OtherNumber as error:
        raise ConfigError(text, str(error.problem), UNUSUAL_NUMBER) from None
    except yaml.YAMLError as error:
        raise ConfigError(text, f"is no YAML ({getattr(error, 'problem', error)})", "put it in quotes") from None


def known(what: str, name: str, table: Iterable[str]) -> Any:
    """Look `name` up in `table`, or raise a ConfigError with the nearest name."""
    if name not in table:
        raise ConfigError(f"{what} {name!r}", "is not known", nearest(name, table))
    return table[name] if isinstance(table, dict) else name
