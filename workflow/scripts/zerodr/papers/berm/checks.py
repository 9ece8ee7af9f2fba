"""Checks of units across recipes: their reader is a recipe that trains one."""

from zerodr.config.bench import Bench
from zerodr.config.chains import check_model_of_type
from zerodr.config.methods import TrainedMethod
from zerodr.papers.berm.settings import UnitKeys


def check_recipe(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Raise ConfigError where a stage's reader is none."""
    for stage, settings in method.settings.chain.items():
        keys = UnitKeys.of(settings)
        if keys is not None and keys.units is not None:
            check_model_of_type(f"method {name}: stage {stage}: reader", keys.units.reader, "reader", bench.methods)
