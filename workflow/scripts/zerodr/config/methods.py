"""Recipes: `config/methods/<recipe>.yaml`, one method a file, ablations as named variants.

A method's full name is `<recipe>` or `<recipe>+<variant>`; it is the first part of every path that the method makes.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from zerodr.config.base import LARGEST_SEED, Settings
from zerodr.config.feedback import FeedbackSettings, MixtureSettings
from zerodr.config.index import IndexSettings
from zerodr.config.trained import TrainedSettings
from zerodr.errors import ConfigError


class LexicalSettings(Settings):
    """BM25, optionally with RM3 feedback."""

    read_with: ClassVar = dict.fromkeys(
        ("feedback_documents", "feedback_terms", "original_query_weight"), ("expansion", ("rm3",))
    )
    backend: Literal["lucene", "bm25s"] = "lucene"
    """`lucene`: Anserini's jar, the reported baseline. `bm25s`: no JVM, the same formula and analyser."""
    fields: Literal["flat", "multifield"] = "flat"
    """`flat`: title and text as one field. `multifield`: title and text as two fields of equal weight."""
    k1: float = Field(0.9, ge=0)
    """Term frequency saturation."""
    b: float = Field(0.4, ge=0, le=1)
    """Length normalisation."""
    expansion: Literal["none", "rm3"] = "none"
    """Pseudo relevance feedback."""
    feedback_documents: int = Field(10, ge=1)
    """RM3: documents that feed the expansion."""
    feedback_terms: int = Field(10, ge=1)
    """RM3: terms that are added."""
    original_query_weight: float = Field(0.5, ge=0, le=1)
    """RM3: weight of the original query."""

    @model_validator(mode="after")
    def _supported(self) -> LexicalSettings:
        if self.backend == "bm25s" and (self.expansion != "none" or self.fields != "flat"):
            raise ValueError("backend bm25s offers fields: flat without expansion; use backend: lucene")
        if self.expansion == "rm3" and self.fields != "flat":
            raise ValueError("expansion rm3 works over one field; use fields: flat")
        return self


class ImportedModel(Settings):
    """A bi-encoder that exists already, and what is read otherwise than its folder says."""

    model: str
    """`path/to/folder`, `organisation/name` on the hub, or `package:<module>` for a package with a `MODEL_DIR`."""
    revision: str | None = None
    """Hub revision (commit). Required for hub names at scale `paper`."""
    document_model: str | None = None
    """Model of documents, where `model` encodes queries alone (DPR). None: `model` encodes both."""
    document_revision: str | None = None
    """Hub revision of `document_model`."""
    pooling: Literal["mean", "cls", "max", "last"] | None = None
    """None: what the model folder says."""
    normalize: bool | None = None
    """Scale embeddings to length 1. None: what the model folder says."""
    query_prefix: str | None = None
    """Put before every query. None: what the model folder says."""
    document_prefix: str | None = None
    """Put before every document. None: what the model folder says."""
    max_tokens: int | None = Field(None, ge=2)
    """Upper bound of the model's length with special tokens. None: what the model folder says."""


class EncoderSettings(ImportedModel, IndexSettings):
    """Any bi-encoder that exists already: a folder, a hub name, or a model that a Python package ships."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the encoder. Embeddings are stored in float32."""
    batch_tokens: int = Field(4096, ge=64)
    """Padded tokens of one batch on the CPU. On a GPU its memory decides."""


class FusionSettings(Settings):
    """Fusion of the runs of two methods."""

    read_with: ClassVar = {"rank_constant": ("fusion", ("reciprocal_rank",))}
    runs: tuple[str, str]
    """Full names of the two methods."""
    fusion: Literal["reciprocal_rank", "weighted_score", "standard_score"] = "reciprocal_rank"
    """`reciprocal_rank`: sum of w/(rank_constant + rank). `weighted_score`: sum of w * min-max scaled scores.
    `standard_score`: sum of w * (score - min) / standard deviation."""
    rank_constant: int = Field(60, ge=1)
    """Constant of reciprocal rank fusion."""
    weights: tuple[float, float] = (1.0, 1.0)
    """Weight of each run, not below 0."""
    entries: int | None = Field(None, ge=2)
    """First entries of each run that count. None: all."""

    @model_validator(mode="after")
    def _mixes(self) -> FusionSettings:
        if self.runs[0] == self.runs[1]:
            raise ValueError(f"runs names {self.runs[0]} twice: name two methods")
        if min(self.weights) < 0 or not any(self.weights):
            raise ValueError(f"weights are not below 0 and not all 0, found {list(self.weights)}")
        return self


class RunSettings(Settings):
    """Rankings that another system made, as TREC run files."""

    source: str = Field(min_length=1)
    """Who made the runs: system, version, address. Footnotes, lineage and `verify` repeat it."""
    files: dict[str, str] = Field(min_length=1)
    """File of each collection (lines `query Q0 document rank score tag`, gzipped or not). Other columns stay empty."""


class ScoreSettings(Settings):
    """Published numbers of a system, without its rankings."""

    source: str = Field(min_length=1)
    """Where the numbers were published."""
    file: str
    """A tsv of published numbers, as `zerodr.reporting.published` describes it."""
    row: str
    """The system's name in the file's column `method`."""


class _Method(Settings):
    label: str
    """The row's name in tables."""
    description: str
    """Description in a sentence."""
    remark: str = ""
    """A footnote for every table row of the method, such as what the model was trained on."""
    read_under: str | None = None
    """Protocol that the method's paper ranks with: a footnote says where a row is read under another. None: any."""
    seed: int | None = Field(None, ge=0, le=LARGEST_SEED)
    """Source of its random choices. None: the configuration's."""

    @property
    def ranks(self) -> bool:
        """True if it ranks collections."""
        return True

    @property
    def unranked(self) -> str:
        """Reason that it ranks no collection."""
        return ""

    def check_ranks(self, where: str) -> None:
        """Raise ConfigError if it ranks no collection."""
        if not self.ranks:
            raise ConfigError(where, self.unranked, "name a method that searches")


class LexicalMethod(_Method):
    """A method without a model."""

    kind: Literal["lexical"]
    """Kind of the method."""
    settings: LexicalSettings = LexicalSettings()
    """Settings of the recipe; a variant changes some of them."""


class EncoderMethod(_Method):
    """A model that exists already."""

    kind: Literal["encoder"]
    """Kind of the method."""
    settings: EncoderSettings
    """Settings of the recipe; a variant changes some of them."""


class FusionMethod(_Method):
    """Two runs made one."""

    kind: Literal["fusion"]
    """Kind of the method."""
    settings: FusionSettings
    """Settings of the recipe; a variant changes some of them."""


class FeedbackMethod(_Method):
    """A bi-encoder that reads documents with the query; nothing is trained but, if at all, its attention to them."""

    kind: Literal["feedback"]
    """Kind of the method."""
    settings: FeedbackSettings
    """Settings of the recipe; a variant changes some of them."""


class MixtureMethod(_Method):
    """A bi-encoder whose queries read documents of memories; what finds them and the attention to them are learned."""

    kind: Literal["mixture"]
    """Kind of the method."""
    settings: MixtureSettings
    """Settings of the recipe; a variant changes some of them."""


class Origins(Settings):
    """Sources of a recipe's values: keys below `settings`, where `*` stands for any part. All others are ours."""

    paper: tuple[str, ...] = ()
    """Values that the paper states."""
    code: tuple[str, ...] = ()
    """Values of the authors' released code, which the paper leaves open or states otherwise."""


class TrainedMethod(_Method):
    """A model that the bench trains."""

    start: str = ""
    """An initial model of config/starts.yaml, in place of `init` and with a remark."""
    kind: Literal["trained"]
    """Kind of the method."""
    settings: TrainedSettings
    """Settings of the recipe; a variant changes some of them."""
    origins: Origins = Origins()
    """Sources of the recipe's values at scale `paper`; the settings page lists them."""
    stage: str = ""
    """The stage whose model this is; empty: the last one. Set for `<recipe>@<stage>`."""

    @property
    def last(self) -> str:
        """The stage that makes the model, `init` for the one before training, `<stage>.<step>` for a kept step."""
        return self.stage or ["init", *self.settings.chain][-1]

    @property
    def ranks(self) -> bool:
        """True if its models embed texts; cross-encoders and readers do not."""
        return self.settings.ranks

    @property
    def unranked(self) -> str:
        """Reason that it ranks no collection."""
        return f"is a {self.settings.encoder.type}, which reads pairs of texts and ranks no collection"


class RunMethod(_Method):
    """Rankings that another system made."""

    kind: Literal["run"]
    """Kind of the method."""
    settings: RunSettings
    """Settings of the recipe; a variant changes some of them."""


class ScoresMethod(_Method):
    """Published numbers of a system: a row of the main table in italics, in no test."""

    kind: Literal["scores"]
    """Kind of the method."""
    settings: ScoreSettings
    """Settings of the recipe; a variant changes some of them."""

    @property
    def ranks(self) -> bool:
        """False: there are numbers alone."""
        return False

    @property
    def unranked(self) -> str:
        """Reason that it ranks no collection."""
        return "holds published numbers alone and ranks no collection"


Method = (
    LexicalMethod
    | EncoderMethod
    | FusionMethod
    | FeedbackMethod
    | MixtureMethod
    | TrainedMethod
    | RunMethod
    | ScoresMethod
)
METHOD_KINDS: dict[str, type[_Method]] = {
    "lexical": LexicalMethod,
    "encoder": EncoderMethod,
    "fusion": FusionMethod,
    "feedback": FeedbackMethod,
    "mixture": MixtureMethod,
    "trained": TrainedMethod,
    "run": RunMethod,
    "scores": ScoresMethod,
}


class Change(Settings):
    """Changes of a recipe by a scale or a variant."""

    label: str | None = None
    """The row's name in tables. None: the recipe's, a variant's with the variant's name."""
    remark: str | None = None
    """Its footnote. None: the recipe's."""
    start: str | None = None
    """An initial model of config/starts.yaml that replaces the recipe's."""
    settings: dict[str, Any] = {}
    """The settings that differ, laid over the recipe's key by key."""


class Variant(Change):
    """A named change of a recipe."""

    over: tuple[str, ...] = ()
    """Variants above it in the file whose changes lie under its own, the first one lowest."""
    scales: dict[str, Any] = {}
    """Further changes by scale."""


class Like(Change):
    """A recipe of one's own that is another one, and what differs."""

    like: str
    """The recipe that it is like: all of its values hold but those below. Its variants stay its own."""
    description: str = ""
    """Description in a sentence. Empty: the other recipe's."""
    read_under: str | None = None
    """Protocol that the method's paper ranks with."""
    seed: int | None = Field(None, ge=0, le=LARGEST_SEED)
    """Source of its random choices. None: the configuration's."""
    scales: dict[str, Any] = {}
    """Further changes by scale."""
    variants: dict[str, Any] = {}
    """Named changes of it."""
