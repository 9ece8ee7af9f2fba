"""Checks of units across recipes: their reader is a recipe that trains one."""

from zerodr.config.bench import Bench
from zerodr.config.chains import check_model_of_type
from zerodr.config.methods import TrainedMethod
from zerodr.papers.berm.settings import UnitStage


def check_recipe(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Raise ConfigError where a stage's reader is none."""
    for stage, settings in method.settings.chain.items():
        if isinstance(settings, UnitStage) and settings.units is not None:
            check_model_of_type(f"method {name}: stage {stage}: reader", settings.units.reader, "reader", bench.methods)
