"""Load `config/methods/*.yaml` as methods by full name: layers merged, chains unfolded, stages named.

A recipe's settings are those of scale `paper`. `scales:` names what a scale changes, `variants:` what an ablation does.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zerodr.config.base import mapping, validate
from zerodr.config.custom import custom_files, recipe_file
from zerodr.config.files import known, read_yaml, yaml_files
from zerodr.config.layers import Layers, Start, add_remarks, merge, overlay
from zerodr.config.methods import Like, Method, TrainedMethod
from zerodr.config.starts import init_of
from zerodr.config.trained import ENCODERS, STAGE_KINDS
from zerodr.errors import ConfigError, nearest

INIT = "init"


def load_methods(
    folder: Path,
    scale: str,
    scales: set[str],
    starts: Mapping[str, Start] | None = None,
    recipes: Mapping[str, Any] | None = None,
) -> dict[str, Method]:
    """Load all recipes of a folder with their variants and the stages of their chains, by full name.

    Recipes are checked at the other scales too, so that every command reports a mistake there.

    Args:
        folder: with one YAML file a recipe.
        scale: the chosen scale.
        scales: names of all scales.
        starts: initial models by name.
        recipes: what the files hold, by recipe. None: it is read.

    Raises:
        ConfigError: names file, key, value and the nearest known name.
    """
    methods: dict[str, Method] = {}
    for recipe, written in (read_files(folder) if recipes is None else recipes).items():
        path = Path(recipe_file(recipe, folder.parent))
        chosen_first = sorted(scales, key=lambda one: (one != scale, one))
        at_scales = {s: read_recipe(path, written, s, scales, starts or {}) for s in chosen_first}
        methods |= with_stages(at_scales[scale])
    return add_remarks(methods, starts or {})


def with_stages(methods: Mapping[str, Method]) -> dict[str, Method]:
    """Add the models of trained methods' chains, each after its method."""
    every: dict[str, Method] = {}
    for name, method in methods.items():
        every[name] = method
        if isinstance(method, TrainedMethod):
            every |= stages_of(name, method)
    return every


def read_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the files of a folder and the user's own recipes, by recipe; `like: <recipe>` is replaced by that one.

    Raises:
        ConfigError: names the file.
    """
    shipped = yaml_files(folder, "config/methods", "recipe")
    files = {f"config/methods/{path.name}": mapping(read_yaml(path), f"config/methods/{path.name}") for path in shipped}
    recipes, sources = dict[str, dict[str, Any]](), dict[str, str]()
    for where, written in {**files, **custom_files(folder.parent, "recipe")}.items():
        name = Path(where).stem
        if {"+", "@"} & set(name):
            problem = "+ is for variants and @ for stages: a recipe has none of them in its name"
            raise ConfigError(where, problem, "rename it")
        if name in recipes:
            raise ConfigError(where, f"{sources[name]} is a recipe of that name, too", "rename it")
        recipes[name], sources[name] = written, where
    return {name: _inherited(name, recipes, sources) for name in recipes}


def _inherited(
    name: str, recipes: Mapping[str, dict[str, Any]], sources: Mapping[str, str], seen: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Give what a recipe holds: of `like: dpr` all of dpr but its variants, and `changes`, layers over it."""
    written, where = recipes[name], sources[name]
    if "like" not in written:
        return written
    like = validate(Like, written, where)
    recipe, plus, _ = like.like.partition("+")
    if plus and recipe in recipes:
        step = f"write like: {recipe}, and what zerodr recipe {like.like} --diff {recipe} shows below settings:"
        raise ConfigError(f"{where}: like", f"{like.like} is a variant, expected a recipe", step)
    known(f"{where}: like: recipe", like.like, recipes)
    if like.like in (*seen, name):
        raise ConfigError(where, f"is like {like.like}, which is like it", "name a recipe with a `kind`")
    base = _inherited(like.like, recipes, sources, (*seen, name))
    about = like.model_dump(exclude_unset=True, include={"description", "read_under", "seed", "variants"})
    change: dict[str, Any] = {"name": like.like, "remark": like.remark, "start": like.start}
    change |= {"settings": like.settings, "scales": like.scales}
    inherited = {key: value for key, value in base.items() if key != "variants"} | about
    return inherited | {"label": like.label or name, "changes": [*base.get("changes", []), change]}


def read_recipe(
    path: Path, written: dict[str, Any], scale: str, scales: set[str], starts: Mapping[str, Start]
) -> dict[str, Method]:
    """Read the recipe of a file and its variants at a scale.

    Args:
        path: of the file.
        written: its content.
        scale: one of `scales`.
        scales: names of all scales.
        starts: initial models by name.

    Raises:
        ConfigError: names file, key, value and the nearest known name.
    """
    layers = Layers(str(path), written, scale, scales, starts)
    base = merge(layers.base)
    methods = {path.stem: _method(layers, base, layers.where)}
    for variant in layers.variants:
        merged = merge(layers.of_variant(variant), base)
        methods[f"{path.stem}+{variant}"] = _method(layers, merged, f"{layers.where}: variants.{variant}")
    return methods


def _method(layers: Layers, value: dict[str, Any], where: str) -> Method:
    where = f"{where} at scale {layers.scale}"
    settings = value["settings"]
    if layers.kind is TrainedMethod:
        encoder = mapping(settings.get("encoder"), f"{where}: settings.encoder")
        known(f"{where}: settings.encoder.type", str(encoder.get("type", next(iter(ENCODERS)))), ENCODERS)
        settings = settings | {"chain": unfold(settings.get("chain"), where)}
    method: Method = validate(layers.kind, value | {"settings": settings}, where)
    start = value.get("start")
    if start and init_of(method) != layers.starts[start].encoder.init:
        return method.model_copy(update={"start": ""})  # a layer above starts from another model
    return method


def unfold(chain: Any, where: str) -> dict[str, Any]:
    """Replace `like: <stage>` by that stage's settings, and `ep1` with `repeat: 3` by ep1, ep2 and ep3.

    Stages that are null are left out.
    """
    whole: dict[str, Any] = {}
    for name, stage in mapping(chain, f"{where}: settings.chain").items():
        if stage is None:
            continue
        here = f"{where}: settings.chain.{name}"
        stage = dict(mapping(stage, here))
        like = stage.pop("like", None)
        if like is not None and (not isinstance(like, str) or like not in whole):
            raise ConfigError(here, f"is like {like!r}, which is no stage before it", nearest(str(like), whole))
        stage = overlay(whole[like], stage) if like is not None else stage
        known(f"{here}: kind", str(stage.get("kind", STAGE_KINDS[0])), STAGE_KINDS)
        for repeated in _repeated(name, stage.pop("repeat", 1), here):
            if repeated in whole:
                raise ConfigError(here, f"gives stage {repeated} a second time", "rename it, or repeat the other less")
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
    """Name the models of a chain `<name>@<stage>`, with the initial one and saved steps (`<stage>.<step>`)."""
    stages = [INIT]
    for stage, settings in method.settings.chain.items():
        stages += [f"{stage}.{step}" for step in settings.save_steps]
        stages.append(stage)
    return {
        f"{name}@{stage}": method.model_copy(update={"label": f"{method.label} @{stage}", "stage": stage})
        for stage in stages
    }
