"""Follow recipes to the models that they start from, and check that their stages can train these."""

from __future__ import annotations

from collections.abc import Mapping

from zerodr.config.methods import Method, TrainedMethod
from zerodr.config.starts import start_of
from zerodr.config.trained import AssembleStage, MemoryStage
from zerodr.config.training import InitSettings, TrainingSettings
from zerodr.errors import ConfigError

SCRATCH = "scratch"
OF_T5 = "decoder_first"


def encoder_of(name: str, methods: Mapping[str, Method]) -> InitSettings:
    """Give the settings of a recipe's initial model; those it leaves out come from the recipe that it starts from."""
    settings = _settings(name, methods)
    start = start_of(settings.init, methods)
    if start is None:
        return settings
    changes = settings.model_dump(include=settings.model_fields_set)
    return encoder_of(start[0], methods).model_copy(update=changes)


def line_of(name: str, methods: Mapping[str, Method]) -> list[InitSettings]:
    """Give the initial models of a recipe and of those that it comes from, the very first one last."""
    encoder = encoder_of(name, methods)
    start = start_of(encoder.init, methods)
    return [encoder, *(line_of(start[0], methods) if start is not None else ())]


def _settings(name: str, methods: Mapping[str, Method]) -> InitSettings:
    method = methods[name]
    assert isinstance(method, TrainedMethod), "only trained methods have stages"
    return method.settings.encoder


def check_family(name: str, method: TrainedMethod, methods: Mapping[str, Method]) -> None:
    """What a recipe starts from can be trained as its stages ask: fused queries need a T5, which needs no fp16.

    A T5 is known by `family: t5`, or by `pooling: decoder_first`, without which a stage keeps no decoder to fuse in.
    Whether a checkpoint is one is looked at by `init_model`, and by the first training where its pooling is `mean`.

    Raises:
        ConfigError: it can't.
    """
    line = line_of(name, methods)
    others = [encoder for encoder in line if encoder.pooling != OF_T5]
    is_t5 = len(others) < len(line) or line[-1].init == SCRATCH and line[-1].architecture.family == "t5"
    for stage, settings in method.settings.chain.items():
        where = f"method {name}: stage {stage}"
        if isinstance(settings, MemoryStage) and others:
            raise ConfigError(
                where,
                f"fuses queries with documents in a T5's decoder, which init {line[0].init!r} has "
                f"not (pooling: {others[0].pooling}, expected {OF_T5})",
                "start from such a model, as t5-ance/ep0 is",
            )
        if isinstance(settings, MemoryStage) and line[0].towers != "tied":
            raise ConfigError(
                where,
                "fuses queries with documents in one network, towers are separate",
                "start from a T5 with towers: tied",
            )
        for key, training in _trainings(settings).items():
            if training.precision == "fp16" and is_t5:
                raise ConfigError(
                    f"{where}: {key}.precision",
                    "fp16 is refused for T5: its activations pass fp16's "
                    "largest number (65504), giving infinity and NaN",
                    "set bf16 or fp32",
                )


def _trainings(stage: object) -> dict[str, TrainingSettings]:
    """How a stage's models are optimised, by key."""
    if isinstance(stage, AssembleStage):
        return {}
    trainings = {"training": stage.training}  # type: ignore[attr-defined]
    if isinstance(stage, MemoryStage) and stage.augmenter.training is not None:
        trainings["augmenter.training"] = stage.augmenter.training
    return trainings
