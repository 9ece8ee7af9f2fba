"""Settings of trained methods: an initial model of any type, and a chain of stages of any kind, those of papers too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from zerodr.config.additions import Extensible, papers
from zerodr.config.stages import ChainStage, FinetuneStage, LearningStage, PretrainStage
from zerodr.config.training import CrossEncoderSettings, InitSettings, StartSettings

STAGES: dict[str, type[ChainStage]] = {  # the first where a stage names none
    "finetune": FinetuneStage,
    "pretrain": PretrainStage,
    **{kind: stage for paper in papers().values() for kind, stage in paper.stages.items()},
}
STAGE_KINDS = tuple(STAGES)
ENCODERS: dict[str, type[StartSettings]] = {
    "bi_encoder": InitSettings,
    "cross_encoder": CrossEncoderSettings,
    **{name: encoder for paper in papers().values() for name, encoder in paper.encoders.items()},
}


def _any_of(choices: Mapping[str, type[BaseModel]], key: str) -> Any:
    """Build the union type of settings that differ by `key`; an unknown value is read as the first choice."""
    first = next(iter(choices))

    def chosen(value: Any) -> str:
        name = value.get(key, first) if isinstance(value, dict) else getattr(value, key, first)
        return name if name in choices else first

    kinds = tuple(Annotated[choice, Tag(name)] for name, choice in choices.items())
    return Annotated[Union[kinds], Discriminator(chosen)]  # noqa: UP007


if TYPE_CHECKING:
    AnyStart = StartSettings
    AnyStage = ChainStage
    AnyLearningStage = LearningStage
else:
    AnyStart, AnyStage = _any_of(ENCODERS, "type"), _any_of(STAGES, "kind")
    AnyLearningStage = _any_of({kind: one for kind, one in STAGES.items() if issubclass(one, LearningStage)}, "kind")


class TrainedSettings(Extensible):
    """A trained method: an initial model and a chain of named stages, in order (`ep0`, `ep1`, ...)."""

    extended_by: ClassVar = "method"
    encoder: AnyStart
    """The initial model: `type: bi_encoder`, or one that serves other recipes, such as `type: cross_encoder`."""
    chain: dict[str, AnyStage] = {}
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
    """Refuse a cross-encoder whose stage has an addition, or a loss over other negatives than the mined ones.

    Raises:
        ValueError: the stage asks for something else.
    """
    added = [key for keys in stage.additions.values() for key, value in keys.by_key().items() if value is not None]
    given = sorted(added + ([] if stage.teacher is None else ["teacher"]))
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
    if stage.training.lora_rank is not None:
        raise ValueError("training.lora_rank is not for a cross-encoder: leave it out")
    if stage.training.dev_queries and not stage.training.dev_negatives:
        raise ValueError("dev queries are ranked against their negatives: set dev_negatives, or dev_queries: 0")
