"""Settings of training: where a model starts, where negatives come from, losses, optimisation, teachers."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from zerodr.config.base import Settings
from zerodr.config.custom import code_digest, defined, kind_of, parameters
from zerodr.errors import nearest

FILE = "file"


class Loss(NamedTuple):
    """A loss that `objective.name` chooses.

    Attributes:
        options: keys of ObjectiveSettings that it reads beside its name and `negatives_per_query`.
        function: `module:function` of zerodr.losses, called with the scores of a query's documents and these options;
            empty for a loss of vectors, which has a class in zerodr.training.objectives.
        distils: the function has an argument `teacher`, a teacher's scores.
    """

    options: tuple[str, ...] = ()
    function: str = ""
    distils: bool = False


LOSSES = {
    "pairwise_nll": Loss(),
    "info_nce": Loss(("in_batch", "mask_known_positives", "inverse_temperature")),
    "margin_mse": Loss(("inverse_temperature",), "distillation:margin_mse", distils=True),
    "kl": Loss(("teacher_temperature", "inverse_temperature"), "distillation:kl_distillation", distils=True),
}


CUSTOM = "losses.py"
KINDS: dict[str, tuple[type, ...]] = {"float": (float, int), "int": (int,), "bool": (bool,), "str": (str,)}
"""Annotation of an argument -> types that its value in a recipe may have."""
CUSTOM_LOSS = Loss(("arguments", "code"))


def is_loss(name: str) -> bool:
    """Test whether there is a loss of that name, of the bench or the user's own."""
    return name in LOSSES or name in defined(CUSTOM)


def options_of(name: str) -> set[str]:
    """Name the keys that a loss reads."""
    return {"name", "negatives_per_query", *LOSSES.get(name, CUSTOM_LOSS).options}


def takes(name: str, argument: str) -> bool:
    """Test whether a loss of the user's own takes an argument, or any."""
    known = parameters(CUSTOM, name)
    return known is None or argument in known


def known_loss(name: str) -> str:
    """Check the name of a loss, and return it.

    Raises:
        ValueError: there is none of that name.
    """
    if not is_loss(name):
        raise ValueError(f"{name!r} is no loss, {nearest(name, [*LOSSES, *defined(CUSTOM)])}")
    return name


class JoinedTexts(Settings):
    """How documents become texts."""

    title_join: str | None = " "
    """Text that joins a document's title and text. None: text alone."""


class Architecture(Settings):
    """A small network for `init: scratch`."""

    family: Literal["bert", "roberta", "distilbert", "t5"] = "bert"
    """Kind of network."""
    hidden: int = Field(256, ge=8)
    """Width."""
    layers: int = Field(4, ge=1)
    """Layers (T5: of the encoder and of the decoder)."""
    heads: int = Field(4, ge=1)
    """Attention heads."""
    vocabulary: int = Field(30522, ge=300)
    """Tokens of the tokenizer that is trained when `tokenizer` is `train`."""


class StartSettings(Settings):
    """The model before any training of ours, of any type."""

    type: str
    """Which type of model it is."""
    init: str
    """A folder, `organisation/name`, `package:<module>`, or `<recipe>/<stage>` of another recipe."""
    revision: str | None = None
    """Hub revision."""
    layers: int | None = Field(None, ge=1)
    """Keep the first n layers of the checkpoint."""


class PairSettings(StartSettings):
    """A network that reads two texts together. It ranks no collection; it serves another recipe's training."""

    max_tokens: int = Field(256, ge=8)
    """Length of a pair, special tokens included; the second text is cut."""
    trained: bool = False
    """Refuse a checkpoint without a trained head. Always so where the chain is empty."""
    batch_pairs: int = Field(64, ge=1)
    """Pairs of one batch of scoring."""

    @model_validator(mode="after")
    def _starts(self) -> PairSettings:
        if self.init == "scratch":
            raise ValueError(
                f"a {self.type} starts from a checkpoint, or from `<recipe>/init` of a recipe from scratch"
            )
        return self


class CrossEncoderSettings(PairSettings):
    """A cross-encoder, which scores (query, document) pairs for distillation."""

    type: Literal["cross_encoder"]  # type: ignore[assignment]
    """Which type of model it is."""


class InitSettings(StartSettings):
    """A bi-encoder."""

    later: ClassVar = ("max_tokens", "lowercase")
    type: Literal["bi_encoder"] = "bi_encoder"  # type: ignore[assignment]
    """Which type of model it is."""
    init: str
    """`scratch`, a folder, `organisation/name`, `package:<module>`, or `<recipe>/<stage>` of another recipe."""
    architecture: Architecture = Architecture()
    """Only for `init: scratch`."""
    tokenizer: str = "train"
    """Only for `init: scratch`: `train` on the source corpus, or a folder, hub name or `package:<module>`."""
    pooling: Literal["mean", "cls", "max", "last", "decoder_first"] = "cls"
    """`decoder_first`: T5's decoder state at its first position."""
    head: Literal["none", "ance", "kept"] = "none"
    """`ance`: Linear(D, D) and LayerNorm after pooling, as in ANCE's released code. `kept`: the layers that the
    checkpoint has behind its pooling."""
    similarity: Literal["dot", "cosine"] = "dot"
    """`cosine` scales embeddings to length 1 in the model."""
    towers: Literal["tied", "separate"] = "tied"
    """One network for queries and documents, or two."""
    query_tokens: int = Field(64, ge=2)
    """Longest query in training and, unless a protocol says otherwise, in search."""
    document_tokens: int = Field(256, ge=2)
    """Longest document, likewise."""
    max_tokens: int | None = Field(None, ge=2)
    """Longest text of the model. None: what the checkpoint's tables hold, even where its files state less."""
    lowercase: bool | None = None
    """Lower texts before a cased tokenizer reads them. None: as the checkpoint says."""

    @model_validator(mode="after")
    def _possible(self) -> InitSettings:
        if self.init == "scratch":
            if self.layers is not None:
                raise ValueError("layers cuts a checkpoint; with init: scratch set architecture.layers")
            if self.architecture.hidden % self.architecture.heads:
                raise ValueError("architecture.hidden must be a multiple of architecture.heads")
            t5, decoder = self.architecture.family == "t5", self.pooling == "decoder_first"
            if decoder and not t5 or t5 and self.pooling == "cls":
                raise ValueError("pooling decoder_first is for family t5, and cls is not; pooling mean is for all")
        elif self.architecture != Architecture() or self.tokenizer != "train":
            raise ValueError("architecture and tokenizer are for init: scratch; a checkpoint has its own")
        return self


class NegativesSettings(Settings):
    """Where a stage's negatives come from."""

    later: ClassVar = ("file",)
    source: str = "previous"
    """`previous`: searched with the stage's parent. `none`: in-batch only. `file`: rankings of others. Else a
    method, such as `bm25-flat+bm25s`."""
    file: str | None = None
    """Only for source file: a TREC run of training queries; JSON lines with `qid` and `neg`, lists by system (as MS
    MARCO's public hard negatives have them), which take turns, rank by rank; or Parquet with a row a query: its id, a
    list of documents, a list of scores."""
    depth: int = Field(200, ge=1)
    """Ranks that are looked at."""
    skip: int = Field(0, ge=0)
    """Top ranks that are left out."""
    count: int = Field(20, ge=1)
    """Negatives kept for each query."""
    sampling: Literal["uniform", "top"] = "uniform"
    """`uniform` among the ranks, or the `top` ones."""
    exclude: Literal["all", "one"] = "all"
    """`all` known positives are kept out of the negatives; `one` as the papers' code does it."""
    queries: int | None = Field(None, ge=1)
    """Train queries that are ranked and mined (a seeded sample, and those that training holds out). None: all."""

    @model_validator(mode="after")
    def _sourced(self) -> NegativesSettings:
        if (self.source == FILE) != (self.file is not None):
            raise ValueError("negatives.source file needs negatives.file, and only it reads one")
        return self


class LossSettings(Settings):
    """The loss of a stage."""

    name: str
    """Its name."""
    negatives_per_query: int = Field(1, ge=0)
    """Hard negatives drawn for a query in a step."""

    @property
    def compares(self) -> bool:
        """Whether it compares a positive with hard negatives of its query."""
        return False


class ObjectiveSettings(LossSettings):
    """The loss of a stage. An option that the loss does not read is refused."""

    first: ClassVar = frozenset({"in_batch", "mask_known_positives", "inverse_temperature", "teacher_temperature"})
    """Options that are written whatever the loss. Another one is written only where the loss reads it, so that a new
    option leaves models of other losses as they are."""
    name: Annotated[str, AfterValidator(known_loss)]
    """A loss of LOSSES, or a function or class of your own `config/my/losses.py`."""
    in_batch: bool = True
    """info_nce: documents of other queries are negatives too (across processes)."""
    mask_known_positives: bool = True
    """info_nce: other known positives of a query never count as negatives."""
    inverse_temperature: float = Field(1.0, gt=0)
    """info_nce, margin_mse, kl: factor on the model's similarities."""
    teacher_temperature: float = Field(1.0, gt=0)
    """kl: divides the teacher's scores."""
    arguments: dict[str, Any] = {}
    """Your own losses: arguments of the function or class."""
    code: str = ""
    """Your own losses: SHA-256 of their code, which is filled in. Other code makes another model."""

    @model_validator(mode="before")
    @classmethod
    def _with_code(cls, value: Any) -> Any:
        custom = isinstance(value, dict) and value.get("name") not in LOSSES and value.get("name") in defined(CUSTOM)
        return value | {"code": value.get("code") or code_digest(CUSTOM, value["name"])} if custom else value

    @property
    def compares(self) -> bool:
        """Whether a query is compared with its own documents alone, so not with those of the batch."""
        if self.name not in LOSSES:
            return kind_of(CUSTOM, self.name) == "function"
        return self.name != "info_nce" or not self.in_batch

    @property
    def distils(self) -> bool | None:
        """Whether the loss follows a teacher's scores. None: a class of the user's own, of which nobody knows."""
        if self.name in LOSSES:
            return LOSSES[self.name].distils
        if kind_of(CUSTOM, self.name) == "class":
            return None
        return "teacher" in (parameters(CUSTOM, self.name) or {})

    @property
    def options(self) -> set[str]:
        """Keys that the loss reads."""
        return options_of(self.name)

    def unwritten(self) -> set[str]:
        """Name the options that the loss does not read, but for the first ones."""
        return super().unwritten() | set(type(self).model_fields) - self.options - self.first

    @model_validator(mode="after")
    def _used(self) -> ObjectiveSettings:
        read = self.options
        for key, field in type(self).model_fields.items():
            if key not in read and getattr(self, key) != field.default:
                raise ValueError(
                    f"{key} is not for {self.name}, which reads {', '.join(sorted(read - {'name'}))}: "
                    f"leave it out, or write {json.dumps(field.default)} over a scale's"
                )
        if self.name not in LOSSES and self.name in defined(CUSTOM):
            self._check_arguments()
        return self

    def _check_arguments(self) -> None:
        """Refuse arguments that the user's own loss does not take, or lacks."""
        takes = parameters(CUSTOM, self.name)
        if takes is None:
            return
        takes.pop("teacher", None)
        for key in self.arguments.keys() - takes.keys():
            raise ValueError(f"arguments: {self.name} of {CUSTOM} takes no {key!r}, {nearest(key, takes)}")
        if lacking := [key for key, one in takes.items() if one.needed and key not in self.arguments]:
            raise ValueError(f"arguments: {self.name} of {CUSTOM} needs {', '.join(lacking)}")
        for key, value in self.arguments.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"arguments: {key} of {self.name} is {value}, expected a number")
            if type(value) not in KINDS.get(takes[key].kind, (type(value),)):
                raise ValueError(f"arguments: {key} of {self.name} is a {takes[key].kind}, found {value!r}")


class TrainingSettings(Settings):
    """How a stage is optimised."""

    later: ClassVar = ("consecutive_negatives", "lora_rank")
    retired: ClassVar = {"bucket_batches": 0}
    steps: int = Field(1000, ge=1)
    """Optimiser steps."""
    batch_queries: int = Field(32, ge=1)
    """Queries of one optimiser step, over all processes."""
    accumulation: int = Field(1, ge=1)
    """Micro-batches of one optimiser step (losses without in-batch negatives, or in-batch within each)."""
    cache_chunk: int | None = Field(None, ge=1)
    """Texts that hold activations at once: gradient caching, exact for in-batch losses. None: off."""
    consecutive_negatives: int = Field(1, ge=1)
    """Rows of a batch that follow each other with one query, each with another of its negatives (MoDIR's and COCO-DR's
    released loaders). `batch_queries` counts these rows. Needs negatives_per_query: 1."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout of every layer. None: the checkpoint's own."""
    optimizer: Literal["adamw", "lamb"] = "adamw"
    """`lamb` as ANCE's code uses it."""
    learning_rate: float = Field(2e-5, gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay."""
    schedule: Literal["linear", "constant"] = "linear"
    """After warm-up."""
    warmup_steps: int = Field(0, ge=0)
    """Linear warm-up."""
    schedule_steps: int | None = Field(None, ge=1)
    """Where a linear schedule ends; None: at the end of the chain (schedules survive episodes)."""
    restart_schedule: bool = False
    """The schedule begins anew with the stage instead of going on from the stage before."""
    keep_optimizer: bool = False
    """Continue with the parent stage's optimiser moments."""
    max_grad_norm: float | None = Field(1.0, gt=0)
    """Clipping."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """bf16 is autocast; a processor that is slower in it takes fp32, and lineage says so. fp16 is refused for T5 (its
    activations overflow) and needs a GPU."""
    checkpoint_steps: int = Field(200, ge=1)
    """Resume state is written this often, and on SIGTERM."""
    evaluate_steps: int | None = Field(None, ge=1)
    """Dev evaluation this often; None: at the end only."""
    dev_queries: int = Field(500, ge=0)
    """Train queries held out for evaluation (at most a tenth of the split, the same in all stages); 0: none."""
    dev_negatives: int = Field(5, ge=0)
    """Mined negatives of each dev query that join all positives in the pool that dev queries are ranked against."""
    lora_rank: int | None = Field(None, ge=1)
    """Train additions of this rank to the transformer's linear layers (LoRA) and leave its other weights, which then
    need no gradients and no moments. They are added up where the model is saved. None: train all weights."""
    save_steps: tuple[int, ...] = ()
    """Steps at which the model is also kept as `<recipe>@<stage>.<step>`."""

    @model_validator(mode="after")
    def _ends(self) -> TrainingSettings:
        if self.schedule == "constant" and self.schedule_steps is not None:
            raise ValueError(
                "schedule_steps is where a linear schedule ends; schedule: constant has no end: leave schedule_steps "
                "out (`null` where a recipe below sets it), or take schedule: linear"
            )
        if self.batch_queries % self.accumulation:
            raise ValueError(
                f"batch_queries {self.batch_queries} can't be shared equally by {self.accumulation} micro-batches "
                "(accumulation): make it a multiple of these"
            )
        return self


def check_negative_counts(drawn: int, negatives: NegativesSettings) -> None:
    """Check that ranks yield the negatives of a query, and that a step draws no more than these.

    Raises:
        ValueError: it is not so.
    """
    ranks = max(negatives.depth - negatives.skip, 0)
    if negatives.source == "none":
        return
    if negatives.count > ranks:
        raise ValueError(f"negatives.count {negatives.count} is more than the {ranks} ranks that depth and skip leave")
    if drawn > negatives.count:
        raise ValueError(
            f"negatives_per_query {drawn} is more than negatives.count {negatives.count}, the negatives "
            "that are kept for a query"
        )
