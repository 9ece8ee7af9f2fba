"""Counterparts of recipes: with other seeds, and from another model than the usual start of `zerodr adapt`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from zerodr.config.base import Settings
from zerodr.config.layers import overlay
from zerodr.errors import ConfigError

NAMING = ("init", "source", "model", "memory", "runs", "teacher", "dam")  # keys whose values name methods
COMPOSED = ("fusion", "feedback")  # kinds of methods that are made of others
RANKING = "bi_encoder"
LORA_RANK, LORA_RATE = 16, 10  # LoRA wants about ten times the learning rate of all weights (Biderman et al. 2024)


def seeded(name: str, seed: int) -> str:
    """Name of a method's counterpart: `dpr@ep0` with seed 14 is `dpr-seed14@ep0`."""
    recipe = re.split("[+@]", name, maxsplit=1)[0]
    return f"{recipe}-seed{seed}{name.removeprefix(recipe)}"


def seeds_in(names: Iterable[str]) -> list[int]:
    """List the seeds of counterparts that are named: 14 of `dpr-seed14+official`.

    >>> seeds_in(["dpr", "dpr-seed14@ep0", "dpr-seed15", "my-seed"])
    [14, 15]
    """
    return [int(match[1]) for name in names if (match := re.search(r"-seed([0-9]+)(?:[+@]|$)", name))]


def with_seeds(recipes: Mapping[str, Any], seeds: tuple[int, ...]) -> dict[str, Any]:
    """Add counterparts of all recipes that draw random numbers to what the files of `config/methods` hold.

    Args:
        recipes: contents of the files, by recipe.
        seeds: further seeds.

    Raises:
        ConfigError: a recipe has the name of a counterpart.
    """
    names, added = drawing(recipes), dict[str, Any]()
    for recipe in dict.fromkeys(name.partition("+")[0] for name in sorted(names)):
        for seed in seeds:
            if recipes[recipe].get("seed") == seed:  # it is its own counterpart
                continue
            if (name := seeded(recipe, seed)) in recipes:
                raise ConfigError(f"seeds: {seed}", f"{name} is the name of a recipe of yours", "rename one of them")
            added[name] = _labelled(_renamed(recipes[recipe], names, seed), seed) | {"seed": seed}
    return dict(recipes) | added


def laid_settings(written: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a recipe with those that a recipe `like:` it lays over them, scales left out."""
    settings = written["settings"]
    for change in written.get("changes", ()):
        settings = overlay(settings, change.get("settings") or {})
    return settings


def _labelled(written: dict[str, Any], seed: int) -> dict[str, Any]:
    """Add the seed to the labels of a recipe and of its variants."""
    labels = {"label": f"{written['label']}, seed {seed}"} if isinstance(written.get("label"), str) else {}
    variants = written.get("variants")
    if isinstance(variants, dict):
        labelled = {k: _labelled(v, seed) if isinstance(v, dict) else v for k, v in variants.items()}
        return written | labels | {"variants": labelled}
    return written | labels


def drawing(recipes: Mapping[str, Any]) -> set[str]:
    """Full names of methods that train a bi-encoder or attention, and of those that are made of one of these."""
    members: dict[str, set[str]] = {}
    names = set[str]()
    for recipe, written in recipes.items():
        if not isinstance(written, dict) or not isinstance(written.get("settings"), dict):
            continue
        listed = written.get("variants")
        variants = listed if isinstance(listed, dict) else {}
        base = laid_settings(written)
        types = {str(one) for key, one in _values(base) if key == "type"}
        trains = written.get("kind") == "mixture" or written.get("kind") == "trained" and types <= {RANKING}
        for name, change in {recipe: {}, **{f"{recipe}+{key}": value for key, value in variants.items()}}.items():
            changed = change.get("settings") if isinstance(change, dict) else None
            settings = base | (changed if isinstance(changed, dict) else {})
            if written.get("kind") in COMPOSED:
                members[name] = {str(one) for key, one in _values(settings) if key in NAMING}
            if trains or settings.get("attention") is not None:
                names.add(name)
    while more := {name for name, of in members.items() if {_method_of(one) for one in of} & names} - names:
        names |= more
    return names


def _method_of(value: str) -> str:
    """Method of `<method>`, `<method>@<stage>` or `<method>/<stage>`."""
    return re.split("[@/]", value, maxsplit=1)[0]


def _values(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping and no list, with its key."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _values(member, str(name))
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _values(member, key)
    else:
        yield key, value


def _renamed(value: Any, names: set[str], seed: int, key: str = "") -> Any:
    """Copy what a file holds, with names of counterparts."""
    if isinstance(value, dict):
        return {name: _renamed(member, names, seed, str(name)) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(member, names, seed, key) for member in value]
    if key in NAMING and isinstance(value, str) and _method_of(value) in names:
        method = _method_of(value)
        return seeded(method, seed) + value.removeprefix(method)
    return value


USUAL, SHARED = "all-minilm-l6-v2", "minilm"  # as a recipe, and in config/starts.yaml

REMARK = "a model of yours; what it was tuned on is not known here"


class OtherStart(Settings):
    """A bi-encoder in place of all-MiniLM-L6-v2. `zerodr adapt --start` reads the values from the model."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    """Its name in paths and tables."""
    model: str
    """A folder, `organisation/name` on the hub, or `package:<module>`."""
    revision: str | None = None
    """Hub revision."""
    pooling: Literal["mean", "cls", "max", "last"] = "mean"
    """Pooling of its token vectors."""
    head: bool = False
    """Whether layers follow its pooling."""
    inner_product: float | None = Field(None, gt=0)
    """Of two vectors in one direction, where it compares by inner products. None: cosines."""
    max_tokens: int = Field(256, ge=2)
    """The model's longest text."""
    stated_tokens: int | None = Field(None, ge=2)
    """The same, where its files state less than its tables hold."""
    prefix_tokens: int = Field(0, ge=0)
    """Tokens of what it wants in front of a query."""
    large: bool = False
    """Whether it has so many weights that training adds LoRA to them instead of changing all."""


def renamed(name: str, start: OtherStart) -> str:
    """Name of the counterpart of a method that comes from the usual start."""
    if name == USUAL:
        return start.name
    recipe, _, variant = name.partition("+")
    return f"{recipe}+{variant}-{start.name}" if variant else f"{recipe}+{start.name}"


def with_start(recipes: Mapping[str, Any], start: OtherStart) -> tuple[dict[str, Any], dict[str, str]]:
    """Add the start as a recipe, and each method trained from it as a variant, to those of `config/methods`.

    Args:
        recipes: contents of the files, by recipe.
        start: the other start.

    Returns:
        the recipes, and the new name of each method that has a counterpart.

    Raises:
        ConfigError: a recipe has the start's name.
    """
    if start.name in recipes:
        raise ConfigError(f"start {start.name}", "is the name of a recipe", "give it another name")
    names, added = _counterparts(recipes, start), dict(recipes)
    for old, new in names.items():
        recipe, _, variant = new.partition("+")
        if variant:
            written = added[recipe]
            change = _change(recipes[recipe], old.partition("+")[2], start, names)
            added[recipe] = written | {"variants": written.get("variants", {}) | {variant: change}}
    settings = {"model": start.model, "revision": start.revision}
    about = {"label": start.name, "description": f"the bi-encoder {start.model}, which adaptation starts from"}
    return added | {start.name: {"kind": "encoder", **about, "remark": REMARK, "settings": settings}}, names


def _counterparts(recipes: Mapping[str, Any], start: OtherStart) -> dict[str, str]:
    """Name the counterparts of the usual start, of recipes that train it, and of what is made of one of these."""
    names = {USUAL: start.name}
    mappings = {name: written for name, written in recipes.items() if isinstance(written, dict)}
    names |= {name: renamed(name, start) for name, written in mappings.items() if written.get("start") == SHARED}
    composed = {
        key: _members(laid_settings(written) | value.get("settings", {}))
        for name, written in mappings.items()
        if written.get("kind") in COMPOSED
        for key, value in {name: written, **{f"{name}+{v}": c for v, c in written.get("variants", {}).items()}}.items()
    }
    while more := {key for key, members in composed.items() if members & set(names)} - set(names):
        names |= {key: renamed(key, start) for key in more}
    return names


def _members(settings: Mapping[str, Any]) -> set[str]:
    """Methods that a fusion fuses, or that feedback uses."""
    return {*settings.get("runs", ()), *(settings[key] for key in ("model", "memory") if key in settings)}


def _change(written: dict[str, Any], variant: str, start: OtherStart, names: Mapping[str, str]) -> dict[str, Any]:
    """Describe a counterpart as a variant of the recipe: all that differs from the recipe."""
    if written["kind"] == "fusion":
        base = written["variants"][variant] if variant else {"label": written["label"]}
        settings = laid_settings(written) | base.get("settings", {})
        runs = [names.get(run, run) for run in settings["runs"]]
        label = f"{base['label'].partition(' + ')[0]} + {runs[1].replace('+', ' from ')}"
        return {"label": label, "remark": "", "settings": settings | {"runs": runs}}
    if written["kind"] == "feedback":
        base = written["variants"][variant] if variant else {"label": written["label"]}
        settings = laid_settings(written) | base.get("settings", {})
        members = {key: names.get(settings[key], settings[key]) for key in ("model", "memory")}
        label = f"{base['label']} from {start.name}"
        return {"label": label, "remark": "", "settings": settings | members}
    encoder: dict[str, Any] = {"init": start.model, "revision": start.revision}
    encoder |= {"pooling": start.pooling, "similarity": "cosine" if start.inner_product is None else "dot"}
    encoder |= {"head": "kept"} if start.head else {}
    lengths, chain = (laid_settings(written)[key] for key in ("encoder", "chain"))
    query_tokens = min(start.max_tokens, lengths["query_tokens"] + start.prefix_tokens)
    if query_tokens != lengths["query_tokens"]:
        encoder["query_tokens"] = query_tokens
    if start.max_tokens < lengths["document_tokens"] or any(stage.get("keep_index") for stage in chain.values()):
        encoder["document_tokens"] = start.max_tokens  # an index that is kept holds documents at the model's own length
    if start.stated_tokens is not None:
        encoder["max_tokens"] = max(start.stated_tokens, query_tokens)
    changes = {name: _trained(stage, start) | _changed(stage, names) for name, stage in chain.items()}
    stages = {name: change for name, change in changes.items() if change}
    settings = {"encoder": encoder, "chain": stages}
    remark = f"starts from {REMARK}"
    return {"label": f"{written['label']} from {start.name}", "remark": remark, "settings": settings}


def _trained(stage: dict[str, Any], start: OtherStart) -> dict[str, Any]:
    """Change how a stage is trained: its temperature is for cosines, and its learning rate for all weights."""
    change: dict[str, Any] = {}
    if start.inner_product is not None and "inverse_temperature" in stage.get("objective", {}):
        factor = stage["objective"]["inverse_temperature"] / start.inner_product
        change["objective"] = {"inverse_temperature": float(f"{factor:.2g}")}
    if start.large and stage.get("kind", "finetune") == "finetune":
        rate = float(f"{LORA_RATE * stage['training']['learning_rate']:.2g}")
        change["training"] = {"lora_rank": LORA_RANK, "learning_rate": rate}
    return change


def _changed(value: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Keep the keys whose values name a method with a counterpart, with its name."""
    inner = {key: _changed(one, names) for key, one in value.items() if isinstance(one, dict)}
    changed = {key: names[one] for key, one in value.items() if isinstance(one, str) and one in names}
    return {key: one for key, one in inner.items() if one} | changed
