"""Read `--config KEY=VALUE` words so that names and paths stay as they were typed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml

from zerodr.config.files import read_value
from zerodr.config.settings import Config
from zerodr.errors import ConfigError

NULLS = ("", "~", "null", "Null", "NULL")
EXPANDED = set('$`\\"!')  # what a shell changes between double quotes


def parse_words(words: Iterable[str]) -> dict[str, Any]:
    """Parse `["seed=3", "methods=[a,b]"]` to `{"seed": 3, "methods": ["a", "b"]}`: values as YAML, names as text.

    Raises:
        ConfigError: a word without `=` or without a value, or a value that is no YAML.
    """
    values = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--config {word}", "is no KEY=VALUE", "for example: --config scale=lab")
        if not value:
            step = f"give one, leave the word out, or write {key}=null for the default"
            raise ConfigError(f"--config {word}", "has no value", step)
        if "." in key:
            named = Path("config/methods", f"{key.partition('.')[0]}.yaml").is_file()
            whole = word if named else f"dpr.{word}"
            step = f"change a recipe's with --set {whole}, for snakemake: --config 'set=[{whole}]'"
            raise ConfigError(f"--config {word}", f"config/config.yaml has no {key}", step)
        try:
            values[key] = read_text(value) if key in texts() else read_value(value)
        except ConfigError as error:
            raise ConfigError(f"--config {word}", error.what, error.next_step) from None
    return values


def parse_texts(words: Iterable[str]) -> dict[str, Any]:
    """Parse the words of settings that are text. Snakemake reads `2024_05` as a number and ends a text at ` #`.

    Raises:
        ConfigError: jobs would get another value than this process, or a number is read differently by YAML and Python.
    """
    given = list(words)
    for word in given:
        if not is_unchanged(word):
            problem = "does not reach jobs as it is: Snakemake and the shell change its quotes, backslashes or signs"
            raise ConfigError(f"--config {word}", problem, "write it into a YAML file, then: --configfile FILE")
    values = parse_words(word for word in given if word.partition("=")[1] and "." not in word.partition("=")[0])
    return {key: value for key, value in values.items() if key in texts()}


def is_unchanged(word: str) -> bool:
    """Test whether Snakemake hands a word on to its jobs unchanged: it writes `repr(word)` into a shell's command.

    >>> is_unchanged("byo=it's"), is_unchanged("byo=it's $5"), is_unchanged("byo=a\\\\b")
    (True, False, False)
    """
    written = repr(word)
    return written == f"'{word}'" or written == f'"{word}"' and not EXPANDED & set(word)


@cache
def texts() -> frozenset[str]:
    """Name the settings of config.yaml whose values are text, or lists of texts."""
    return frozenset(name for name, field in Config.model_fields.items() if _is_text(field.annotation))


def _is_text(kind: Any) -> bool:
    members = [member for member in get_args(kind) if member not in (type(None), Ellipsis)]
    return kind is str or kind in (tuple[str, ...], tuple[str, ...] | None) or members == [str]


def read_text(value: str) -> Any:
    """Read the value of a setting that is text: what stands between quotes, the items of `[...]`, else all as it is.

    >>> read_text("notes #2"), read_text("2024_05"), read_text("'no'"), read_text("[2024_05, no]"), read_text("null")
    ('notes #2', '2024_05', 'no', ['2024_05', 'no'], None)
    """
    if value in NULLS:
        return None
    try:
        node = yaml.compose(value, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return value
    if node is None or node.end_mark.index < len(value.rstrip()):
        return value
    if isinstance(node, yaml.SequenceNode) and node.flow_style:
        plain = all(isinstance(item, yaml.ScalarNode) for item in node.value)
        return [item.value for item in node.value] if plain else read_value(value)
    return node.value if isinstance(node, yaml.ScalarNode) and node.style in ("'", '"') else value
