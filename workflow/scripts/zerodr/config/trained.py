"""Settings of trained methods: an initial model and the chain of stages that it goes through."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from zerodr.config.base import Settings
from zerodr.config.pretraining import PAIRED, PretrainSettings, SpanSettings
from zerodr.config.training import InitSettings, NegativesSettings, ObjectiveSettings, TrainingSettings, check_kept
from zerodr.papers.berm.settings import BalanceSettings, BermSettings, UnitSettings, check_balance
from zerodr.papers.coco_dr.settings import ClusterSettings, GroupSettings, check_groups
from zerodr.papers.ddr.settings import RemSettings
from zerodr.papers.modir.settings import AdversarySettings
from zerodr.papers.moma.settings import AugmenterSettings, InferenceSettings, MemorySettings, refuse_options

STAGE_KINDS = ("finetune", "pretrain", "assemble", "moma")  # the first where none is named
DISTILLATION = ("margin_mse", "kl")
Scope = Literal["shared", "target"]


class FinetuneStage(Settings):
    """One fine-tuning stage of a chain. Its parent is the stage before it, or the initial model."""

    kind: Literal["finetune"] = "finetune"
    """Learns from the source's judgements."""
    scope: Scope = "shared"
    """`target`: one model for each target. Stages after such a stage are made for each target, too."""
    after: str | None = None
    """The stage whose model this one starts from, `<stage>.<step>` or `init`. None: the stage before it."""
    negatives: NegativesSettings = NegativesSettings()
    """Where negatives come from."""
    objective: ObjectiveSettings
    """The loss."""
    training: TrainingSettings = TrainingSettings()
    """How it is optimised."""
    clusters: ClusterSettings | None = None
    """K-means of the training queries by the parent's embeddings, for `groups`."""
    groups: GroupSettings | None = None
    """How the losses of query clusters are weighted."""
    rem: RemSettings | None = None
    """Trains a relevance module in the frozen model before (DDR). None: all weights."""
    adversary: AdversarySettings | None = None
    """Adapts the encoder to a target; needs scope: target."""
    units: UnitSettings | None = None
    """Units of the training queries' positives, for `berm`."""
    berm: BermSettings | None = None
    """Losses over units, added to the objective."""
    teacher: str | None = None
    """Recipe of kind `teacher` whose scores a distillation objective follows."""

    @model_validator(mode="after")
    def _possible(self) -> FinetuneStage:
        distils, hard = self.objective.name in DISTILLATION, self.objective.negatives_per_query
        if self.objective.name == "adist":
            raise ValueError("objective adist is for the augmenter of a moma stage")
        if distils != (self.teacher is not None):
            raise ValueError("objectives margin_mse and kl need `teacher`, and only they use one")
        if hard and self.negatives.source == "none":
            raise ValueError("objective.negatives_per_query needs negatives, but negatives.source is none")
        if not hard and self.negatives.source != "none":
            raise ValueError("objective.negatives_per_query 0 uses no mined negatives: set negatives.source: none")
        check_kept(hard, self.negatives)
        if (self.groups is None) != (self.clusters is None):
            raise ValueError("groups are weighted over clusters: give both or none")
        if (self.units is None) != (self.berm is None):
            raise ValueError("berm's losses are over units: give units and berm, or none of them")
        if self.groups is not None:
            check_groups(self.groups, self.objective, self.training)
        if self.rem is not None and self.groups is not None and self.groups.uses_gradients:
            raise ValueError(
                "rem: groups compare gradients of layers that a relevance module leaves frozen: take a "
                "mode without gradients (balanced, group_dro), or leave rem out"
            )
        if self.adversary is not None and self.berm is not None:
            raise ValueError(
                "berm and adversary can't be in one stage: let the recipe with the adversary start from "
                "the one with berm (init: <recipe>/<stage>)"
            )
        if self.adversary is not None and self.scope == "shared":
            raise ValueError("adversary adapts to a target, which a shared stage does not have: set scope: target")
        return self


class MemoryStage(FinetuneStage):
    """One stage of a chain that trains a model whose queries are augmented, then what augments them (MoMA)."""

    kind: Literal["moma"]  # type: ignore[assignment]
    """Learns from the source's judgements and from memories."""
    memory: MemorySettings = MemorySettings()
    """Where augmentation documents come from."""
    augmenter: AugmenterSettings = AugmenterSettings()
    """What retrieves them."""

    @model_validator(mode="after")
    def _fused(self) -> MemoryStage:
        added = ("clusters", "groups", "rem", "berm", "adversary", "teacher")
        refuse_options({name: getattr(self, name) for name in added})
        if self.augmenter.mode == "learned" and self.augmenter.selected > self.memory.documents:
            raise ValueError(
                f"augmenter.selected {self.augmenter.selected} is more than the {self.memory.documents} "
                "documents of a query"
            )
        for training in (self.training, self.augmenter.training or self.training):
            if training.save_steps or training.keep_optimizer:
                raise ValueError("training.save_steps and keep_optimizer are not for moma stages: leave them out")
        return self


class PretrainStage(Settings):
    """One stage of a chain that learns from texts alone."""

    kind: Literal["pretrain"]
    """Learns from corpora, without queries or judgements."""
    scope: Scope = "shared"
    """`target`: one model for each target. Stages after such a stage are made for each target, too."""
    after: str | None = None
    """The stage whose model this one starts from, `<stage>.<step>` or `init`. None: the stage before it."""
    corpora: tuple[str, ...] = Field(("source", "targets"), min_length=1)
    """`source`, `targets` (columns of the table), `target` (the one of scope: target), collections or groups. Gated
    ones that are missing are left out."""
    spans: SpanSettings | None = None
    """Learn from spans of documents; None: from whole documents, except coco and ict, which take spans as published."""
    objective: PretrainSettings
    """What is learned."""
    balance: BalanceSettings | None = None
    """BERM's R1 over the units of a text, added to the objective (coco, mlm)."""
    training: TrainingSettings = TrainingSettings()
    """How it is optimised; a batch is counted in documents."""
    max_epochs: float | None = Field(None, gt=0)
    """Fewer steps where they would go through the documents more often than this (DDR on small corpora: 100)."""

    @model_validator(mode="after")
    def _possible(self) -> PretrainStage:
        if "target" in self.corpora and self.scope == "shared":
            raise ValueError("corpora names the target, which a shared stage does not have: set scope: target")
        check_balance(self.balance, self.objective.name)
        return self

    @property
    def cut(self) -> SpanSettings | None:
        """How documents are cut; None: not at all."""
        return self.spans or (SpanSettings() if self.objective.name in PAIRED else None)


class AssembleStage(Settings):
    """One stage of a chain that puts a trained relevance module into a domain module (DDR). Nothing is trained."""

    kind: Literal["assemble"]
    """Joins two stages' models."""
    scope: Scope = "shared"
    """`target`: one model for each target, which it is anyway where its domain module is."""
    dam: str
    """The domain module: a stage before, `<stage>.<step>`, `init`, or `<recipe>/<stage>` of another recipe."""
    rem: str
    """The stage before that was trained with `rem`, or a kept step of it."""
    fold: bool = True
    """Write a plain model. False: the modular form, which other tools can't load whole."""
    keep_modular: bool = True
    """Keep the modular form beside the plain one."""
    sharpness: float | None = Field(None, gt=0)
    """k of folded adapters; None: the relevance module's own."""


def _kind(value: Any) -> str:
    kind = value.get("kind", "finetune") if isinstance(value, dict) else value.kind
    return kind if kind in STAGE_KINDS else STAGE_KINDS[0]


TrainingStage = FinetuneStage | PretrainStage
ChainStage = Annotated[
    Annotated[FinetuneStage, Tag("finetune")]
    | Annotated[PretrainStage, Tag("pretrain")]
    | Annotated[AssembleStage, Tag("assemble")]
    | Annotated[MemoryStage, Tag("moma")],
    Discriminator(_kind),
]


class TrainedSettings(Settings):
    """A trained method: an initial model and a chain of named stages, in order (`ep0`, `ep1`, ...)."""

    encoder: InitSettings
    """The initial model."""
    chain: dict[str, ChainStage] = Field(min_length=1)
    """Stages by name, in order. `{like: ep1}` repeats ep1's settings; a stage set to null is left out."""
    inference: InferenceSettings = InferenceSettings()
    """Memories of a chain that ends with a moma stage, when it ranks."""
    source: str | None = None
    """The collection with supervision. None: the scale's source."""
    source_split: str = "train"
    """Its split with training queries."""
    protocol: str = "standard"
    """Protocol under which the source is embedded for mining; its title join holds in training too."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of embedding."""
    batch_tokens: int = Field(4096, ge=64)
    """Padded tokens of an embedding batch."""
