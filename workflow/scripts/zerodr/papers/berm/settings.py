"""Settings of BERM: how positives are cut into units and labelled, and the two losses over units (BERM section 4)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from zerodr.config.additions import StageKeys
from zerodr.config.base import Settings
from zerodr.config.stages import FollowingStage, LearningStage, PaperSettings
from zerodr.config.training import LossSettings, PairSettings, TrainingSettings

Segmenter = Literal["rule", "full_stop", "fixed_tokens"]
Aggregation = Literal["sum", "max", "mean"]


class TextCut(Settings):
    """Cutting of a text into units."""

    segmenter: Segmenter = "rule"
    """`rule`: sentences of the text. `full_stop`: up to each full stop token, as the released code does: what
    follows the last one belongs to no unit, and one that follows another is a unit. `fixed_tokens`: runs of
    `tokens_per_unit` tokens."""
    tokens_per_unit: int | None = Field(None, ge=1)
    """Only for fixed_tokens."""
    min_tokens: int = Field(1, ge=1)
    """A unit with fewer tokens after truncation is left out."""
    max_units: int = Field(32, ge=2)
    """Text behind the last allowed unit joins it."""

    @model_validator(mode="after")
    def _possible(self) -> TextCut:
        if (self.segmenter == "fixed_tokens") != (self.tokens_per_unit is not None):
            raise ValueError("segmenter fixed_tokens needs tokens_per_unit, and only it uses it")
        return self


class CutSettings(TextCut):
    """Cutting of a passage into units. A title's tokens belong to none."""

    retired: ClassVar = {"title": "none"}


class LabelSettings(Settings):
    """Scoring that selects the essential unit of a (query, passage) pair."""

    later: ClassVar = ("without_overlap", "by")
    by: Literal["scores", "answers"] = "scores"
    """`answers`: the unit where the first answer that came with the source begins, an upper bound of any scoring; a
    pair without one has no label."""
    k1: float = Field(1.5, ge=0)
    """BM25: term frequency saturation."""
    b: float = Field(0.75, ge=0, le=1)
    """BM25: length normalisation."""
    delta: float = Field(0.1, gt=0)
    """With a reader: factor on its score, which is at most 1."""
    without_overlap: Literal["none", "first"] = "none"
    """Label of a pair without a common term: `none`, or the `first` unit as in the released code."""
    aggregation: Aggregation = "sum"
    """With a reader: what a unit gets of its tokens' start probabilities; `sum`: that the answer starts in it."""


class UnitSettings(Settings):
    """The units of a stage's positives and their labels."""

    cut: CutSettings = CutSettings()
    """Cutting of passages."""
    label: LabelSettings = LabelSettings()
    """Scoring that selects the essential unit."""
    reader: str | None = None
    """Recipe of a reader, or `<recipe>/<stage>` of one, whose score joins BM25's. None: BM25 alone."""

    @model_validator(mode="after")
    def _used(self) -> UnitSettings:
        plain = LabelSettings()
        if self.reader is not None and self.label.by == "answers":
            raise ValueError("label.by answers reads no scores: leave reader out")
        if self.reader is None and (self.label.delta, self.label.aggregation) != (plain.delta, plain.aggregation):
            raise ValueError("label.delta and label.aggregation are for a reader, but reader is not set")
        return self


class Preset(NamedTuple):
    """Values of a preset.

    Attributes:
        over_units: R1 as it is (`sum`), or divided by the number of units (`mean`).
        softmaxes: of R2; 2 is the released code's double softmax.
        w_r1: weight of R1.
        w_r2: weight of R2 before each of the given steps of the chain, the last one without an end.
        skips_last: the last passage of a batch does not count, as in the released code.
    """

    over_units: Literal["sum", "mean"]
    softmaxes: Literal[1, 2]
    w_r1: float
    w_r2: tuple[tuple[int | None, float], ...]
    skips_last: bool = False


PRESETS = {
    "paper": Preset("sum", 1, 1.0, ((None, 0.1),)),
    "released_ance": Preset("mean", 2, 1.0, ((None, 0.1),), True),
    "released_dpr": Preset("mean", 2, 1.0, ((None, 0.0),), True),
    "released_dpr_schedule": Preset("mean", 2, 1.0, ((20000, 1.0), (40000, 0.5), (50000, 0.25), (None, 0.1)), True),
}


UnitSpace = Literal["raw", "head"]


class BermSettings(Settings):
    """The two losses that BERM adds to any loss of fine-tuning, for positives alone."""

    later: ClassVar = ("heavier", "matching")
    read_with: ClassVar = {"heavier": ("preset", ("paper",))}
    retired: ClassVar = {"warmup_steps": 0}
    preset: Literal["paper", "released_ance", "released_dpr", "released_dpr_schedule"] = "paper"
    """Weights and forms of the losses: `paper`'s throughout, or those of the released code."""
    heavier: Literal["r1", "r2"] = "r1"
    """Loss that has weight 1.0 in preset `paper`; the other has 0.1. The paper lists both numbers without names: in the
    order of its equations R2 has 1.0, as the recipes at scale `paper` have it, in the released code's R1."""
    w_r1: float | None = Field(None, ge=0)
    """Weight of R1, semantic unit balance. None: the preset's."""
    w_r2: float | None = Field(None, ge=0)
    """Weight of R2, extractability of the essential unit. None: the preset's."""
    unit_space: UnitSpace = "raw"
    """`head`: the encoder's layers after pooling are applied to units, too; without such layers nothing changes."""
    similarity: Literal["dot", "cosine"] = "dot"
    """Comparison of vectors and units in the losses."""
    temperature: float = Field(1.0, gt=0)
    """Divides these similarities."""
    matching: Literal["raw", "scaled"] = "raw"
    """`scaled`: query and passage have length sqrt(D) in R2's matching vector GELU(q * p). At length 1, as cosine makes
    them, GELU is all but linear and gates nothing."""

    @model_validator(mode="after")
    def _something(self) -> BermSettings:
        if self.w_r1 == 0 and not any(weight for _, weight in self.schedule_r2):
            raise ValueError("w_r1 and w_r2 are both 0: leave berm and units out")
        return self

    @property
    def how(self) -> Preset:
        """Return the preset's choices."""
        preset = PRESETS[self.preset]
        return preset if self.heavier == "r1" else preset._replace(w_r1=0.1, w_r2=((None, 1.0),))

    @property
    def schedule_r2(self) -> tuple[tuple[int | None, float], ...]:
        """Weights of R2 and the steps at which they end."""
        return self.how.w_r2 if self.w_r2 is None else ((None, self.w_r2),)

    def weights(self, step: int) -> tuple[float, float]:
        """Weights of R1 and R2 at a step of the chain, from 0."""
        r1 = self.how.w_r1 if self.w_r1 is None else self.w_r1
        return r1, next(weight for end, weight in self.schedule_r2 if end is None or step < end)


BALANCED = ("coco", "mlm")


class BalanceSettings(Settings):
    """R1 (BERM eq. 4), which needs no query, next to an objective of pretraining."""

    w_r1: float = Field(1.0, ge=0)
    """Weight of R1, semantic unit balance. 0: the objective alone."""
    unit_space: UnitSpace = "raw"
    """As in berm: `head` applies the encoder's layers after pooling to units, too."""
    similarity: Literal["dot", "cosine"] = "dot"
    """Comparison of vectors and units."""
    temperature: float = Field(1.0, gt=0)
    """Divides these similarities."""
    cut: TextCut = TextCut()
    """Cutting of what the encoder sees of a text. A text of one unit adds nothing, so coco wants longer `spans`."""


class ReaderSettings(PairSettings):
    """An extractive reader: from a question and a passage to the tokens where an answer may start and end."""

    type: Literal["reader"]  # type: ignore[assignment]
    """Which type of model it is."""
    max_tokens: int = Field(384, ge=8)
    """Length of question and passage, special tokens included; the passage is cut."""
    answer_tokens: int = Field(30, ge=1)
    """Longest answer that is predicted."""


class SpanLoss(LossSettings):
    """The loss of a reader."""

    name: Literal["spans"] = "spans"  # type: ignore[assignment]
    """Cross entropy of an answer's first and last token."""
    negatives_per_query: Literal[0] = 0  # type: ignore[assignment]
    """A reader reads passages that hold the answer."""


READER_IGNORES = ("cache_chunk", "consecutive_negatives", "save_steps", "dev_negatives", "lora_rank")


class AnswerStage(LearningStage, FollowingStage):
    """One stage of a reader's chain. `training.dev_queries` are questions of dev_split (a seeded sample)."""

    trains = ("reader",)
    rule = "finetune"

    kind: Literal["answers"]
    """Learns from the source's answers."""
    scope: Literal["shared"] = "shared"
    """A reader is made once."""
    objective: SpanLoss = SpanLoss()
    """The loss."""
    dev_split: str = "dev"
    """The source's split with questions for exact match and F1."""

    @model_validator(mode="after")
    def _read(self) -> AnswerStage:
        for name in READER_IGNORES:
            if getattr(self.training, name) != TrainingSettings.model_fields[name].default:
                raise ValueError(f"training.{name} is not for a reader: leave it out")
        return self


class UnitKeys(StageKeys):
    """Keys of a fine-tuning stage with losses over the units of positives (BERM)."""

    encoding: ClassVar = "berm"  # units are pooled from the same pass as their passages
    units: UnitSettings | None = None
    """Units of the training queries' positives, for `berm`."""
    berm: BermSettings | None = None
    """Losses over units, added to the objective."""

    def check(self, owner: Any) -> None:
        """Refuse units without losses, and losses without units."""
        if self.units is None or self.berm is None:
            raise ValueError("berm's losses are over units: give units and berm, or none of them")
        if owner.generate is not None:
            raise ValueError("units are of the source's judged documents, which generate does not use: leave one out")

    @property
    def teachers(self) -> tuple[str, ...]:
        """The reader, where one labels units."""
        return () if self.units is None or self.units.reader is None else (self.units.reader,)


class BalanceKeys(StageKeys):
    """Keys of a pretraining stage with R1 over the units of its texts (BERM)."""

    balance: BalanceSettings
    """BERM's R1 over the units of a text, added to the objective (coco, mlm)."""

    def check(self, owner: Any) -> None:
        """Refuse objectives that R1 is not defined for."""
        if owner.objective.name not in BALANCED:
            raise ValueError(
                f"balance joins the objectives {' and '.join(BALANCED)}, found {owner.objective.name}: leave it out"
            )


SETTINGS = PaperSettings(
    finetune=UnitKeys, pretrain=BalanceKeys, stages={"answers": AnswerStage}, encoders={"reader": ReaderSettings}
)
