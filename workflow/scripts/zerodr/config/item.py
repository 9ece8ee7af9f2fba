"""Settings that every table or figure of a paper has."""

from zerodr.config.base import Settings


class Item(Settings):
    """Base of all items."""

    kind: str
    """Kind of the item."""
    title: str
    """Heading of the table and the figure."""
    collections: tuple[str, ...] | None = None
    """Names, columns or groups of the registry. None: the columns of the main table."""
    apart: bool = False
    """Made only when asked for by name: not on the page with all items, because it needs collections of its own."""

    @property
    def is_drawn(self) -> bool:
        """Whether there is a figure, not only a table."""
        return True


class TargetItem(Item):
    """An item about single targets: collections that a column of the main table is the mean of are left out."""
