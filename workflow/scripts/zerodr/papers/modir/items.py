"""Settings of items about source and target in a model's space."""

from typing import ClassVar

from pydantic import Field

from zerodr.config.item import CasesOfPaper, Item, TargetItem, TextItem


class DomainsItem(TargetItem):
    """Domain-Acc, KNN-Source% and retrieval over the kept steps of adversarial training."""

    later: ClassVar = ("indexes",)
    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with an adversary. Steps are those of its stages: training.save_steps and the last."""
    indexes: tuple[int, ...] = ()
    """Steps whose models search all documents of source and target and rank the source, at a scale that is
    `as_published`: each embeds the whole source."""


class DomainAccuracyItem(TargetItem):
    """Domain-Acc after adversarial training against a control, over seeds; nothing is ranked."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with an adversary."""
    baseline: str
    """Their control, with an adversary of weight 0 for as many steps."""


class NearestQueriesItem(TargetItem, TextItem, CasesOfPaper):
    """Source queries nearest to a target's queries before and after adversarial training."""

    method: str
    """A method with an adversary."""
    examples: int = Field(2, ge=1)
    """Queries of each collection with the largest gains, and as many with the largest losses."""
    neighbours: int = Field(3, ge=1, le=5)
    """Source queries for each."""


class ProjectionsItem(TargetItem):
    """Source and target in the plane, by t-SNE of each model's vectors."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Trained methods. One with an adversary is shown at each of its kept steps, with `steps`."""
    steps: bool = False
    """Show the start and every kept step of adversarial training, too."""


ITEMS: dict[str, type[Item]] = {
    "domains": DomainsItem,
    "domain_accuracy": DomainAccuracyItem,
    "nearest_queries": NearestQueriesItem,
    "projections": ProjectionsItem,
}
