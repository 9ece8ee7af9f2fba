"""Check assemblies across a chain: the relevance module that they take is that of a stage that trained one."""

from zerodr.config.bench import Bench
from zerodr.config.chains import stages_before
from zerodr.config.methods import TrainedMethod
from zerodr.config.stages import ChainStage
from zerodr.errors import ConfigError
from zerodr.papers.ddr.settings import AssembleStage, ModuleKeys


def check_recipe(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Raise ConfigError where an assembly names a stage without a relevance module."""
    chain = method.settings.chain
    for stage, settings in chain.items():
        where, possible = f"method {name}: stage {stage}", stages_before(chain, stage)
        if isinstance(settings, AssembleStage) and not _has_rem(possible[settings.rem]):
            raise ConfigError(
                f"{where}: rem {settings.rem!r}",
                "was not trained with `rem`, there is no module to take",
                "name a finetune stage with rem, of a shape other than full",
            )


def _has_rem(stage: ChainStage | None) -> bool:
    keys = ModuleKeys.of(stage)
    return keys is not None and keys.rem.shape != "full"
