"""Settings of queries that read documents: those that a ranking finds, or those of a mixture of memories."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from zerodr.config.base import Settings


class Feedback(Settings):
    """Documents added to a query's vector q: `q + weight * sum_i softmax(inverse_temperature * s)_i d_i`."""

    documents: int = Field(20, ge=1)
    """First documents of the ranking that are added."""
    inverse_temperature: float = Field(2.0, ge=0)
    """Factor of their scores before the softmax over them. 0: all count alike, as Rocchio has it."""
    weight: float = Field(0.2, ge=0)
    """Weight of the documents' mean; the query's vector has 1."""


class AttentionSteps(Settings):
    """Updates of attention to documents from the source's questions; all vectors of the bi-encoder stay."""

    source_split: str = "train"
    """Split of the source whose questions teach."""
    width: int = Field(64, ge=0)
    """Length of a query's and a document's projection, whose product is part of the attention. 0: scores alone."""
    first: int = Field(30, ge=1)
    """First documents of the ranking among which negatives are drawn."""
    negatives_per_query: int = Field(2, ge=0)
    """Negatives of each question; positives and negatives of the others in the batch count as well."""
    inverse_temperature: float = Field(20.0, gt=0)
    """Factor of cosines in the loss."""
    steps: int = Field(600, ge=0)
    """Updates. 0 leaves the bi-encoder as it is."""
    batch_queries: int = Field(64, ge=2)
    """Questions of one update."""
    learning_rate: float = Field(0.01, gt=0)
    """First rate for `inverse_temperature` and `weight`, a tenth of it for projections; both fall to 0 in a line."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW's, for the projections."""
    dev_queries: int = Field(1000, ge=1)
    """Questions that are left out and show how the loss falls."""


class AttentionTraining(AttentionSteps):
    """Training of attention to ranked documents on the source's questions; all vectors of the bi-encoder stay."""

    depth: int = Field(100, ge=2)
    """Documents of the rankings that are read; as many as `memory`, a fusion, puts on one scale."""


class FeedbackSettings(Feedback):
    """Queries of a bi-encoder to which documents that another method found are added."""

    attention: AttentionTraining | None = None
    """Learn the documents' shares and their weight; `inverse_temperature` and `weight` are where they start."""

    model: str
    """Full name of the method whose queries are augmented and whose document vectors are searched."""
    memory: str
    """Full name of the method whose ranking of the collection names the documents that are added."""


class MixtureAugmenter(Settings):
    """Training of the projection of queries that finds documents in the memories."""

    read_with: ClassVar = {
        "selected": ("labels", ("attention", "attention_alone")),
        "negatives_per_query": ("labels", ("attention", "attention_alone", "judged")),
        "learning_rate": ("labels", ("attention", "attention_alone", "judged", "adist")),
    }
    labels: Literal["attention", "attention_alone", "judged", "adist", "frozen"] = "attention"
    """Its labels. `attention`: judged documents and the most attended of those read (MoMA eq. 10). `attention_alone`:
    the most attended. `judged`: judged documents. `adist`: the attention itself, on the documents read. `frozen`:
    none, queries search as the bi-encoder embeds them."""
    selected: int = Field(5, ge=1)
    """N: documents with the most attention that count as positives."""
    depth: int = Field(200, ge=2)
    """Ranks of its own ranking of the mixture among which negatives are drawn."""
    negatives_per_query: int = Field(7, ge=1)
    """Negatives of each question (MoMA eq. 12)."""
    learning_rate: float = Field(0.001, gt=0)
    """First rate in each episode; it falls to 0 in a line."""


class MixtureTraining(Settings):
    """Training of queries to find and read documents of several memories: MoMA's episodes over vectors that stay."""

    memories: tuple[str, ...] = Field(("source",), min_length=1)
    """The mixture: collections, and `source`, in whose place the target is searched when targets are ranked."""
    documents: int = Field(10, ge=1)
    """K: documents that a query reads."""
    exclude_positives: bool = False
    """Training questions read no document that is judged relevant to them. Published: they do."""
    inverse_temperature: float = Field(20.0, ge=0)
    """Factor of the scores in the attention, where it starts."""
    weight: float = Field(0.0, ge=0)
    """Weight of what is read, where it starts; the query's vector has 1."""
    episodes: int = Field(3, ge=1)
    """Rounds of search, attention and augmenter."""
    questions: int = Field(3000, ge=1)
    """Questions of the source that teach."""
    attention: AttentionSteps = AttentionSteps(steps=200)
    """Training of attention, and after it of the augmenter, in each episode; `dev_queries` are of the source's
    evaluated split."""
    augmenter: MixtureAugmenter = MixtureAugmenter()
    """Training of the projection that finds the documents."""


class MixtureSettings(MixtureTraining):
    """Queries of a bi-encoder that read documents of several memories."""

    model: str
    """Full name of the bi-encoder whose vectors of queries and documents are used."""
