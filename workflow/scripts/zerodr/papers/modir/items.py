"""Settings of items about source and target in a model's space."""

from pydantic import Field

from zerodr.config.item import Item, TargetItem, TextItem


class DomainsItem(TargetItem):
    """Domain-Acc, KNN-Source% and retrieval over the kept steps of adversarial training."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with an adversary. Steps are those of its stages: training.save_steps and the last."""


class NearestQueriesItem(TargetItem, TextItem):
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
    "nearest_queries": NearestQueriesItem,
    "projections": ProjectionsItem,
}
