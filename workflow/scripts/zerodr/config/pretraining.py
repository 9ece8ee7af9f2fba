"""Settings of pretraining objectives: what a model learns from texts without queries or judgements."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from zerodr.config.base import Settings

Objective = Literal["coco", "condenser", "mlm", "ict", "simcse", "tsdae", "t5_coco"]
MASKING = {"mask_rate", "mask_unit", "max_tokens", "backbone_dropout"}
EXTRA = {"head_layers", "head"}
USED: dict[str, set[str]] = {  # options that an objective reads
    "coco": MASKING | EXTRA | {"skip_layer", "similarity", "inverse_temperature"},
    "condenser": MASKING | EXTRA | {"skip_layer"},
    "mlm": MASKING,
    "ict": {"max_tokens", "backbone_dropout", "similarity", "inverse_temperature", "keep_rate"},
    "simcse": {"max_tokens", "similarity", "inverse_temperature"},
    "t5_coco": {"max_tokens", "similarity", "inverse_temperature", "corruption_rate", "corruption_span"},
    "tsdae": EXTRA | {"max_tokens", "delete_rate", "backbone_dropout"},
}
PAIRED = ("coco", "ict", "t5_coco")  # need documents of two spans
COSINE = {"simcse": ("cosine", 20.0)}  # similarity and inverse temperature unless set


class SpanSettings(Settings):
    """Rules by which documents are cut into spans of about a sentence (COCO-DR's released code)."""

    max_tokens: int = Field(30, ge=2)
    """Sentences are merged while a span has at most so many tokens, special tokens not counted."""
    early_split: float = Field(0.1, ge=0, le=1)
    """Probability that a span ends before it is full."""
    title: Literal["none", "join"] = "none"
    """`join`: the title is the document's first sentence."""


class PretrainSettings(Settings):
    """The objective of a pretraining stage. An option that the objective does not read is refused."""

    name: Objective
    """`coco`: two spans of a document are near, and masked tokens are predicted (COCO-DR; on one corpus coCondenser).
    `condenser`: masked tokens by Condenser's head and by the last layer. `mlm`: by the last layer. `ict`: a span finds
    the rest of its document. `simcse`: a text finds itself under other dropout. `tsdae`: a text without some of its
    tokens is said again in full. `t5_coco`: two spans of a document are near, and stretches that were cut out of them
    are told (T5's span corruption; coCondenser for T5)."""
    max_tokens: int = Field(128, ge=3)
    """Longest input, special tokens included; of a longer text a random stretch is taken. Batches are padded to their
    longest text only."""
    mask_rate: float = Field(0.15, gt=0, lt=1)
    """Share of tokens that are predicted."""
    mask_unit: Literal["word", "token"] = "word"
    """`word`: whole words within the share of each text. `token`: each token by itself with this probability (BERT)."""
    backbone_dropout: bool = True
    """False: the backbone has no dropout, the head keeps its own (COCO-DR's code)."""
    head_layers: int = Field(2, ge=0)
    """Layers of Condenser's head, or of TSDAE's decoder (at least 1)."""
    skip_layer: int | None = Field(None, ge=0)
    """Layer whose tokens Condenser's head reads; 0 are the embeddings. None: the middle one."""
    head: Literal["init", "from_model", "if_present"] = "init"
    """Extra layers start fresh, or from the model's own earlier pretraining. `if_present`: from
    there where the model has some, else fresh, with a warning."""
    similarity: Literal["dot", "cosine"] | None = None
    """How vectors are compared in the contrastive loss. None: cosine for simcse, else dot."""
    inverse_temperature: float | None = Field(None, gt=0)
    """Factor on similarities. None: 20 for simcse, else 1."""
    keep_rate: float = Field(0.1, ge=0, le=1)
    """ict: probability that the span also stays in its document."""
    delete_rate: float = Field(0.6, gt=0, lt=1)
    """tsdae: probability that a token is deleted."""
    corruption_rate: float = Field(0.15, gt=0, lt=1)
    """t5_coco: share of tokens that are cut out."""
    corruption_span: float = Field(3.0, ge=1)
    """t5_coco: mean length of a stretch that is cut out."""

    @model_validator(mode="after")
    def _used(self) -> PretrainSettings:
        unread = sorted(self.model_fields_set - USED[self.name] - {"name"})
        strange = [key for key in unread if getattr(self, key) != type(self).model_fields[key].default]
        if strange:
            raise ValueError(f"{strange[0]} is not for {self.name}, which reads {', '.join(sorted(USED[self.name]))}")
        if self.name in ("condenser", "tsdae") and not self.head_layers:
            raise ValueError(f"{self.name} needs head_layers of at least 1 (condenser without a head is mlm)")
        if not self.head_layers and (self.skip_layer is not None or self.head != "init"):
            given, plain = ("head", "init") if self.head != "init" else ("skip_layer", "null")
            what = f"{given}: {getattr(self, given)} needs head_layers of at least 1"
            raise ValueError(f"{what}: leave it out, or write {given}: {plain} over a recipe's")
        return self

    @property
    def comparison(self) -> tuple[str, float]:
        """Similarity and inverse temperature, defaults filled in."""
        similarity, factor = COSINE.get(self.name, ("dot", 1.0))
        return self.similarity or similarity, self.inverse_temperature or factor

    @property
    def masks(self) -> bool:
        """Whether masked tokens are predicted."""
        return "mask_rate" in USED[self.name]

    @property
    def contrasts(self) -> bool:
        """Whether vectors are compared."""
        return "similarity" in USED[self.name]
