"""Settings reference: every key of the configuration files as Markdown tables, read from the typed settings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

LIMITS = {"ge": "≥ {}", "gt": "> {}", "le": "≤ {}", "lt": "< {}", "min_length": "at least {}"}
WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "Any": "any"}
PREAMBLE = """# Settings

Generated from the typed configuration by `zerodr settings --write`: do not edit by hand.

* A **bold** key has no default: write it.
* `null` is YAML for "not set". What that means is said in the last column.
* An unknown key fails with the nearest known one. A value outside its limits fails with what was expected and found.
"""
INDEX, SOURCES = "settings.md", "settings/sources.md"
ORIGINS = (
    "Values at scale `paper` by source: `paper` states them; `code` is the authors' released code, where "
    "the paper leaves them open or states others; the rest is `ours`. What the variants `official` and `released` "
    "change is the code's; any other variant changes what its label says."
)
ADVANCED = "* Keys marked *advanced* are set by no file of config/: most runs leave them out.\n"


def render(root: Path = Path(".")) -> str:
    """Write all pages, one after another."""
    return "\n".join(render_pages(root).values())


def render_pages(root: Path = Path(".")) -> dict[str, str]:
    """Write a page for each file of the configuration, a section for each block of settings, and the page above them.

    Args:
        root: of the checkout, whose recipes say which options are advanced.

    Returns:
        text by path below `docs/`.
    """
    advanced, shown = advanced_fields(root), set[type]()
    pages, rows = {INDEX: ""}, list[str]()
    for heading, note, roots in sections():
        blocks = [block for outermost in roots for block in _reachable(outermost, shown)]
        name = f"settings/{Path(heading).stem}.md"
        pages[name] = "\n".join([f"# {heading}\n\n{note}\n", *(_block(block, advanced) for block in blocks)])
        rows.append(f"| [{heading}]({name}) | {', '.join(f'`{block.__name__}`' for block in blocks)} |")
    if origins := _origins(root):
        pages[SOURCES] = origins
        rows.append(
            f"| [Sources of the papers' recipes]({SOURCES}) | what the papers state, what their code, what is ours |"
        )
    index = f"{PREAMBLE}{ADVANCED if any('*Advanced.*' in text for text in pages.values()) else ''}"
    pages[INDEX] = "\n".join([index, "| page | blocks |", "|---|---|", *rows, ""])
    homes = {
        block.lower(): name.removeprefix("settings/")
        for name, text in pages.items()
        for block in re.findall(r"(?m)^## (\w+)$", text)
    }
    return {name: _linked(text, homes, name.removeprefix("settings/")) for name, text in pages.items()}


def _linked(text: str, homes: dict[str, str], here: str) -> str:
    """Lead links to blocks of other pages there."""

    def link(match: re.Match[str]) -> str:
        home = homes.get(match[1], here)
        return f"](#{match[1]})" if home == here else f"]({home}#{match[1]})"

    return re.sub(r"\]\(#([a-z]+)\)", link, text)


def _origins(root: Path) -> str:
    """Write which values of recipes are the paper's, its authors' code's, or ours; empty where no recipe says so."""
    from zerodr.config.provenance import recipe_values

    rows = [
        f"| {name} | {source} | {_cell('; '.join(values))} |"
        for name, sources in recipe_values(root)
        for source, values in sources.items()
        if values
    ]
    if not rows:
        return ""
    head = f"# Sources of the papers' recipes\n\n{ORIGINS}\n\n| recipe | source | values |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def sections() -> Iterator[tuple[str, str, list[type[BaseModel]]]]:
    """Heading, one sentence and the outermost blocks of each configuration file."""
    from zerodr.config.layers import Start
    from zerodr.config.methods import METHOD_KINDS, Like, Variant
    from zerodr.config.papers import KINDS
    from zerodr.config.registry import Collection, Family
    from zerodr.config.settings import Config, Protocol, Scale

    yield "config/config.yaml", "Each key also works on the command line: `--config seed=1`.", [Config]
    yield "config/scales.yaml", "A block for each scale.", [Scale]
    yield "config/protocols.yaml", "A block for each protocol; its name is part of the paths.", [Protocol]
    yield "config/collections", "A file for each family, in it a block for each collection.", [Family, Collection]
    recipes = "One recipe a file. `kind` says which of the blocks below the file holds."
    yield "config/methods", recipes, [*METHOD_KINDS.values(), Variant, Like]
    yield "config/starts.yaml", "A block for each initial model that recipes share: `start: <name>`.", [Start]
    yield "config/papers", "A block for each table or figure. `kind` says which.", list(KINDS.values())


def _reachable(model: type[BaseModel], shown: set[type]) -> Iterator[type[BaseModel]]:
    """The block and all blocks inside it, outermost first, each once a page."""
    if model in shown:
        return
    shown.add(model)
    yield model
    for owner, field in known_keys(model).values():
        for inner in (owner, *_models(field.annotation)):
            yield from _reachable(inner, shown)


def known_keys(model: type[BaseModel]) -> dict[str, tuple[type[BaseModel], FieldInfo]]:
    """Give the keys that a file may write in a block, each with the class and the field that it belongs to."""
    from zerodr.config.base import Settings

    return model.known_keys() if issubclass(model, Settings) else {}


def advanced_fields(root: Path) -> set[tuple[type[BaseModel], str]]:
    """Give the settings class and name of every key that no file under `root`/config writes, at any scale.

    A key of several kinds, such as an item's `title`, counts as written where one of them has it. Keys of
    `config/config.yaml` are for the command line as well, and never advanced.
    """
    written = {field for settings in _written_settings(root) for field in _written(settings)}
    shown: set[type] = set()
    blocks = [block for _, _, roots in [*sections()][1:] for outer in roots for block in _reachable(outer, shown)]
    keys = {(owner, name) for block in blocks for name, (owner, _) in known_keys(block).items()}
    return {(owner, name) for owner, name in keys if _declared(owner, name) not in written}


def _declared(model: type[BaseModel], name: str) -> tuple[type, str]:
    """Give the class that declares a field, and the field."""
    return next(base for base in model.__mro__ if name in base.__dict__.get("__annotations__", {})), name


def _written_settings(root: Path) -> Iterator[Any]:
    """Give the settings that the files of `root`/config hold, recipes at every scale."""
    from zerodr.config.base import validate
    from zerodr.config.files import read_yaml, yaml_files
    from zerodr.config.load import load_bench, read_config, read_starts, read_table
    from zerodr.config.methods import Variant
    from zerodr.config.registry import Family
    from zerodr.config.settings import Config, Scale

    folder = root / "config"
    scales = read_table(folder / "scales.yaml", Scale)
    yield from (validate(Config, read_config(folder), "config"), scales, read_starts(folder))
    for scale in scales:
        bench = load_bench(root, {"scale": scale})
        yield from (bench.methods, bench.collections, bench.protocols, bench.papers)
    for path in yaml_files(folder / "collections", "collections", "family"):
        yield validate(Family, read_yaml(path), path.name)
    for name, recipe in bench.recipes.items():
        yield from (validate(Variant, variant, name) for variant in recipe.get("variants", {}).values())


def _written(value: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """Give the fields that were written, also inside written fields."""
    if isinstance(value, BaseModel):
        for name in value.model_fields_set:
            yield _declared(type(value), name)
            yield from _written(getattr(value, name))
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ():
        yield from _written(inner)


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for argument in get_args(kind):
        yield from _models(argument)


def _block(model: type[BaseModel], advanced: set[tuple[type[BaseModel], str]]) -> str:
    from zerodr.config.base import descriptions

    texts, known = descriptions(model), known_keys(model)
    fields = {name: field for name, (owner, field) in known.items() if owner is model}
    rows = "\n".join(_row(name, field, texts.get(name), (model, name) in advanced) for name, field in fields.items())
    table = f"| key | value | default | meaning |\n|---|---|---|---|\n{rows}\n"
    papers = dict.fromkeys(_kind(owner) for owner, _ in known.values() if owner is not model)
    added = f"Papers add keys: {', '.join(papers)}.\n\n" if papers else ""
    return f"## {model.__name__}\n\n{_prose(model.__doc__)}\n\n{added}{table}"


def _row(name: str, field: FieldInfo, text: str | None, is_advanced: bool) -> str:
    required = field.is_required()
    advanced = " *Advanced.*" if is_advanced else ""
    limits = ", ".join(
        text.format(getattr(limit, key))
        for limit in field.metadata
        for key, text in LIMITS.items()
        if hasattr(limit, key)
    )
    value = _kind(field.annotation) + (f", {limits}" if limits else "")
    default = "" if required else _default(field.get_default(call_default_factory=True))
    key = f"**`{name}`**" if required else f"`{name}`"
    return f"| {key} | {_cell(value)} | {_cell(default)} | {_cell(_prose(text) + advanced)} |"


def _kind(kind: Any) -> str:
    """A type in words: `int | None` -> "whole number or `null`"."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_kind(argument) for argument in arguments)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {_kind(arguments[0])}"
        return f"list of {len(arguments)}: " + ", ".join(_kind(argument) for argument in arguments)
    if origin is dict:
        return f"{_kind(arguments[1])} by name"
    if kind is NoneType:
        return "`null`"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    name = getattr(kind, "__name__", str(kind))
    return WORDS.get(name, name)


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        changed = value.model_dump(mode="json", exclude_defaults=True)
        return f"`{json.dumps(changed)}`" if changed else "its defaults"
    if isinstance(value, tuple) and any(isinstance(member, BaseModel) for member in value):
        return f"{len(value)} blocks"
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _prose(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip().replace("None: ", "`null`: ")


def _cell(text: str) -> str:
    """Escape what Markdown would read as a cell's end, or as HTML outside of code."""
    segments = text.replace("|", "\\|").split("`")
    return "`".join(text if number % 2 else text.replace("<", "&lt;") for number, text in enumerate(segments))
