"""Find advanced settings: options of recipes that no shipped recipe sets at any scale."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from zerodr.config.load import load_bench, read_table
from zerodr.config.methods import METHOD_KINDS
from zerodr.config.settings import Scale

Field = tuple[type[BaseModel], str]


def advanced_fields(root: Path) -> set[Field]:
    """Give the settings class and name of every option of recipes that no recipe under `root` sets."""
    scales = read_table(root / "config/scales.yaml", Scale)
    benches = [load_bench(root, {"scale": scale}) for scale in scales]
    used = {field for bench in benches for method in bench.methods.values() for field in _fields_set(method)}
    options = {field for kind in METHOD_KINDS.values() for field in _options(kind)}
    return options - used


def _fields_set(value: Any) -> Iterator[Field]:
    """Give the fields that were written, also inside written fields."""
    if isinstance(value, BaseModel):
        for name in value.model_fields_set:
            yield type(value), name
            yield from _fields_set(getattr(value, name))
    for inner in value.values() if isinstance(value, dict) else ():
        yield from _fields_set(inner)


def _options(kind: Any) -> Iterator[Field]:
    """Give the fields of the settings in a type, also of those inside."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield kind, name
            yield from _options(field.annotation)
    for inner in get_args(kind):
        yield from _options(inner)
