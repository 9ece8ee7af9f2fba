"""Settings of masked words that a fine-tuning stage learns to predict next to its loss (UDALM)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from zerodr.config.additions import PaperKeys, StageKeys
from zerodr.config.base import Settings
from zerodr.config.pretraining import PretrainSettings
from zerodr.config.stages import PaperSettings
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


class WordKeys(StageKeys):
    """Keys of a fine-tuning stage that learns masked words in the same steps (UDALM)."""

    further: ClassVar = KEY
    masked_words: MaskedWordsSettings
    """Predict masked words of unlabelled documents in the same steps. None: the stage's loss alone."""

    def check(self, owner: Any) -> None:
        """Refuse a target where there is none, frozen weights, and documents that micro-batches can't share."""
        words, training = self.masked_words, owner.training
        if "target" in words.corpora and owner.scope == "shared":
            raise ValueError(f"{KEY}.corpora names the target, which a shared stage does not have: set scope: target")
        if owner.freezing is not None:
            raise ValueError(
                f"{KEY} teaches the weights that {owner.freezing} leaves frozen: learn masked words in a stage of kind "
                f"pretrain before, or leave one of {KEY} and {owner.freezing} out"
            )
        if words.texts_of(training) % training.accumulation:
            raise ValueError(
                f"{KEY}.texts {words.texts_of(training)} can't be shared equally by training.accumulation "
                f"{training.accumulation} micro-batches: make it a multiple"
            )

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Corpora of masked words."""
        return self.masked_words.corpora


class GatedKeys(PaperKeys):
    """Params of a stage that learns masked words (input `corpora`)."""

    left_out: tuple[str, ...]
    """Gated collections that masked_words asks for and that are not available."""


def words_of(stage: object) -> MaskedWordsSettings | None:
    """Give the masked words of a stage; None: it has none."""
    keys = WordKeys.of(stage)
    return None if keys is None else keys.masked_words


SETTINGS = PaperSettings(finetune=WordKeys, finetune_params=GatedKeys)
