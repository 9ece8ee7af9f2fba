"""Follow recipes to the models that they start from, and check that their stages can train these."""

from collections.abc import Mapping

from zerodr.config.methods import Method, TrainedMethod
from zerodr.config.starts import start_of
from zerodr.config.training import InitSettings, StartSettings
from zerodr.errors import ConfigError

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

    Whether a checkpoint is one is looked at by `init_model`.
    """
    line = [encoder for encoder in line_of(name, methods) if isinstance(encoder, InitSettings)]
    return any(
        encoder.pooling == OF_T5 or encoder.init == SCRATCH and encoder.architecture.family == "t5" for encoder in line
    )


def check_precision(name: str, method: TrainedMethod, methods: Mapping[str, Method]) -> None:
    """A T5 is not trained in fp16. A checkpoint of pooling `mean` is looked at by the first training.

    Raises:
        ConfigError: names the setting.
    """
    is_t5 = comes_from_t5(name, methods)
    for stage, settings in method.settings.chain.items():
        for key, training in settings.trainings.items():
            if training.precision == "fp16" and is_t5:
                raise ConfigError(
                    f"method {name}: stage {stage}: {key}.precision",
                    "fp16 is refused for T5: its activations pass fp16's "
                    "largest number (65504), giving infinity and NaN",
                    "set bf16 or fp32",
                )
