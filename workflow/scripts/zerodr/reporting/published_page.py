"""Build a page with every value that a paper prints, next to the main table's: a paper at a glance, at no cost."""

from typing import Any

import pandas as pd
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.reporting import render
from zerodr.reporting.cell_views import cells_section, cells_tsv
from zerodr.reporting.cells import CellParams, Key, compare_cells, read_cells, shown_cells
from zerodr.reporting.grid import read_summaries
from zerodr.reporting.item_facts import measured_settings

NOTES = """
Ours are rows of the main table, under its protocol. An item itself has the paper's methods, and at scale `paper` its
collections and protocol: ask for `results/{name}/<item>.html`.
"""


class PrintedItem(Settings):
    """An item that shows printed values."""

    name: str
    """Name of the item."""
    title: str
    """Its heading."""
    published: CellParams
    """Values that it shows."""
    values: tuple[dict[str, Any], ...] = ()
    """Facts of the configuration that it shows."""


class PublishedParams(Settings):
    """Settings of rule build_published."""

    label: str
    """Name of the paper."""
    name: str
    """Its name in paths."""
    items: tuple[PrintedItem, ...] = Field(min_length=1)
    """Its items with printed values."""
    protocol: str
    """Protocol of the main table."""


def build_published(stage: Stage) -> None:
    """Read `reference` and, where the main table has rows of the paper, `summaries`; write `table` (tsv) and `html`."""
    settings = validate(PublishedParams, stage.params, stage.spec.name())
    cells = read_cells(stage.path("reference"))
    ranked = _ranked(stage)
    tables, body, left = [], [f"# {settings.label}: published values\n{NOTES.format(name=settings.name)}"], cells
    for item in settings.items:
        shown = shown_cells(cells, item.published)
        ours = ranked | measured_settings(item.values)
        compared = compare_cells(shown, ours, item.published, settings.protocol, settings.label)
        left = left.drop(shown.index, errors="ignore")
        if len(compared):  # an item whose rows the paper's table lacks has none
            tables.append(compared.assign(item=item.name))
            body.append(f"## {item.name}: {item.title}\n\n{cells_section(compared, item.published.labels)}")
    for table, rows in left.groupby("item", sort=False):
        empty = {
            "table": str(table),
            "rows": {},
            "whole": True,
            "claims": (),
            "columns": (),
            "members": {},
            "averages": {},
        }
        nothing = CellParams.model_validate(empty | {"kinds": {}, "protocol": settings.protocol, "as_published": False})
        compared = compare_cells(rows, {}, nothing, settings.protocol, settings.label)
        tables.append(compared.assign(item=""))
        body.append(f"## {table}, which no item shows\n\n{cells_section(compared)}")
    every = pd.concat(tables, ignore_index=True)
    stage.note(verdicts={str(word): int(count) for word, count in every["verdict"].value_counts().items()})
    stage.output("table").write_text(cells_tsv(every), encoding="utf-8")
    stage.output("html").write_text(render.page("\n".join(body), settings.label), encoding="utf-8")


def _ranked(stage: Stage) -> dict[Key, float | str]:
    """Means by method, collection and measure; queries that score nothing are in them."""
    paths = stage.paths("summaries") if "summaries" in stage.spec.inputs else []
    if not paths:
        return {}
    rows = read_summaries(paths)
    values = pd.to_numeric(rows["value"], errors="coerce")
    keys = zip(rows["model"], rows["collection"], rows["metric"], strict=True)
    return {key: float(value) for key, value in zip(keys, values, strict=True) if value == value}
