"""Add DDR to a fine-tuning stage: a relevance module in the frozen model, which alone is trained."""

from typing import Any

import numpy as np

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.papers.ddr.folders import source_of
from zerodr.papers.ddr.folding import check_folding
from zerodr.papers.ddr.modular import ModularEncoder
from zerodr.papers.ddr.settings import ModuleKeys, RemSettings
from zerodr.training.additions import Addition, PaperTraining


class RelevanceModule(Addition):
    """A relevance module in the domain module `model`. The output holds `rem`."""

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Return whether the settings have `rem`, of a shape other than full."""
        rem = _rem(params)
        return rem is not None and rem.shape != "full"

    def model(self, model: Any) -> Any:
        """Insert the relevance module into the model.

        Raises:
            ModelError: the model can't take a module, or not in the form that is asked for.
            ConfigError: it is of a family that can't.
        """
        rem = _rem(self.params)
        assert rem is not None, "it was asked for"
        if rem.fold:
            check_folding(model.contract.source, model.tower("document").transformer, rem)
        word = int(np.random.SeedSequence(self.seed).generate_state(1)[0])
        modular = ModularEncoder.of(model, rem, word, source_of(self.stage.path("model")))
        self.facts = {"rem": modular.facts()}
        return modular


def _rem(params: FinetuneParams) -> RemSettings | None:
    keys = ModuleKeys.of(params.settings)
    return None if keys is None else keys.rem


TRAINING = PaperTraining((RelevanceModule,))
