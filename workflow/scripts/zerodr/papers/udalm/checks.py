"""Check that models of stages with masked words can predict them."""

from zerodr.config.bench import Bench
from zerodr.config.methods import TrainedMethod
from zerodr.config.starts import comes_from_t5, encoder_of
from zerodr.config.training import InitSettings
from zerodr.errors import ConfigError
from zerodr.papers.udalm.settings import KEY, words_of


def check_recipe(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Raise ConfigError where a stage's masked words are for a T5, or for two towers."""
    encoder = encoder_of(name, bench.methods)
    for stage, settings in method.settings.chain.items():
        where = f"method {name}: stage {stage}: {KEY}"
        if words_of(settings) is None:
            continue
        if comes_from_t5(name, bench.methods):
            raise ConfigError(where, "is for BERT and its kin, a T5 has no token for a mask", "start from one of these")
        if isinstance(encoder, InitSettings) and encoder.towers == "separate":
            raise ConfigError(where, "teaches one network, encoder.towers are separate", "set encoder.towers: tied")
