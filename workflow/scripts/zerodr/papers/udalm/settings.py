"""Settings of masked words that a fine-tuning stage learns to predict next to its loss (UDALM)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from zerodr.config.base import Settings
from zerodr.config.params import FinetuneParams
from zerodr.config.pretraining import PretrainSettings
from zerodr.config.stages import FinetuneStage, PaperSettings
from zerodr.config.training import TrainingSettings

KEY = "masked_words"


class MaskedWordsSettings(Settings):
    """Masked words of unlabelled documents, predicted in the same steps as the stage's loss (Karouzos et al. 2021).

    A step minimises (1 - weight) x the stage's loss + weight x the mean cross entropy of masked words, in nats. Curves
    show both terms with these factors.
    """

    corpora: tuple[str, ...] = Field(("target",), min_length=1)
    """`source`, `targets` (columns of the table), `target` (the one of scope: target), collections or groups. Gated
    ones that are missing are left out."""
    weight: float | None = Field(None, ge=0, lt=1)
    """Factor of masked words. None: documents / (queries + documents) of a step, as published. 0: nothing is added."""
    texts: int | None = Field(None, ge=1)
    """Documents of a step, over all processes. None: as many as queries (training.batch_queries)."""
    max_tokens: int = Field(128, ge=3)
    """Longest input, special tokens included; of a longer text a random stretch is taken."""
    mask_rate: float = Field(0.15, gt=0, lt=1)
    """Share of tokens that are predicted."""
    mask_unit: Literal["word", "token"] = "word"
    """`word`: whole words within the share of each text. `token`: each token by itself with this probability (BERT)."""

    @property
    def objective(self) -> PretrainSettings:
        """The same in pretraining."""
        same = {"max_tokens": self.max_tokens, "mask_rate": self.mask_rate, "mask_unit": self.mask_unit}
        return PretrainSettings.model_validate({"name": "mlm"} | same)

    def texts_of(self, training: TrainingSettings) -> int:
        """Count documents of a step."""
        return self.texts or training.batch_queries

    def weight_of(self, training: TrainingSettings) -> float:
        """Compute the factor of masked words: 1 - lambda, with lambda = n / (n + m)  # UDALM."""
        texts = self.texts_of(training)
        return texts / (texts + training.batch_queries) if self.weight is None else self.weight


class WordStage(FinetuneStage):
    """A fine-tuning stage that may learn masked words in the same steps."""

    masked_words: MaskedWordsSettings | None = None
    """Predict masked words of unlabelled documents in the same steps. None: the stage's loss alone."""

    @model_validator(mode="after")
    def _joins(self) -> WordStage:
        words, training = self.masked_words, self.training
        if words is None:
            return self
        if "target" in words.corpora and self.scope == "shared":
            raise ValueError(f"{KEY}.corpora names the target, which a shared stage does not have: set scope: target")
        if self.freezing is not None:
            raise ValueError(
                f"{KEY} teaches the weights that {self.freezing} leaves frozen: learn masked words in a stage of kind "
                f"pretrain before, or leave one of {KEY} and {self.freezing} out"
            )
        if words.texts_of(training) % training.accumulation:
            raise ValueError(
                f"{KEY}.texts {words.texts_of(training)} can't be shared equally by training.accumulation "
                f"{training.accumulation} micro-batches: make it a multiple"
            )
        return self

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Corpora of masked words."""
        return (*super().unlabelled, *(() if self.masked_words is None else self.masked_words.corpora))

    @property
    def further(self) -> str | None:
        """`masked_words`, where there are some."""
        return super().further if self.masked_words is None else KEY


class WordParams(FinetuneParams):
    """Params of a fine-tuning stage that may learn masked words (input `corpora`)."""

    left_out: tuple[str, ...] = ()
    """Gated collections that masked_words asks for and that are not available."""


def words_of(stage: object) -> MaskedWordsSettings | None:
    """Give the masked words of a stage; None: it has none."""
    return stage.masked_words if isinstance(stage, WordStage) else None


SETTINGS = PaperSettings(extensions=(WordStage, WordParams))
