"""Make variants of recipes from words: `dpr.training.batch_queries=128,256` is two variants of dpr.

`--config 'set=[...]'` of Snakemake, `--set` of zerodr and `set:` in the user's own settings give the words.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from zerodr.config.base import Settings
from zerodr.config.counterparts import drawing, seeded
from zerodr.config.custom import recipe_file
from zerodr.config.files import read_value
from zerodr.config.layers import Layers, Start, add_remarks, merge, overlay
from zerodr.config.methods import Method, TrainedMethod
from zerodr.config.recipes import read_recipe, with_stages
from zerodr.config.stages import PretrainStage
from zerodr.errors import ConfigError, nearest

LONGEST = 80  # characters of a variant's name
UNUSUAL = re.compile(r"[^a-z0-9._-]+")
HINT = "write RECIPE.KEY=VALUE, such as dpr.training.batch_queries=256"


class Override(NamedTuple):
    """Hold the values of one setting of a method.

    Attributes:
        word: as it was typed, for messages.
        method: full name of the method that is changed.
        key: path of the setting, as it was typed.
        values: its values, each with its text.
    """

    word: str
    method: str
    key: str
    values: list[tuple[str, Any]]


def parse_overrides(words: tuple[str, ...], methods: Mapping[str, Method]) -> list[Override]:
    """Parse `("dpr.training.learning_rate=1e-5", "3e-5")`: an item without `=` is a further value of the one before.

    Raises:
        ConfigError: no method, no key or no value, or a value that is no YAML.
    """
    joined: list[str] = []
    for word in map(str, words):
        if "=" in word or not joined:
            joined.append(word)
        else:
            joined[-1] += f",{word}"
    return [_parse(word, methods) for word in joined]


def _parse(word: str, methods: Mapping[str, Method]) -> Override:
    path, equals, text = word.partition("=")
    if not equals or not text:
        raise ConfigError(f"set {word}", "gives no value", HINT)
    names = [name for name in methods if path.startswith(f"{name}.") and "@" not in name]
    if not names:
        recipe = path.partition(".")[0]
        raise ConfigError(f"set {word}", f"{recipe!r} is no method", f"{nearest(recipe, methods)}; {HINT}")
    method, listed = max(names, key=len), f"[{text}]"
    try:
        node = yaml.compose(listed, Loader=yaml.SafeLoader)
        texts = [listed[item.start_mark.index : item.end_mark.index] for item in node.value]
    except yaml.YAMLError as error:
        raise ConfigError(f"set {word}", "its value is no YAML", "put it in quotes") from error
    try:
        values = [(value, read_value(value)) for value in texts]
    except ConfigError as error:
        raise ConfigError(f"set {word}", error.what, error.next_step) from None
    return Override(word, method, path.removeprefix(f"{method}."), values)


def add_overrides(
    recipes: Mapping[str, Any],
    methods: Mapping[str, Method],
    words: tuple[str, ...],
    scale: str,
    scales: set[str],
    starts: Mapping[str, Start],
    seeds: tuple[int, ...],
    config: Path,
) -> tuple[dict[str, Any], dict[str, Method], dict[str, tuple[str, ...]]]:
    """Add a variant for each combination of the values that words give a method.

    Args:
        recipes: contents of the files, by recipe.
        methods: of these recipes, by full name.
        words: `<method>.<key>=<value>[,<value>...]`.
        scale: one of `scales`. Variants are checked there alone: other scales may have other stages.
        scales: names of all scales.
        starts: initial models by name.
        seeds: further seeds, whose counterparts are changed too.
        config: the folder of the configuration.

    Returns:
        the recipes, the methods, and the full names of the variants by the method that they change.

    Raises:
        ConfigError: an unknown method or key, or a value that does not fit.
    """
    changes: dict[str, list[Override]] = {}
    for override in parse_overrides(words, methods):
        changes.setdefault(override.method, []).append(override)
    names, every, drawn = dict(recipes), dict(methods), drawing(recipes)
    added: dict[str, tuple[str, ...]] = {}
    for method, overrides in changes.items():
        others = [seeded(method, seed) for seed in seeds] if method in drawn else []
        for name in (method, *others):
            recipe, _, variant = name.partition("+")
            file = Path(recipe_file(recipe, config))
            stages = _written_stages(file, names[recipe], variant, scale, scales, starts)
            listed = names[recipe].get("variants") or {}
            combined = list(_variants(methods[name], overrides, stages, variant))
            if twice := [key for key, count in Counter(key for key, _, _ in combined).items() if count > 1]:
                labels = " and ".join(label for key, label, _ in combined if key == twice[0])
                raise ConfigError(f"set {overrides[0].word}", f"{labels} have one name", "write a recipe for one")
            new = {
                key: {"over": [variant] if variant else [], "label": f"{methods[name].label} ({label})"}
                | {"settings": settings}
                for key, label, settings in combined
            }
            if taken := new.keys() & listed.keys():
                raise ConfigError(f"set {overrides[0].word}", f"{recipe}+{min(taken)} exists already", "name that one")
            names[recipe] = names[recipe] | {"variants": listed | new}
            try:
                read = read_recipe(file, names[recipe], scale, scales, starts)
            except ConfigError as error:  # names the recipe's file, which was read without these words
                typed = " ".join(override.word for override in overrides)
                raise ConfigError(f"set {typed}", error.what, error.next_step) from None
            every |= with_stages({full: read[full] for key in new if (full := f"{recipe}+{key}")})
            if name == method:
                added[name] = tuple(f"{recipe}+{key}" for key in new)
    return (
        names,
        every | add_remarks({k: v for k, v in every.items() if k not in methods}, starts, every),
        added,
    )


def _written_stages(
    file: Path, written: dict[str, Any], variant: str, scale: str, scales: set[str], starts: Mapping[str, Start]
) -> list[str]:
    """Name the stages of a chain as the file writes them: one with `repeat` once."""
    layers = Layers(str(file), written, scale, scales, starts)
    merged = merge([*layers.base, *(layers.of_variant(variant) if variant else ())])
    return [name for name, stage in (merged["settings"].get("chain") or {}).items() if stage is not None]


def _variants(
    method: Method, overrides: list[Override], stages: list[str], variant: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give name, label and settings of each combination; the name begins with that of the variant that changes."""
    paths_of = [_setting_paths(method, override, stages) for override in overrides]
    for chosen in product(*(override.values for override in overrides)):
        given = [(path, value) for paths, (_, value) in zip(paths_of, chosen, strict=True) for path in paths]
        cleared = [(other, None) for path, _ in given for other in _of_targets(method, path)]
        settings: dict[str, Any] = {}
        for path, value in [*cleared, *given]:
            settings = overlay(settings, _nested(path, value))
        pairs = [(override.key, text) for override, (text, _) in zip(overrides, chosen, strict=True)]
        words = [UNUSUAL.sub("-", f"{key}-{text}".lower()).strip("-") for key, text in pairs]
        name = "_".join([variant, *words] if variant else words)
        if len(name) > LONGEST:
            name = f"{name[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        yield name, ", ".join(f"{key} {text}" for key, text in pairs), settings


def _of_targets(method: Method, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Give the paths of a setting's values for some targets (`by_target`), which a value that is typed replaces."""
    if isinstance(method, TrainedMethod) and path[0] == "chain" and path[2:-1] in (("training",), ("objective",)):
        stage = method.settings.chain.get(path[1])
        changes = stage.by_target if isinstance(stage, PretrainStage) else None
        for target, change in (changes or {}).items():
            if getattr(change, path[-1], None) is not None:
                yield "chain", path[1], "by_target", target, path[-1]


def _setting_paths(method: Method, override: Override, stages: list[str]) -> list[tuple[str, ...]]:
    """Find a setting: of the method, of a named stage, or of all stages that have it.

    Raises:
        ConfigError: there is none, with the nearest.
    """
    path = tuple(override.key.removeprefix("settings.").split("."))
    known = list(method.settings.known_keys())
    if path[0] in known:
        return [path]
    if isinstance(method, TrainedMethod):
        if path[0] in stages:
            return [("chain", *path)]
        every = list(method.settings.chain)
        if path[0] in every:  # of `repeat`
            first = [name for name in every[: every.index(path[0])] if name in stages][-1]
            problem = f"{path[0]} repeats {first}, with the same settings"
            raise ConfigError(f"set {override.word}", problem, f"name {first}, or write a recipe with both stages")
        blocks = {name: stage for name, stage in method.settings.chain.items() if name in stages}
        if holding := [name for name, stage in blocks.items() if _has(stage, path)]:
            return [("chain", name, *path) for name in holding]
        known += [*stages, *(key for stage in blocks.values() for key in _keys(stage))]
    raise ConfigError(f"set {override.word}", f"{override.method} has no setting {override.key!r}", _near(path, known))


def _near(path: tuple[str, ...], known: list[str]) -> str:
    dotted = [name for name in known if name.count(".") == len(path) - 1] or known
    return nearest(".".join(path), dotted)


def _keys(settings: Settings) -> Iterator[str]:
    """Give the keys of settings and, one level down, of the settings in them."""
    for key, value in settings.by_key().items():
        yield key
        if isinstance(value, Settings):
            yield from (f"{key}.{inner}" for inner in value.known_keys())


def _has(settings: Any, path: tuple[str, ...]) -> bool:
    """Whether settings know a key path; one in a block that is null is not there."""
    if not isinstance(settings, Settings) or path[0] not in settings.known_keys():
        return False
    value = settings.by_key()[path[0]]
    if isinstance(value, dict) and path[0] in getattr(settings, "options", ()):
        return len(path) == 2  # arguments of a loss of the user's own, which its own check knows
    return len(path) == 1 or _has(value, path[1:])


def _nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    return {path[0]: _nested(path[1:], value) if len(path) > 1 else value}
