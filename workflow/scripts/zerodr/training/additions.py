"""Protocol of a paper's additions to a fine-tuning stage, over whose implementations `finetune` folds.

A paper registers its additions as `TRAINING` of its module `training`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.errors import ConfigError
from zerodr.papers import modules
from zerodr.training.data.examples import Examples
from zerodr.training.kinds import ModelKind
from zerodr.training.loop.engine import Batches
from zerodr.training.loop.gradcache import Forward
from zerodr.training.objectives.base import Objective
from zerodr.training.optimizers import Schedule


class Prepared(NamedTuple):
    """What an objective may need to know of the training that it is for.

    Attributes:
        model: the network, on its device.
        examples: the mined queries; rows: those that are trained on.
        schedule: of the learning rate.
    """

    model: Any
    examples: Examples
    rows: np.ndarray
    schedule: Schedule


class Addition:
    """Base of additions. A hook returns what it was given, unless the paper changes it.

    Hooks are called in the order in which they stand here, `prepare` once, the others once in each process.

    Args:
        stage: the stage, with its inputs.
        params: its params.

    Attributes:
        facts: for lineage.
    """

    def __init__(self, stage: Stage, params: FinetuneParams) -> None:
        self.stage, self.params = stage, params
        self.facts: dict[str, Any] = {}

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Whether the settings ask for it.

        Raises:
            ConfigError: settings and inputs don't go together.
        """
        raise NotImplementedError

    @property
    def seed(self) -> list[int]:
        """Words that every random choice of the stage comes from."""
        return [self.stage.seed, self.params.schedule.stage_index]

    def prepare(self) -> None:
        """Write to the stage's state what all processes read, before they start."""

    def kind(self, kind: ModelKind) -> ModelKind:
        """How the model is loaded, run and evaluated."""
        return kind

    def model(self, model: Any) -> Any:
        """The network, before it goes to its device."""
        return model

    def examples(self, examples: Examples, model: Any) -> Examples:
        """The mined queries."""
        return examples

    def forward(self, forward: Forward) -> Forward:
        """How training encodes."""
        return forward

    def batches(self, batches: Batches) -> Batches:
        """The batches of each step."""
        return batches

    def objective(self, objective: Objective, prepared: Prepared) -> Objective:
        """What is minimised."""
        return objective


def together(stage: Stage, key: str, given: bool, *inputs: str) -> bool:
    """Check whether an addition is asked for: settings that need inputs come with all of them, others with none.

    Raises:
        ConfigError: they don't.
    """
    present = [name for name in inputs if name in stage.spec.inputs]
    if present != (list(inputs) if given else []):
        raise ConfigError(
            stage.spec.name(),
            f"params.settings.{key} and the input{'s' * (len(inputs) > 1)} {' and '.join(f'`{n}`' for n in inputs)} go "
            f"together, found {'' if given else 'no '}params.settings.{key} and the inputs {present}",
            "give all of them or none",
        )
    return given


@dataclass(frozen=True)
class PaperTraining:
    """What a paper adds to training.

    Attributes:
        additions: to fine-tuning stages.
        objectives: makers of objectives, by the name in their settings.
        kinds: kinds of models, by the type in their settings.
    """

    additions: tuple[type[Addition], ...] = ()
    objectives: Mapping[str, Callable[[Any], Objective]] = field(default_factory=dict)
    kinds: Mapping[str, ModelKind] = field(default_factory=dict)


def papers() -> list[PaperTraining]:
    """List what all papers add, in their order."""
    return [module.TRAINING for module in modules("training")]


def additions_of(stage: Stage, params: FinetuneParams, core: Sequence[type[Addition]] = ()) -> list[Addition]:
    """Make the additions that a stage's settings ask for: those of the core, then the papers' in their order."""
    every = [*core, *(addition for paper in papers() for addition in paper.additions)]
    return [addition(stage, params) for addition in every if addition.asked(stage, params)]
