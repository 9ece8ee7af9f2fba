"""Settings of items about units."""

from pydantic import Field

from zerodr.config.item import Item


class UnitsItem(Item):
    """Balance, extractability and dispersion of models over the units of passages."""

    units_of: str
    """The method whose units and labels are taken."""
    methods: tuple[str, ...] = Field(min_length=1)
    """Trained methods of the same tokens."""
    measures: tuple[str, ...] = Field(min_length=1)
    """Columns: measures of rule measure_units."""


ITEMS: dict[str, type[Item]] = {
    "units": UnitsItem,
}
