"""Stages of a chain: what all kinds have, and the kinds that learn from judgements and from texts.

Papers add keys to these (`config.additions`) and further kinds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from zerodr.config.additions import Extensible, PaperKeys, StageKeys
from zerodr.config.base import Settings
from zerodr.config.generation import GenerateSettings
from zerodr.config.pretraining import PAIRED, PretrainSettings, SpanSettings
from zerodr.config.training import (
    LossSettings,
    NegativesSettings,
    ObjectiveSettings,
    StartSettings,
    TrainingSettings,
    check_negative_counts,
)

NOT_FOR_PRETRAINING = ("consecutive_negatives", "keep_optimizer", "dev_negatives", "lora_rank")
Scope = Literal["shared", "target"]


@dataclass(frozen=True)
class PaperSettings:
    """Additions of a paper to the configuration, as `SETTINGS` of its module `settings`.

    Attributes:
        finetune: keys of fine-tuning stages.
        pretrain: keys of pretraining stages.
        method: keys of trained methods.
        finetune_params: what its plan adds to the params of fine-tuning.
        export_params: what its plan adds to the params of exports.
        stages: kinds of stages, by name.
        encoders: types of models, by name.
        losses: names of its losses that a stage may give.
    """

    finetune: type[StageKeys] | None = None
    pretrain: type[StageKeys] | None = None
    method: type[PaperKeys] | None = None
    finetune_params: type[PaperKeys] | None = None
    export_params: type[PaperKeys] | None = None
    stages: Mapping[str, type[ChainStage]] = field(default_factory=dict)
    encoders: Mapping[str, type[StartSettings]] = field(default_factory=dict)
    losses: tuple[str, ...] = ()


class ChainStage(Extensible):
    """A stage of a chain, of any kind."""

    trains: ClassVar[tuple[str, ...]] = ("bi_encoder",)
    """Types of models that this kind trains."""
    rule: ClassVar[str] = ""
    """The rule that trains them, where it is not named as this kind."""
    kind: str
    """Kind of the stage."""
    scope: Scope = "shared"
    """`target`: one model for each target. Stages after such a stage are made for each target, too."""

    def find(self, key: str) -> Any:
        """Give the value of a key of the core or of a paper; None: the stage has no such key."""
        holders = (*reversed(self.additions.values()), self)
        return next((getattr(holder, key) for holder in holders if key in type(holder).model_fields), None)

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Corpora whose documents this stage learns from without labels, as its settings name them."""
        return tuple(corpus for keys in self.added for corpus in keys.unlabelled)

    @property
    def added(self) -> list[StageKeys]:
        """Additions of papers, the last paper's first."""
        return [keys for keys in reversed(self.additions.values()) if isinstance(keys, StageKeys)]

    @property
    def parents(self) -> dict[str, str | None]:
        """Settings that name a model that this stage starts from, and the names; None: the stage before it."""
        return {"after": self.after} if isinstance(self, FollowingStage) else {}

    @property
    def foreign(self) -> tuple[str, ...]:
        """Return the `parents` that may also be `<recipe>/<stage>`."""
        return ()

    @property
    def other_models(self) -> tuple[str, ...]:
        """Models of other recipes, `<recipe>/<stage>`, that this stage needs besides its parents."""
        return ()

    @property
    def optimisation(self) -> TrainingSettings | None:
        """Optimisation of the stage's model; None where none is trained."""
        return self.training if isinstance(self, LearningStage | PretrainStage) else None

    @property
    def save_steps(self) -> tuple[int, ...]:
        """Steps at which the model is also kept."""
        return self.training.save_steps if isinstance(self, LearningStage | PretrainStage) else ()


class LearningStage(Settings):
    """Model that learns from queries and documents: its loss and its terms."""

    objective: LossSettings
    """The loss."""
    training: TrainingSettings = TrainingSettings()
    """How it is optimised."""


class FollowingStage(ChainStage):
    """A stage that goes on from one model."""

    after: str | None = None
    """The stage whose model this one starts from, `<stage>.<step>` or `init`. None: the stage before it."""


class FinetuneStage(LearningStage, FollowingStage):
    """One fine-tuning stage of a chain. Its parent is the stage before it, or the initial model."""

    trains: ClassVar[tuple[str, ...]] = ("bi_encoder", "cross_encoder")
    extended_by: ClassVar = "finetune"
    later: ClassVar = ("generate", "keep_index")
    kind: Literal["finetune"] = "finetune"
    """Learns from the source's judgements."""
    objective: ObjectiveSettings
    """The loss."""
    negatives: NegativesSettings = NegativesSettings()
    """Source of negatives."""
    teacher: str | None = None
    """Recipe of a cross-encoder, or `<recipe>/<stage>` of one, whose scores a distillation objective follows. Or the
    fusion of two rankings that negatives come from, or `file`: the scores of `negatives.file`."""
    generate: GenerateSettings | None = None
    """Learn from queries made of the target's documents. None: from the source's queries and judgements."""
    keep_index: str | None = None
    """An encoder whose embeddings of documents stay as they are, the one that training starts from: queries alone learn
    to search them. None: documents are embedded with the trained model."""

    @model_validator(mode="after")
    def _learns(self) -> FinetuneStage:
        distils, hard = self.objective.distils, self.objective.negatives_per_query
        if distils and self.teacher is None:
            raise ValueError(f"objective {self.objective.name} follows a teacher's scores: name a `teacher`")
        if distils is False and self.teacher is not None:
            raise ValueError(f"objective {self.objective.name} reads no teacher's scores: leave `teacher` out")
        if self.objective.compares and not hard:
            name = self.objective.name
            raise ValueError(
                f"objective {name} compares a positive with hard negatives: set negatives_per_query to 1 or more"
            )
        if hard and self.negatives.source == "none":
            raise ValueError("objective.negatives_per_query needs negatives, but negatives.source is none")
        if not hard and self.negatives.source != "none":
            raise ValueError("objective.negatives_per_query 0 uses no mined negatives: set negatives.source: none")
        check_negative_counts(hard, self.negatives)
        if self.training.consecutive_negatives > 1 and hard != 1:
            raise ValueError("training.consecutive_negatives needs objective.negatives_per_query: 1")
        other = self.freezing or next(iter(self.encoding), None)
        if self.training.lora_rank is not None and (key := other or self.further):
            raise ValueError(f"training.lora_rank is for models without {key}: leave it out")
        if self.keep_index is not None and (key := other):
            raise ValueError(f"keep_index leaves documents unread, which {key} needs: leave one of them out")
        if self.generate is not None and self.scope == "shared":
            raise ValueError("generate makes queries of a target's documents: set scope: target")
        if len(changing := self.encoding) > 1:
            first, second = changing[:2]
            raise ValueError(
                f"{first} and {second} can't be in one stage: let the recipe with the {second} start from "
                f"the one with {first} (init: <recipe>/<stage>)"
            )
        return self

    @property
    def encoding(self) -> list[str]:
        """Keys of additions that change how training encodes texts; a stage has at most one."""
        return [keys.encoding for keys in self.added if keys.encoding is not None]

    @property
    def freezing(self) -> str | None:
        """Key of the addition that leaves the model's own weights as they are; None: they learn."""
        return next((keys.freezing for keys in self.added if keys.freezing is not None), None)

    @property
    def further(self) -> str | None:
        """Key of the addition that trains on further texts, which have a loss of their own; None: there is none."""
        return next((keys.further for keys in self.added if keys.further is not None), None)


class TargetChange(Settings):
    """Settings of a pretraining stage that differ for a target. None: as for the others."""

    max_tokens: int | None = Field(None, ge=4)
    """Tokens of a text."""
    batch_queries: int | None = Field(None, ge=1)
    """Documents of a batch."""
    steps: int | None = Field(None, ge=1)
    """Optimiser steps."""


class PretrainStage(FollowingStage):
    """One stage of a chain that learns from texts alone."""

    extended_by: ClassVar = "pretrain"
    later: ClassVar = ("by_target", "without")
    kind: Literal["pretrain"]
    """Learns from corpora, without queries or judgements."""
    corpora: tuple[str, ...] = Field(("source", "targets"), min_length=1)
    """`source`, `targets` (columns of the table), `target` (the one of scope: target), collections or groups. Gated
    ones that are missing are left out."""
    without: tuple[str, ...] = ()
    """Collections that are left out of these, such as one whose documents another one of them holds."""
    spans: SpanSettings | None = None
    """Learn from spans of documents; None: from whole documents, except coco and ict, which take spans as published."""
    objective: PretrainSettings
    """What is learned."""
    training: TrainingSettings = TrainingSettings()
    """How it is optimised; a batch is counted in documents."""
    max_epochs: float | None = Field(None, gt=0)
    """Fewer steps where they would go through the documents more often than this (DDR at small scales: 100)."""
    by_target: dict[str, TargetChange] | None = None
    """Collections, columns of the table or groups, and what differs where one of them is the target: lengths, batches
    and steps (DDR section 4.3)."""

    def for_target(self, names: Collection[str]) -> PretrainStage:
        """Give the settings for a target that has these names: itself, its collections, their groups."""
        changes = [
            change.model_dump(exclude_none=True) for name, change in (self.by_target or {}).items() if name in names
        ]
        values = {key: value for change in changes for key, value in change.items()}
        tokens = {key: values.pop(key) for key in ("max_tokens",) if key in values}
        training, objective = self.training.model_copy(update=values), self.objective.model_copy(update=tokens)
        return self.model_copy(update={"training": training, "objective": objective, "by_target": None})

    @model_validator(mode="after")
    def _has_texts(self) -> PretrainStage:
        if self.by_target and self.scope == "shared":
            raise ValueError("by_target changes a stage for its target, which a shared stage does not have")
        for target, change in (self.by_target or {}).items():
            if (change.batch_queries or 0) % self.training.accumulation:
                raise ValueError(
                    f"by_target.{target}.batch_queries {change.batch_queries} can't be shared equally by "
                    f"{self.training.accumulation} micro-batches (accumulation): make it a multiple of these"
                )
        if "target" in self.corpora and self.scope == "shared":
            raise ValueError("corpora names the target, which a shared stage does not have: set scope: target")
        for name in NOT_FOR_PRETRAINING:
            if getattr(self.training, name) != TrainingSettings.model_fields[name].default:
                raise ValueError(f"training.{name} is not for pretraining: leave it out")
        if self.objective.name == "simcse" and self.training.dropout == 0.0:
            raise ValueError("simcse compares a text with itself under other dropout: training.dropout must not be 0")
        return self

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """All corpora."""
        return self.corpora

    @property
    def cut(self) -> SpanSettings | None:
        """How documents are cut; None: not at all."""
        return self.spans or (SpanSettings() if self.objective.name in PAIRED else None)
