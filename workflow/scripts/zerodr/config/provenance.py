"""List every value of a method with the layer or source that set it, and how two scales differ."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from zerodr.config.base import Settings, canonical_json, mapping, validate
from zerodr.config.bench import Bench
from zerodr.config.custom import recipe_file
from zerodr.config.files import known, read_yaml
from zerodr.config.layers import Layer, Layers, merge
from zerodr.config.load import read_starts, read_table
from zerodr.config.methods import Origins, TrainedMethod
from zerodr.config.recipes import unfold
from zerodr.config.settings import Scale
from zerodr.config.starts import init_of, start_of
from zerodr.errors import ConfigError

DEFAULT = "default"


class Value(NamedTuple):
    """Hold a value as text, and the layer that set it."""

    text: str
    layer: str


ABSENT = Value("-", "")


class Mark(str):
    """A leaf of a layer that remembers the layer's name. It reads as the leaf where that is a text (`like`, `kind`)."""

    layer: str


def values_of(name: str, bench: Bench, root: Path = Path(".")) -> dict[tuple[str, ...], Value]:
    """Give every value of a method at the bench's scale, by key path.

    A value that the method takes from the recipe it starts from has the layer `<recipe>: <layer there>`.

    Args:
        name: `<recipe>` or `<recipe>+<variant>`.
        bench: the checked configuration.
        root: of the checkout.

    Raises:
        ConfigError: no such method, with the nearest name.
    """
    method = known("method", name, {name: method for name, method in bench.methods.items() if "@" not in name})
    settings = _marks(name, bench, root)["settings"]
    values = {
        path: Value(_text(value), _layer(settings, path) or DEFAULT) for path, value in _leaves(method.settings, ())
    }
    start = start_of(init_of(method), bench.methods)
    if isinstance(method, TrainedMethod) and start is not None:
        for path, value in values_of(start[0], bench, root).items():
            if path[0] == "encoder" and values[path].layer == DEFAULT != value.layer:
                values[path] = Value(value.text, f"{start[0]}: {value.layer}")
    return values


def _marks(name: str, bench: Bench, root: Path) -> dict[str, Any]:
    """Give the keys of a method with a mark in place of each value."""
    recipe, _, variant = name.partition("+")
    folder = root / "config"
    where = recipe_file(recipe, folder)
    scales, starts = read_table(folder / "scales.yaml", Scale), read_starts(folder)
    layers = Layers(where, bench.recipes[recipe], bench.config.scale, scales, starts)
    several = [*layers.base, *(layers.of_variant(variant) if variant else ())]
    marks = merge(Layer(layer.name, _marked(layer.value, layer.name)) for layer in several)
    if "chain" in marks["settings"]:
        marks["settings"]["chain"] = unfold(marks["settings"]["chain"], where)
    return marks


def _marked(value: Any, layer: str, path: tuple[str, ...] = ()) -> Any:
    if isinstance(value, dict):
        return {key: _marked(inner, layer, (*path, key)) for key, inner in value.items()}
    is_stage = path[:2] == ("settings", "chain") and len(path) == 3
    if is_stage and value is None or path[-1] == "repeat":
        return value  # unfolding a chain reads them
    mark = Mark(value if isinstance(value, str) else "")
    mark.layer = layer
    return mark


def _layer(marks: Any, path: tuple[str, ...]) -> str | None:
    for key in path:
        if not isinstance(marks, dict):
            break
        marks = marks.get(key)
    return getattr(marks, "layer", None)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Settings):
        value = value.by_key()
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, (*path, key))


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return value if isinstance(value, str) and value else canonical_json(value)


def render(name: str, bench: Bench, root: Path = Path(".")) -> str:
    """Print a method at the bench's scale: keys indented as in YAML, values, and the layer of each."""
    rows: list[tuple[str, ...]] = []
    above: tuple[str, ...] = ()
    for path, value in _shortened(values_of(name, bench, root)).items():
        for depth, key in enumerate(path[:-1]):
            if path[: depth + 1] != above[: depth + 1]:
                rows.append((f"{'  ' * depth}{key}:",))
        above = path[:-1]
        rows.append((f"{'  ' * len(above)}{path[-1]}:", *value))
    method, file = bench.methods[name], recipe_file(name.partition("+")[0], root / "config")
    head = [f"{name} at scale {bench.config.scale} ({file})", f"{method.label}: {method.description}"]
    return "\n".join([*head, *([f"remark: {method.remark}"] if method.remark else []), "", *_aligned(rows)])


def render_difference(name: str, bench: Bench, to: Bench, root: Path = Path("."), other: str = "") -> str:
    """Print only the values that differ between two methods, or one at the scales of two benches; `-` for none."""
    other = other or name
    one, two = (_shortened(values_of(method, each, root)) for method, each in ((name, bench), (other, to)))
    heads = (bench.config.scale, to.config.scale) if other == name else (name, other)
    rows: list[tuple[str, ...]] = [("", heads[0], "from", heads[1], "from")]
    for path in dict.fromkeys([*max(one, two, key=len), *min(one, two, key=len)]):
        left, right = one.get(path, ABSENT), two.get(path, ABSENT)
        if left.text != right.text and {left.layer, right.layer} != {ABSENT.layer, DEFAULT}:
            rows.append((".".join(path), *left, *right))
    alike = f"{name} is the same at both scales" if other == name else f"{name} and {other} have the same settings"
    return "\n".join(_aligned(rows)) if len(rows) > 1 else alike


def _shortened(values: dict[tuple[str, ...], Value]) -> dict[tuple[str, ...], Value]:
    """Replace stages that are equal to the one before by one line for all of them."""
    stages: dict[str, dict[tuple[str, ...], Value]] = {}
    for path, value in values.items():
        if path[0] == "chain":
            stages.setdefault(path[1], {})[path[2:]] = value
    short = {path: value for path, value in values.items() if path[0] != "chain"}
    before = {path: short.pop(path) for path in list(short) if path[0] == "encoder"}
    chain: dict[tuple[str, ...], Value] = {}
    for last, run in _runs(stages):
        chain |= {("chain", run[0], *path): value for path, value in stages[run[0]].items()}
        if last != run[0]:
            chain["chain", run[1] if run[1] == last else f"{run[1]} to {last}"] = Value(f"as {run[0]}", "repeat")
    return before | chain | short


def _runs(stages: dict[str, dict[tuple[str, ...], Value]]) -> Iterator[tuple[str, list[str]]]:
    """Give runs of equal stages, each with its last one."""
    for _, run in groupby(stages, key=lambda stage: list(stages[stage].items())):
        names = list(run)
        yield names[-1], names


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    full = [row for row in rows if len(row) > 1]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


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
        origins, values = (
            validate(Origins, written["origins"], f"{where}: origins"),
            dict(_set_leaves(written["settings"])),
        )
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


def _set_leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _set_leaves(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, value if isinstance(value, str) else canonical_json(value)
