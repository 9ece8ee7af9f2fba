"""Settings that every table or figure of a paper has."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, field_serializer

from zerodr.config.base import Settings


class Item(Settings):
    """Base of all items."""

    kind: str
    """Kind of the item."""
    title: str
    """Heading of the table and the figure."""
    collections: tuple[str, ...] | None = None
    """The paper's collections: names, columns or groups of the registry. They are planned at a scale that is
    `as_published`, and at any in results/lab; else, and where `collections` are chosen, the main table's columns are
    used. None: these."""
    protocol: str | None = None
    """Protocol of its rankings at a scale that is `as_published`. None: the paper's."""
    published: str | None = None
    """Table in the paper's reference file whose values are shown next to ours. None: none."""
    rows: dict[str, str | None] = {}
    """Row of that table -> our method, or `<method>, step <n>`; null: no method here. The item with the table's name
    knows the paper's `rows` too, and shows every value that no other item of that table claims by its rows."""
    cells: tuple[str, ...] | None = None
    """Columns or measures of that table that are shown. None: all."""
    repeats: bool = False
    """The item with the table's name shows these values too: next to a model that we train, here to a released one."""
    apart: bool | Literal["small"] = False
    """Made only when asked for by name, not on the page with all items. True: it costs much more than others. small:
    at scales that are not `as_published`, where another item shows the same methods on the main table's columns."""

    @property
    def is_drawn(self) -> bool:
        """Whether there is a figure, not only a table."""
        return True


class TargetItem(Item):
    """An item about single targets: collections that a column of the main table is the mean of are left out."""


class TextItem(Item):
    """An item without a figure."""

    @property
    def is_drawn(self) -> bool:
        """Words, counts and settings are no figure."""
        return False


class CasesOfPaper(Settings):
    """Single queries that a paper shows, which are shown next to those that an item chooses."""

    later: ClassVar = ("cases",)
    cases: Annotated[dict[str, str], BeforeValidator(dict)] = {}
    """Query of a target -> the source query that the paper puts next to it, as texts; empty: it names none."""

    @field_serializer("cases")
    def _in_order(self, cases: dict[str, str]) -> list[tuple[str, str]]:
        return list(cases.items())  # a mapping's keys would be sorted on their way to the stage
