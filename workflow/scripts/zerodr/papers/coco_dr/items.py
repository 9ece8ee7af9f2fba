"""Settings of items about spaces, clusters and neighbours."""

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, field_serializer

from zerodr.config.item import CasesOfPaper, Item, TextItem


class SpacesItem(Item):
    """Contrastive loss, alignment and uniformity of models on held-out documents."""

    models: Annotated[dict[str, str], BeforeValidator(dict)] = Field(min_length=1)
    """Label -> `<method>@<stage>`."""

    @field_serializer("models")
    def _ordered(self, models: dict[str, str]) -> list[tuple[str, str]]:
        return list(models.items())  # a mapping's keys would be sorted on their way to the stage


class PretrainingGainItem(Item):
    """Fall of the contrastive loss by one pretraining, next to the gain of retrieval."""

    models: tuple[str, str]
    """`<method>@<stage>` without and with the pretraining."""
    methods: tuple[str, str]
    """Fine-tuned methods without and with it."""


class NearestClustersItem(Item):
    """The source's query cluster that is nearest to a collection, what a method gains in both, and losses there."""

    retired: ClassVar = {"training_loss": True}
    method: str
    """A method with query clusters."""
    baseline: str
    """The same without."""
    stage: str
    """The stage whose clusters are taken."""


class WorstClusterItem(Item):
    """Loss on the source's judged queries, of all and of the cluster with the largest, against a control."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Methods whose last stage, or the one named, has query clusters."""
    baseline: str
    """The control, with the same clusters."""


class GroupLossesItem(Item):
    """Loss on the source's judged queries of each given group, against a control, and the groups' mean weights."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Methods whose last stage, or the one named, weighs groups that are given."""
    baseline: str
    """The control, with the same groups."""


class NeighboursItem(TextItem, CasesOfPaper):
    """Queries of collections with the source queries that are nearest to them, and what a method gains on each."""

    method: str
    """The method."""
    baseline: str
    """The method that it is compared with."""
    examples: int = Field(3, ge=1)
    """Queries of each collection with the largest gains, and as many with the largest losses."""
    neighbours: int = Field(3, ge=1)
    """Source queries for each."""


ITEMS: dict[str, type[Item]] = {
    "spaces": SpacesItem,
    "pretraining_gain": PretrainingGainItem,
    "nearest_clusters": NearestClustersItem,
    "neighbours": NeighboursItem,
    "worst_cluster": WorstClusterItem,
    "group_losses": GroupLossesItem,
}
