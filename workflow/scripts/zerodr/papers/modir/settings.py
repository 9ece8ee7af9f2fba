"""Settings of adversarial adaptation to a target (MoDIR)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from zerodr.config.additions import PaperKeys, StageKeys
from zerodr.config.base import Settings
from zerodr.config.stages import PaperSettings
from zerodr.config.training import JoinedTexts

OFFICIAL_CLAMP, OFFICIAL_RESTART, OFFICIAL_GRADIENT_NORM = 5.0, 100, 1.0
TargetQueries = Literal["test", "train", "unlabelled", "none"]


class AdversarySettings(Settings):
    """A domain classifier that the encoder learns to confuse (MoDIR section 3).

    The classifier's learning rate follows the schedule of the stage, an update of the encoder at a time.
    """

    retired: ClassVar = dict.fromkeys(("logit_clamp", "queue_unit", "order"))
    mode: Literal["paper", "official"] = "paper"
    """`official`: queue, order of the target's texts, logits and clipped gradients as in the released code."""
    loss: Literal["confusion", "minimax", "gan"] = "confusion"
    """What the encoder minimises."""
    weight: float = Field(1.0, ge=0)
    """lambda at the first step."""
    half_life_steps: float = Field(10000, gt=0)
    """Steps in which lambda halves."""
    queue_length: int = Field(1000, ge=1)
    """n: batches whose embeddings the classifier learns from. 1: the current one alone."""
    updates: int = Field(20, ge=1)
    """U: updates of the classifier in a step."""
    minibatch: int | None = Field(None, ge=1)
    """paper: embeddings of each group (queries and documents of both domains) in an update. None: those of the queue
    shared out to the updates, so that a step reads all of it (eq. 6), and a batch at least. In mode official an update
    reads queue_length / updates batches, whatever their size."""
    learning_rate: float = Field(5e-6, gt=0)
    """Of the classifier."""
    optimizer: Literal["adamw", "lamb"] = "lamb"
    """Of the classifier, without weight decay."""
    oracle_steps: int | None = Field(None, ge=1)
    """Train the classifier to convergence on the queue every so many steps, instead of by updates."""
    l2: float = Field(1e-3, gt=0)
    """Penalty of the converged classifier (oracle_steps)."""
    queries: TargetQueries = "test"
    """The target's queries. `test`: those of the evaluated split, without labels (as published; transductive).
    `unlabelled`: those that no split judges, and those that the archive keeps apart (MLQuestions). `none`: documents
    alone."""
    restart_steps: int | None = Field(None, ge=0)
    """Steps after which the target's texts begin anew; 0: never. None: 100 in mode official, never in paper."""
    largest_loss: float = Field(20.0, gt=0)
    """The classifier counts as diverged when its loss passes this."""

    @property
    def official(self) -> bool:
        """Whether the queue counts micro-batches and the target's texts come in file order, as in the released code."""
        return self.mode == "official"

    @property
    def clamp(self) -> float | None:
        """Bound of logits, outside of which no gradient passes, or None."""
        return OFFICIAL_CLAMP if self.official else None

    @property
    def batches_per_update(self) -> int:
        """Batches of the queue that an update reads in mode official, as in MoDIR's released code."""
        return max(1, self.queue_length // self.updates)

    @property
    def gradient_limit(self) -> float | None:
        """Largest norm of the classifier's gradient at an update, or None."""
        return OFFICIAL_GRADIENT_NORM if self.official else None

    @property
    def restart(self) -> int:
        """Steps after which the target's texts begin anew; 0: never."""
        if self.restart_steps is not None:
            return self.restart_steps
        return OFFICIAL_RESTART if self.official else 0

    @model_validator(mode="after")
    def _possible(self) -> AdversarySettings:
        if self.oracle_steps is None and self.l2 != type(self).model_fields["l2"].default:
            raise ValueError("l2 is for oracle_steps, which is not set")
        if self.official and self.minibatch is not None:
            raise ValueError("mode official reads queue_length / updates batches in an update: leave minibatch out")
        if self.official and self.queue_length > self.updates and self.queue_length % self.updates:
            raise ValueError(
                f"mode official reads queue_length / updates batches in an update: {self.queue_length} is no "
                f"multiple of {self.updates}"
            )
        unused = [
            name
            for name in ("updates", "minibatch", "learning_rate", "optimizer")
            if self.oracle_steps and getattr(self, name) != type(self).model_fields[name].default
        ]
        if unused:
            raise ValueError(
                f"{unused[0]} is for a classifier that learns by updates, oracle_steps trains it to the end"
            )
        return self


class TargetTexts(JoinedTexts):
    """How one collection of a target is read."""

    split: str | None = None
    """Split whose queries are taken; None: the queries that no split judges, or none."""


class AdversaryKeys(StageKeys):
    """Keys of a fine-tuning stage that adapts to a target (MoDIR)."""

    encoding: ClassVar = "adversary"  # texts of both domains are encoded together
    adversary: AdversarySettings
    """Adapts the encoder to a target; needs scope: target."""

    def check(self, owner: Any) -> None:
        """Refuse a stage without a target."""
        if owner.scope == "shared":
            raise ValueError("adversary adapts to a target, which a shared stage does not have: set scope: target")


class TargetKeys(PaperKeys):
    """Params of a stage that adapts to a target (input `targets`)."""

    targets: dict[str, TargetTexts]
    """How the target's collections are read, by name."""
    continue_classifier: bool = False
    """Go on with the parent's domain classifier."""


def adversary_of(stage: object) -> AdversarySettings | None:
    """How a stage adapts to a target; None: it does not."""
    keys = AdversaryKeys.of(stage)
    return None if keys is None else keys.adversary


SETTINGS = PaperSettings(finetune=AdversaryKeys, finetune_params=TargetKeys)
