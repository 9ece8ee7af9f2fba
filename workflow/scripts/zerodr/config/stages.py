"""Stages of a chain: what all kinds have, and the kinds that learn from judgements and from texts.

Papers add fields to these classes and further kinds (zerodr.papers); `config.trained` joins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

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

DISTILLATION = ("margin_mse", "kl")
NOT_FOR_PRETRAINING = ("bucket_batches", "keep_optimizer", "dev_negatives")
Scope = Literal["shared", "target"]


@dataclass(frozen=True)
class PaperSettings:
    """Additions of a paper to the configuration, as `SETTINGS` of its module `settings`.

    Attributes:
        extensions: subclasses of a core class, whose fields and checks join that class.
        stages: kinds of stages, by name.
        encoders: types of models, by name.
    """

    extensions: tuple[type[Settings], ...] = ()
    stages: Mapping[str, type[ChainStage]] = field(default_factory=dict)
    encoders: Mapping[str, type[StartSettings]] = field(default_factory=dict)


class ChainStage(Settings):
    """A stage of a chain, of any kind."""

    added: ClassVar[frozenset[str]] = frozenset()
    """Fields that papers add to this kind."""
    optional: ClassVar[frozenset[str]] = frozenset()
    """Further fields that are no part of a stage's identity where they are None."""
    trains: ClassVar[tuple[str, ...]] = ("bi_encoder",)
    """Types of models that this kind trains."""
    rule: ClassVar[str] = ""
    """The rule that trains them, where it is not named as this kind."""
    kind: str
    """Kind of the stage."""
    scope: Scope = "shared"
    """`target`: one model for each target. Stages after such a stage are made for each target, too."""

    def as_params(self) -> dict[str, Any]:
        """The settings as a rule's params have them: what a paper could add, and does not here, is left out."""
        absent = {name for name in self.added | self.optional if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=absent)

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Corpora whose documents this stage learns from without labels, as its settings name them."""
        return ()

    @property
    def parents(self) -> dict[str, str | None]:
        """Settings that name a model that this stage starts from, and the names; None: the stage before it."""
        return {"after": self.after} if isinstance(self, FollowingStage) else {}

    @property
    def foreign(self) -> tuple[str, ...]:
        """Those of `parents` that may be `<recipe>/<stage>`, too."""
        return ()

    @property
    def other_models(self) -> tuple[str, ...]:
        """Models of other recipes, `<recipe>/<stage>`, that this stage needs besides its parents."""
        return ()

    @property
    def trainings(self) -> dict[str, TrainingSettings]:
        """Optimisation of the stage's models, by key; empty where none is trained."""
        return {"training": self.training} if isinstance(self, LearningStage | PretrainStage) else {}

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
    optional: ClassVar[frozenset[str]] = frozenset({"generate", "keep_index"})
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
        distils, hard = self.objective.name in DISTILLATION, self.objective.negatives_per_query
        if distils != (self.teacher is not None):
            raise ValueError("objectives margin_mse and kl need `teacher`, and only they use one")
        if hard and self.negatives.source == "none":
            raise ValueError("objective.negatives_per_query needs negatives, but negatives.source is none")
        if not hard and self.negatives.source != "none":
            raise ValueError("objective.negatives_per_query 0 uses no mined negatives: set negatives.source: none")
        check_negative_counts(hard, self.negatives)
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
        return []

    @property
    def freezing(self) -> str | None:
        """Key of the addition that leaves the model's own weights as they are; None: they learn."""
        return None

    @property
    def further(self) -> str | None:
        """Key of the addition that trains on further texts, which have a loss of their own; None: there is none."""
        return None


class PretrainStage(FollowingStage):
    """One stage of a chain that learns from texts alone."""

    kind: Literal["pretrain"]
    """Learns from corpora, without queries or judgements."""
    corpora: tuple[str, ...] = Field(("source", "targets"), min_length=1)
    """`source`, `targets` (columns of the table), `target` (the one of scope: target), collections or groups. Gated
    ones that are missing are left out."""
    spans: SpanSettings | None = None
    """Learn from spans of documents; None: from whole documents, except coco and ict, which take spans as published."""
    objective: PretrainSettings
    """What is learned."""
    training: TrainingSettings = TrainingSettings()
    """How it is optimised; a batch is counted in documents."""
    max_epochs: float | None = Field(None, gt=0)
    """Fewer steps where they would go through the documents more often than this (DDR on small corpora: 100)."""

    @model_validator(mode="after")
    def _has_texts(self) -> PretrainStage:
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


class TrainedSettings(Settings):
    """A trained method: an initial model and a chain of named stages, in order (`ep0`, `ep1`, ...)."""

    encoder: StartSettings
    """The initial model: `type: bi_encoder`, or one that serves other recipes, such as `type: cross_encoder`."""
    chain: dict[str, ChainStage] = {}
    """Stages by name, in order. `{like: ep1}` repeats ep1's settings; a stage set to null is left out. Empty: the
    initial model comes trained, which only models that rank nothing do."""
    source: str | None = None
    """The collection with supervision. None: the scale's source."""
    source_split: str = "train"
    """Its split with training queries."""
    protocol: str = "standard"
    """Protocol under which the source is embedded for mining; its title join holds in training too."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of embedding, or of scoring."""
    batch_tokens: int = Field(4096, ge=64)
    """Padded tokens of an embedding batch on the CPU. On a GPU its memory decides."""

    @model_validator(mode="after")
    def _fits(self) -> TrainedSettings:
        if not self.chain and self.ranks:
            raise ValueError("chain has no stage: a bi-encoder that comes trained is a recipe of kind encoder")
        if not self.chain and self.encoder.layers is not None:
            raise ValueError("encoder.layers is for training, but chain is empty: the model comes trained")
        if not self.ranks and self.batch_tokens != type(self).model_fields["batch_tokens"].default:
            raise ValueError(f"batch_tokens is for embeddings, and a {self.encoder.type} has none: leave it out")
        for name, stage in self.chain.items():
            if self.encoder.type not in stage.trains:
                types = " or ".join(stage.trains)
                raise ValueError(f"stage {name} of kind {stage.kind} trains a {types}, not a {self.encoder.type}")
            if not self.ranks and isinstance(stage, FinetuneStage):
                check_pair_stage(name, stage)
        return self

    @property
    def ranks(self) -> bool:
        """Whether its models embed texts, so that they rank collections."""
        return self.encoder.type == "bi_encoder"


def check_pair_stage(name: str, stage: FinetuneStage) -> None:
    """A cross-encoder learns to tell the positive from a query's own mined negatives, in a stage with no addition.

    Raises:
        ValueError: the stage asks for something else.
    """
    given = [key for key in sorted(stage.added | {"teacher"}) if getattr(stage, key) is not None]
    if given:
        raise ValueError(f"{given[0]} is not for a cross-encoder: leave it out of stage {name}")
    if not stage.objective.compares:
        raise ValueError(
            f"a cross-encoder reads a query with its own documents: set objective.in_batch: false in {name}"
        )
    if stage.negatives.source == "previous":
        raise ValueError("negatives.source previous is not for a cross-encoder: name a method that ranks")
    if stage.training.save_steps:
        raise ValueError("training.save_steps is not for a cross-encoder: leave it out")
    if stage.training.dev_queries and not stage.training.dev_negatives:
        raise ValueError("dev queries are ranked against their negatives: set dev_negatives, or dev_queries: 0")
