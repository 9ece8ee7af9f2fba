"""Settings of items about memories."""

from pydantic import Field

from zerodr.config.item import Item, TargetItem


class SharesItem(TargetItem):
    """Each memory's share of documents and of attention after each episode: training queries, and the targets'."""

    method: str
    """A method with memories."""


class ComponentsItem(TargetItem):
    """MRR@10 of the main model and of the augmenter on held-out source queries, by episode."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with memories."""


ITEMS: dict[str, type[Item]] = {
    "shares": SharesItem,
    "components": ComponentsItem,
}
