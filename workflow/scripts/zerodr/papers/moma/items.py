"""Settings of items about memories."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from zerodr.config.item import Item, TargetItem


class SharesItem(TargetItem):
    """Each memory's share of documents and of attention after each episode: training queries, and the targets'."""

    kind: Literal["shares"]
    """Which kind of item it is."""
    method: str
    """A method with memories."""


class ComponentsItem(TargetItem):
    """MRR@10 of the main model and of the augmenter on held-out source queries, by episode."""

    kind: Literal["components"]
    """Which kind of item it is."""
    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with memories."""


ITEMS: dict[str, type[Item]] = {
    "shares": SharesItem,
    "components": ComponentsItem,
}
