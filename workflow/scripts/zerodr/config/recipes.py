"""From `config/methods/*.yaml` to methods by full name: scales, variants, chains.

A recipe's settings are the published ones. `scales:` names what a scale changes, `variants:` what an ablation changes;
both are laid over the settings key by key, first the scale's, then the variant's, then the variant's for the scale.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zerodr.config.base import mapping, validate
from zerodr.config.files import known, read_yaml
from zerodr.config.methods import METHOD_KINDS, Change, Method, TrainedMethod, Variant
from zerodr.config.trained import STAGE_KINDS
from zerodr.errors import ConfigError, nearest

INIT = "init"


def load_methods(folder: Path, scale: str, scales: set[str]) -> dict[str, Method]:
    """All recipes of a folder with their variants and the stages of their chains, by full name.

    What they are at the other scales is read, too, so that a mistake there is told by every command.

    Args:
        folder: with one YAML file a recipe.
        scale: the chosen scale.
        scales: every scale there is.

    Raises:
        ConfigError: names file, key, value and the nearest known name.
    """
    methods: dict[str, Method] = {}
    _check_files(folder)
    for path in sorted(folder.glob("*.yaml")):
        written = mapping(read_yaml(path), f"config/methods/{path.name}")
        made = read_recipe(path, written, scale, scales)
        for other in sorted(scales - {scale}):
            read_recipe(path, written, other, scales)
        for name, method in made.items():
            methods[name] = method
            if isinstance(method, TrainedMethod):
                methods |= stages_of(name, method)
    return methods


def _check_files(folder: Path) -> None:
    for path in sorted(folder.glob("*.yml")):
        raise ConfigError(
            f"config/methods/{path.name}", "is no recipe, their files end in .yaml", f"rename it to {path.stem}.yaml"
        )
    for path in sorted(folder.glob("*.yaml")):
        if {"+", "@"} & set(path.stem):
            raise ConfigError(
                f"config/methods/{path.name}",
                "+ is for variants and @ for stages: a recipe has none of them in its name",
                "rename it",
            )


def read_recipe(path: Path, written: dict[str, Any], scale: str, scales: set[str]) -> dict[str, Method]:
    """The recipe of a file and its variants at a scale.

    Args:
        path: of the file.
        written: what it holds.
        scale: one of `scales`.
        scales: every scale there is.
    """
    where, written = f"config/methods/{path.name}", dict(written)
    variants = mapping(written.pop("variants", None), f"{where}: variants")
    kind = known(f"{where}: kind", str(written.get("kind")), METHOD_KINDS)
    at_scale = _of_scale(written.pop("scales", None), scale, scales, where)
    base = apply(written, at_scale)
    made = {path.stem: _method(kind, base, f"{where} at scale {scale}")}
    for name, change in variants.items():
        place = f"{where}: variants.{name}"
        variant = validate(Variant, change, place)
        named = variant.model_copy(update={"label": variant.label or f"{written.get('label')} ({name})"})
        full = apply(apply(base, named), _of_scale(variant.scales, scale, scales, place))
        made[f"{path.stem}+{name}"] = _method(kind, full, f"{place} at scale {scale}")
    return made


def apply(recipe: dict[str, Any], change: Change) -> dict[str, Any]:
    """The recipe with a change laid over it."""
    told = {key: value for key, value in (("label", change.label), ("remark", change.remark)) if value is not None}
    return recipe | told | {"settings": overlay(mapping(recipe.get("settings"), "settings"), change.settings)}


def overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`below` with the keys of `above`; mappings are joined key by key, all else is replaced."""
    joined = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(joined.get(key), dict):
            value = overlay(joined[key], value)
        joined[key] = value
    return joined


def _of_scale(changes: Any, scale: str, scales: set[str], where: str) -> Change:
    changes = mapping(changes, f"{where}: scales")
    for name in changes:
        known(f"{where}: scales", name, scales)
    return validate(Change, mapping(changes.get(scale), where), f"{where}: scales.{scale}")


def _method(kind: type, value: dict[str, Any], where: str) -> Method:
    if kind is TrainedMethod:
        settings = mapping(value["settings"], f"{where}: settings")
        chain = unfold(settings.get("chain"), where)
        value = value | {"settings": settings | {"chain": chain}}
    return validate(kind, value, where)


def unfold(chain: Any, where: str) -> dict[str, Any]:
    """The chain with `like: <stage>` replaced by that stage's settings and `ep1` with `repeat: 3` by ep1, ep2, ep3.

    Stages that are null are left out.
    """
    whole: dict[str, Any] = {}
    for name, stage in mapping(chain, f"{where}: settings.chain").items():
        if stage is None:
            continue
        place = f"{where}: settings.chain.{name}"
        stage = dict(mapping(stage, place))
        like = stage.pop("like", None)
        if like is not None and (not isinstance(like, str) or like not in whole):
            raise ConfigError(place, f"is like {like!r}, which is no stage before it", nearest(str(like), whole))
        stage = overlay(whole[like], stage) if like is not None else stage
        known(f"{place}: kind", str(stage.get("kind", STAGE_KINDS[0])), STAGE_KINDS)
        for repeated in _repeated(name, stage.pop("repeat", 1), place):
            if repeated in whole:
                raise ConfigError(place, f"makes stage {repeated} twice", "rename it, or repeat the other less")
            whole[repeated] = stage
    return whole


def _repeated(name: str, times: Any, where: str) -> list[str]:
    stem = name.rstrip("0123456789")
    if type(times) is not int or times < 1 or times > 1 and stem == name:
        raise ConfigError(
            where,
            f"repeat: {times!r}, expected a number from 1, on a stage whose name ends in a number",
            "write `ep1: {repeat: 3, ...}`",
        )
    return [name] if times == 1 else [f"{stem}{int(name[len(stem) :]) + more}" for more in range(times)]


def stages_of(name: str, method: TrainedMethod) -> dict[str, TrainedMethod]:
    """`<name>@<stage>` for every model on the way, the initial one and kept steps (`<stage>.<step>`) included."""
    stages = [INIT]
    for stage, settings in method.settings.chain.items():
        stages += [f"{stage}.{step}" for step in settings.save_steps]
        stages.append(stage)
    return {
        f"{name}@{stage}": method.model_copy(update={"label": f"{method.label} @{stage}", "stage": stage})
        for stage in stages
    }
