"""Repeat recipes with other seeds: with seed 14, `coco-dr+no-idro` is also `coco-dr-seed14+no-idro`.

A counterpart differs in its seed and in the recipes that it starts from or is made of, which are counterparts too. What
draws no random number for a recipe (corpora, BM25, teachers) is shared by all seeds, and so is a start of
`config/starts.yaml`, which is given as a checkpoint is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from zerodr.errors import ConfigError

NAMING = ("init", "source", "model", "memory", "runs", "teacher", "dam")  # keys whose values name methods
COMPOSED = ("fusion", "feedback")  # kinds of methods that are made of others
RANKING = "bi_encoder"


def seeded(name: str, seed: int) -> str:
    """Name of a method's counterpart: `dpr@ep0` with seed 14 is `dpr-seed14@ep0`."""
    recipe = re.split("[+@]", name, maxsplit=1)[0]
    return f"{recipe}-seed{seed}{name.removeprefix(recipe)}"


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
            if (name := seeded(recipe, seed)) in recipes:
                raise ConfigError(f"seeds: {seed}", f"{name} is the name of a recipe of yours", "rename one of them")
            added[name] = _labelled(_renamed(recipes[recipe], names, seed), seed) | {"seed": seed}
    return dict(recipes) | added


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
        types = {str(one) for key, one in _values(written["settings"]) if key == "type"}
        trains = written.get("kind") == "trained" and types <= {RANKING}
        for name, change in {recipe: {}, **{f"{recipe}+{key}": value for key, value in variants.items()}}.items():
            changed = change.get("settings") if isinstance(change, dict) else None
            settings = written["settings"] | (changed if isinstance(changed, dict) else {})
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
