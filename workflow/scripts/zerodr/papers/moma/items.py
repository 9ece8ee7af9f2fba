"""Settings of items about memories."""

from typing import ClassVar

from pydantic import Field

from zerodr.config.item import Item, TargetItem, TextItem


class SharesItem(TargetItem):
    """Each memory's share of documents and of attention after each episode: training queries, and the targets'."""

    method: str
    """A method with memories."""


class ComponentsItem(TargetItem):
    """MRR@10 of main model and augmenter on held-out source queries, at each evaluation (training.evaluate_steps)."""

    retired: ClassVar = {"every_evaluation": True}
    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with memories."""


class MixturesItem(TextItem):
    """Relevant documents found for held-out source questions after each episode of mixtures, and shares of memories."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Methods of kind mixture."""


class CasesItem(TargetItem, TextItem):
    """Documents that queries attend to most after the last episode: of training queries, and of the targets'."""

    method: str
    """A method with memories."""
    examples: int = Field(2, ge=1)
    """Queries of each collection."""


class LatencyItem(TargetItem, TextItem):
    """Milliseconds of a query and of a document by component, after the last episode."""

    method: str
    """A method with memories."""


class MemoriesItem(TextItem):
    """Sizes of memories and lengths of their documents."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with memories."""
    members: dict[str, tuple[str, ...]] = {}
    """A memory of the paper's table -> ours that it is made up of. None: one of the same name."""


class HoursItem(TextItem):
    """Hours that training took: of each episode's components, and of the vectors that they are trained with."""

    method: str
    """A method with memories."""


ITEMS: dict[str, type[Item]] = {
    "shares": SharesItem,
    "mixtures": MixturesItem,
    "components": ComponentsItem,
    "cases": CasesItem,
    "latency": LatencyItem,
    "memories": MemoriesItem,
    "hours": HoursItem,
}
