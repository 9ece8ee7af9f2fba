"""Sizes of a rehearsal: the jobs of a run with their networks, lengths and batches, but few steps and documents."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from zerodr.config.base import Settings

STEPS, TRAINING = "steps", {"steps", "learning_rate"}  # keys of the settings of a training


class Rehearsal(Settings):
    """What a job of a rehearsal does of its work: part of its identity, so that no run takes its results over."""

    steps: int = Field(4, ge=1)
    """Steps of a training."""
    documents: int = Field(1600, ge=1)
    """First documents of a collection, next to the judged ones of its questions: a batch of COCO-DR's pretraining."""
    questions: int = Field(8, ge=1)
    """First judged questions of a split."""
    training_questions: int = Field(2560, ge=1)
    """The same of a collection that a method learns from: its largest batch, and those that are held out."""
    judged: int = Field(20, ge=1)
    """Judged documents of a question."""
    generated: int = Field(200, ge=1)
    """Questions that a language model writes."""

    def shorten(self, params: Any, count: str = "") -> Any:
        """Copy the params of a stage with fewer steps in each training; `count` is the key of questions to write.

        >>> Rehearsal().shorten({"settings": {"training": {"steps": 50000, "learning_rate": 0.1, "warmup_steps": 9}}})
        {'settings': {'training': {'steps': 4, 'learning_rate': 0.1, 'warmup_steps': 9}}}
        """
        if not isinstance(params, dict):
            return params
        values = {key: self.shorten(value) for key, value in params.items()}
        if TRAINING <= params.keys():
            values[STEPS] = min(values[STEPS], self.steps)
        if count in values:
            values[count] = min(values[count], self.generated)
        return values
