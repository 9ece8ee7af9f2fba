"""Settings of models whose queries are augmented with documents of memories (MoMA)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from zerodr.config.additions import PaperKeys
from zerodr.config.base import Settings
from zerodr.config.index import IndexSettings
from zerodr.config.stages import FinetuneStage, LearningStage, PaperSettings
from zerodr.config.training import ObjectiveSettings, known_loss

SOURCE, TARGET = "source", "target"
ADIST = "adist"


class MemorySettings(Settings):
    """Source of augmentation documents, and how the main model reads them."""

    later: ClassVar = ("search",)
    retired: ClassVar = {"stop_gradient": False}
    memories: tuple[str, ...] = Field((SOURCE,), min_length=1)
    """The mixture in training: `source`, or collections."""
    documents: int = Field(10, ge=1)
    """K: documents that a query is augmented with."""
    document_tokens: int = Field(128, ge=2)
    """Longest augmentation document."""
    exclude_self: bool = True
    """A query is not augmented with itself: a document of its id, where memory and queries are one collection, or a
    document that holds the same text up to case and blanks."""
    exclude_positives: bool = False
    """Training queries are not augmented with documents that are judged relevant to them. Published: they are."""
    aggregation: Literal["prob_sum", "prob_valuenorm_sum"] = "prob_sum"
    """Aggregation of attention to a document; `prob_sum` is MoMA's eq. 9."""
    search: IndexSettings | None = None
    """Index for searches by the augmenter of a stage: for the stages after it, and when targets are ranked. The first
    stage is augmented by another recipe's model, exactly. None: exact."""

    @model_validator(mode="after")
    def _possible(self) -> MemorySettings:
        refuse_twice(self.memories)
        if TARGET in self.memories:
            raise ValueError("target is no memory of training, which knows no target; it is plugged in at inference")
        return self


class AugmenterObjective(ObjectiveSettings):
    """The loss of an augmenter: one of the core's or your own without a teacher, or attention itself."""

    first: ClassVar = ObjectiveSettings.first | {"student_temperature", "reduction", "labels"}
    name: Annotated[str, AfterValidator(lambda name: name if name == ADIST else known_loss(name))]
    """A loss of a stage, or `adist`, which learns the attention over the retrieved documents."""
    student_temperature: float = Field(1.0, gt=0)
    """adist: divides the student's scores; `teacher_temperature` the attention."""
    reduction: Literal["sum", "mean"] = "sum"
    """adist: over documents."""
    labels: bool = False
    """adist: also the softmax of a judged positive among the retrieved documents, with `inverse_temperature`."""

    @property
    def options(self) -> set[str]:
        """Keys that the loss reads."""
        if self.name != ADIST:
            return super().options
        read = {"name", "negatives_per_query", "teacher_temperature", "student_temperature", "reduction", "labels"}
        return read | ({"inverse_temperature"} if self.labels else set())


class Selection(Settings):
    """Choice of the documents that an augmenter learns from."""

    retired: ClassVar = {"exclude_unselected": False}
    selected: int = Field(5, ge=1)
    """N: documents with the most attention that count as positives."""
    depth: int = Field(200, ge=1)
    """Ranks of its own ranking of the mixture where negatives are looked for."""
    count: int = Field(30, ge=1)
    """Negatives kept for each query."""


class AugmenterSettings(Selection):
    """The component that retrieves augmentation documents."""

    retired: ClassVar = Selection.retired | {"training": None}
    mode: Literal["learned", "frozen", "own"] = "learned"
    """`learned` from the main model's attention; `frozen`: that of `init`; `own`: the main model itself retrieves,
    without augmentation."""
    init: str | None = None
    """frozen: `<recipe>/<stage>` whose model is the augmenter, in training too. None: the one of the stage before."""
    objective: AugmenterObjective | None = None
    """The loss; `adist` learns the attention over the retrieved documents instead. None: the stage's."""

    @model_validator(mode="after")
    def _possible(self) -> AugmenterSettings:
        if self.init is not None and self.mode != "frozen":
            raise ValueError(f"init is for mode: frozen, the mode is {self.mode}")
        if self.mode != "learned":
            given = self.model_fields_set - {"mode", "init"}
            strange = sorted(key for key in given if getattr(self, key) != type(self).model_fields[key].default)
            if strange:
                raise ValueError(f"{strange[0]} is for mode: learned, the mode is {self.mode}")
        return self

    @property
    def distils(self) -> bool:
        """Whether it learns the attention itself, not what attention selects."""
        return self.objective is not None and self.objective.name == ADIST


class InferenceSettings(Settings):
    """Memories that are plugged in when targets are ranked."""

    later: ClassVar = ("protocol",)
    memories: tuple[str, ...] | None = Field(None, min_length=1)
    """`target`, `source`, or collections. None: those of training, with the target in place of the source."""
    documents: int | None = Field(None, ge=0)
    """K; 0: queries are not augmented. None: as in training."""
    document_tokens: int | None = Field(None, ge=2)
    """Longest augmentation document. None: as in training."""
    protocol: str | None = None
    """Protocol whose lengths the augmenter reads targets and their queries with. None: as in training. Memories of
    training keep its lengths."""

    @model_validator(mode="after")
    def _possible(self) -> InferenceSettings:
        if self.documents == 0 and (self.memories or self.document_tokens):
            raise ValueError("documents: 0 reads no memory: leave memories and document_tokens out")
        refuse_twice(self.memories or ())
        return self


def refuse_twice(memories: tuple[str, ...]) -> None:
    """Refuse a mixture that names a memory twice.

    Raises:
        ValueError: one is there twice.
    """
    again = [name for index, name in enumerate(memories) if name in memories[:index]]
    if again:
        raise ValueError(f"memory {again[0]} stands twice: name it once")


class MemoryStage(FinetuneStage):
    """One stage of a chain that trains a model whose queries are augmented, then what augments them (MoMA)."""

    trains = ("bi_encoder",)
    extended_by: ClassVar = ""

    kind: Literal["moma"]  # type: ignore[assignment]
    """Learns from the source's judgements and from memories."""
    memory: MemorySettings = MemorySettings()
    """Source of augmentation documents."""
    augmenter: AugmenterSettings = AugmenterSettings()
    """Model that retrieves them."""

    @model_validator(mode="after")
    def _fused(self) -> MemoryStage:
        if self.teacher is not None:
            raise ValueError("teacher does not go with a moma stage, whose queries are fused: leave it out")
        if self.memory.search is not None and self.augmenter.init is not None:
            raise ValueError("memory.search is for a stage's own augmenter, but augmenter.init names one: leave it out")
        if self.augmenter.mode == "learned" and self.augmenter.selected > self.memory.documents:
            raise ValueError(
                f"augmenter.selected {self.augmenter.selected} is more than the {self.memory.documents} "
                "documents of a query"
            )
        if self.augmenter.mode == "learned":
            self._check_augmenter()
        if self.training.save_steps or self.training.keep_optimizer:
            raise ValueError("training.save_steps and keep_optimizer are not for moma stages: leave them out")
        for key, value in (("generate", self.generate), ("keep_index", self.keep_index)):
            if value is not None:
                raise ValueError(f"{key} is not for moma stages: leave it out")
        if self.training.lora_rank is not None:
            raise ValueError("training.lora_rank is not for moma stages: leave it out")
        return self

    def _check_augmenter(self) -> None:
        """Refuse a loss of the augmenter that its training can't compute, as of the main model's."""
        given, adist = self.augmenter.objective, self.augmenter.distils
        objective = given or self.objective
        drawn, turns = objective.negatives_per_query, self.training.consecutive_negatives
        if given is not None and not adist and given.distils:
            raise ValueError(f"augmenter.objective {given.name} follows a teacher's scores, and an augmenter has none")
        if turns > 1 and (adist or drawn != 1):
            reads = "reads all documents of a query" if adist else f"reads {drawn} negatives"
            problem = f"training.consecutive_negatives takes one negative, but the augmenter's loss {reads} at once"
            raise ValueError(problem)
        if not adist and drawn > self.augmenter.count:
            raise ValueError(
                f"negatives_per_query {drawn} of the augmenter's loss is more than augmenter.count "
                f"{self.augmenter.count}, the negatives that are kept for a query"
            )
        if not adist and objective.compares and not drawn:
            raise ValueError(f"augmenter.objective {objective.name} compares with negatives: set negatives_per_query")

    @property
    def other_models(self) -> tuple[str, ...]:
        """The frozen augmenter, where one is named."""
        return () if self.augmenter.init is None else (self.augmenter.init,)


class InferenceKeys(PaperKeys):
    """Keys of a trained method whose queries are augmented (MoMA)."""

    inference: InferenceSettings
    """Memories of a chain that ends with a moma stage, when it ranks. None: as in training."""


def inference_of(settings: object) -> InferenceSettings:
    """Memories that are plugged in when a trained method ranks, by its settings."""
    keys = InferenceKeys.of(settings)
    return InferenceSettings() if keys is None else keys.inference


class MemoryKeys(PaperKeys):
    """Params of a stage whose queries are augmented (inputs `rankings`, `memories`)."""

    joins: dict[str, str | None]
    """Text that joins title and text, by memory. None: text alone."""


class AugmenterStage(LearningStage):
    """The training of an augmenter."""

    objective: AugmenterObjective
    """The loss."""


class Augmentation(Settings):
    """How the queries were augmented that an exported model's scores are of."""

    memories: tuple[str, ...] = Field(min_length=1)
    """Memories that are plugged in: collections, or `target`, the one that is searched."""
    documents: int = Field(ge=1)
    """K: documents that a query is augmented with."""
    document_tokens: int = Field(ge=2)
    """Longest of them, special tokens included."""
    exclude_self: bool
    """A query is not augmented with itself."""


class AugmentationKeys(PaperKeys):
    """Params of an export of a model whose queries are augmented."""

    augmentation: Augmentation
    """Augmentation of its queries in search."""


SETTINGS = PaperSettings(
    method=InferenceKeys,
    finetune_params=MemoryKeys,
    export_params=AugmentationKeys,
    stages={"moma": MemoryStage},
    losses=(ADIST,),
)
