"""Check where models come from, what those they come from say of them, and that their precision can be."""

import difflib
from collections.abc import Mapping
from pathlib import Path

from zerodr.config.methods import EncoderMethod, Method, TrainedMethod
from zerodr.config.training import InitSettings, StartSettings
from zerodr.errors import ConfigError, nearest

PATHS = ("/", "./", "../", "~")
LIKENESS = 0.6


def check_starts(methods: dict[str, Method]) -> None:
    """Raise ConfigError for the first model that does not exist, or that comes from itself."""
    for name, method in methods.items():
        if isinstance(method, EncoderMethod):
            for key in ("model", "document_model"):
                if (model := getattr(method.settings, key)) is not None:
                    check_model(f"method {name}: {key}", model, methods, is_start=False)
        elif isinstance(method, TrainedMethod) and not method.stage:
            encoder = method.settings.encoder
            check_model(f"method {name}: init", encoder.init, methods, revision=encoder.revision)
            if isinstance(encoder, InitSettings):
                check_model(f"method {name}: tokenizer", encoder.tokenizer, methods, is_start=False)
            start = start_of(encoder.init, methods)
            if start is not None and method.ranks and not methods[start[0]].ranks:
                raise ConfigError(
                    f"method {name}: init {encoder.init!r}",
                    "is a model that ranks nothing, a bi-encoder can't start from it",
                    "name a stage of a bi-encoder",
                )
            _check_circle(name, methods)


def start_of(init: str, methods: Mapping[str, Method]) -> tuple[str, str] | None:
    """Recipe and stage that `init: <recipe>/<stage>` names; None where it names none of ours."""
    method, _, stage = init.rpartition("/")
    return (method, stage) if f"{method}@{stage}" in methods else None


def init_of(method: Method) -> str:
    """Name the model that a method's training starts from; empty for methods that train none."""
    return method.settings.encoder.init if isinstance(method, TrainedMethod) else ""


def check_model(
    where: str, name: str, methods: dict[str, Method], is_start: bool = True, revision: str | None = None
) -> None:
    """Refuse an `init` that looks like a stage but is none, or like a folder that does not exist.

    Args:
        where: setting at fault.
        name: its value.
        methods: by full name, `<recipe>@<stage>` included.
        is_start: whether a recipe's stage is allowed here.
        revision: the hub's commit; with one the name is of the hub, even where a recipe is called as its organisation.

    Raises:
        ConfigError: with what to write instead.
    """
    where = f"{where} {name!r}"
    if is_start and start_of(name, methods) or Path(name).is_dir():
        return
    if name.startswith(PATHS):
        raise ConfigError(
            where,
            "is no folder",
            "give one that is there (the path starts at the project's root, and ~ is not replaced)",
        )
    if name in methods or "@" in name:
        raise ConfigError(where, *_meant(name, methods, is_start))
    recipe, slash, stage = name.rpartition("/")
    if not slash or revision is not None:
        return
    stages = _stages(recipe, methods)
    if stage in stages and not is_start:
        raise ConfigError(where, "is a model of a recipe", f"it is a method already, {recipe}@{stage}")
    if stages and stage not in stages:
        raise ConfigError(where, f"{recipe} has no stage {stage!r}", nearest(stage, stages))
    if not stages and _is_stage(stage, methods):
        recipes = [other for other in methods if f"{other}@{stage}" in methods]
        close = difflib.get_close_matches(recipe, recipes, n=3, cutoff=LIKENESS)
        if close:
            raise ConfigError(
                where,
                f"no recipe {recipe!r} has such a stage",
                f"did you mean {' or '.join(f'{other}/{stage}' for other in close)}?",
            )


def _is_stage(name: str, methods: dict[str, Method]) -> bool:
    return any(method.endswith(f"@{name}") for method in methods)


def _meant(name: str, methods: dict[str, Method], is_start: bool) -> tuple[str, str]:
    """Describe what is wrong with `<recipe>` or `<recipe>@<stage>`, and what to write."""
    recipe, at, stage = name.partition("@")
    stages = _stages(recipe, methods)
    if not at:
        what = "is a recipe, not a model" if stages else "is a recipe that trains no model"
    else:
        what = "is no model's name: recipe and stage are joined by /" if is_start else "is no folder and no hub name"
    if recipe not in methods:
        return what, nearest(recipe, {other for other in methods if "@" not in other})
    if not is_start:
        return what, f"recipes are methods already: name {name} where methods are named"
    if not stages:
        return what, "give a folder, a hub name, package:<module>, or `<recipe>/<stage>` of a trained recipe"
    return what, f"write {recipe}/{stage if stage in stages else stages[-1]}"


def _stages(recipe: str, methods: dict[str, Method]) -> list[str]:
    return [other.partition("@")[2] for other in methods if other.startswith(f"{recipe}@")]


def _check_circle(name: str, methods: dict[str, Method]) -> None:
    """Recipes don't start from one another in a circle."""
    seen = [name]
    while True:
        method = methods[seen[-1]]
        assert isinstance(method, TrainedMethod), "only trained methods have stages"
        start = start_of(method.settings.encoder.init, methods)
        if start is None:
            return
        parent = start[0]
        if parent in seen:
            raise ConfigError(
                f"method {name}: init",
                f"starts from itself: {' <- '.join([*seen, parent])}",
                "start one of them from a checkpoint or from scratch",
            )
        seen.append(parent)


SCRATCH = "scratch"
PACKAGE = "package:"  # a model that a Python package ships
OF_T5 = "decoder_first"


def encoder_of(name: str, methods: Mapping[str, Method]) -> StartSettings:
    """Give the settings of a recipe's initial model; those it leaves out come from the recipe that it starts from."""
    settings = _settings(name, methods)
    start = start_of(settings.init, methods)
    parent = None if start is None else encoder_of(start[0], methods)
    if parent is None or parent.type != settings.type:
        return settings
    return parent.model_copy(update=settings.model_dump(include=settings.model_fields_set))


def line_of(name: str, methods: Mapping[str, Method]) -> list[StartSettings]:
    """Give the initial models of a recipe and of those that it comes from, the very first one last."""
    encoder = encoder_of(name, methods)
    start = start_of(encoder.init, methods)
    return [encoder, *(line_of(start[0], methods) if start is not None else ())]


def _settings(name: str, methods: Mapping[str, Method]) -> StartSettings:
    method = methods[name]
    assert isinstance(method, TrainedMethod), "only trained methods have stages"
    return method.settings.encoder


def comes_from_t5(name: str, methods: Mapping[str, Method]) -> bool:
    """Tell whether a recipe trains a T5, which is known by `family: t5` or `pooling: decoder_first`.

    `init_model` checks the checkpoint itself.
    """
    line = [encoder for encoder in line_of(name, methods) if isinstance(encoder, InitSettings)]
    return any(
        encoder.pooling == OF_T5 or encoder.init == SCRATCH and encoder.architecture.family == "t5" for encoder in line
    )


def check_precision(name: str, method: TrainedMethod, methods: Mapping[str, Method]) -> None:
    """Refuse to train a T5 in fp16. With pooling `mean`, the first training reads the family from the checkpoint.

    Raises:
        ConfigError: names the setting.
    """
    is_t5 = comes_from_t5(name, methods)
    for stage, settings in method.settings.chain.items():
        if is_t5 and settings.optimisation is not None and settings.optimisation.precision == "fp16":
            raise ConfigError(
                f"method {name}: stage {stage}: training.precision",
                "fp16 is refused for T5: its activations pass fp16's largest number (65504), giving infinity and NaN",
                "set bf16 or fp32",
            )
