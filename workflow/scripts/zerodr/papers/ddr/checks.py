"""Check relevance modules across a chain: a stage that takes one up comes after one that trained it."""

from zerodr.config.bench import Bench
from zerodr.config.chains import stages_before
from zerodr.config.methods import TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.stages import ChainStage
from zerodr.errors import ConfigError
from zerodr.papers.ddr.settings import AssembleStage, ModuleKeys


def check_recipe(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Raise ConfigError where an assembly, or `rem.go_on`, names a stage without a relevance module."""
    chain = method.settings.chain
    for stage, settings in chain.items():
        where, possible = f"method {name}: stage {stage}", stages_before(chain, stage)
        if isinstance(settings, AssembleStage) and not _has_rem(possible[settings.rem]):
            raise ConfigError(
                f"{where}: rem {settings.rem!r}",
                "was not trained with `rem`, there is no module to take",
                "name a finetune stage with rem, of a shape other than full",
            )
        keys = ModuleKeys.of(settings)
        if keys is not None and keys.rem.go_on:
            before = settings.parents["after"] or [INIT, *chain][list(chain).index(stage)]
            if not _has_rem(possible[before]):
                raise ConfigError(
                    f"{where}: rem.go_on", f"stage {before} was not trained with `rem`", "leave go_on out"
                )


def _has_rem(stage: ChainStage | None) -> bool:
    keys = ModuleKeys.of(stage)
    return keys is not None and keys.rem.shape != "full"
