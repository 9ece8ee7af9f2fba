"""Build tables of the papers: an item's numbers as tsv, Markdown and HTML; and a page with all items of a paper."""

from collections.abc import Callable
from typing import Any

import pandas as pd
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.item import Item
from zerodr.config.papers import ClaimItem, item_of
from zerodr.errors import ArtifactError
from zerodr.evaluation.numbers import tsv
from zerodr.papers import modules
from zerodr.reporting import claims, item_facts, item_tables, render
from zerodr.reporting.cells import COMPARED, CellParams, Key, compare_cells, read_cells, shown_cells
from zerodr.reporting.grid import read_summaries
from zerodr.reporting.item_facts import measured_settings
from zerodr.reporting.item_inputs import ItemParams, ItemTable, Pairs
from zerodr.reporting.published import cells_section, cells_tsv

TABLES: dict[str, Callable[[Stage, ItemParams, Item], ItemTable]] = {
    "methods": item_tables.methods,
    "claim": claims.claim,
    "similarity": item_tables.similarity,
    "episodes": item_tables.episodes,
    "settings": item_facts.settings_of_recipe,
    "statistics": item_facts.statistics,
    "sizes": item_facts.sizes,
}
NOTES = """
Ours are rows of the main table, under its protocol. An item itself has the paper's methods, and at scale `paper` its
collections and protocol: ask for `results/{name}/<item>.html`.
"""


def tables() -> dict[str, Callable[[Stage, ItemParams, Item], ItemTable]]:
    """Return the functions that build tables of items, by kind: those here and those of papers."""
    return TABLES | {kind: build for paper in modules("report") for kind, build in paper.REPORT.tables.items()}


class PaperParams(Settings):
    """Settings of rule build_paper."""

    label: str
    """Name of the paper."""
    items: dict[str, bool] = Field(min_length=1)
    """Item -> whether it has a figure."""
    left_out: Pairs = {}
    """Page of an item that is not on this one -> its title."""
    scale: str
    """The preset of the run."""


def build_item(stage: Stage) -> None:
    """Read the inputs that the item's kind needs, and `reference` if printed values are shown.

    Write `table` (tsv), `markdown`, `html` and `published` (tsv: printed values next to ours).
    """
    settings = validate(ItemParams, stage.params, stage.spec.name())
    item = item_of(settings.item, f"{settings.paper}: {settings.name}")
    table = tables()[settings.item["kind"]](stage, settings, item)
    notes = [
        *table.notes,
        f"scale {settings.scale}, protocol {settings.protocol}, source {settings.source}, seed {stage.seed}",
        *settings.remarks,
    ]
    compared = compared_cells(stage, settings, table)
    text = f"## {settings.paper}, {settings.name}: {item.title}\n\n" + _markdown(table, notes)
    text += "\n" + cells_section(compared, _labels(settings)) if len(compared) else ""
    stage.output("published").write_text(cells_tsv(compared), encoding="utf-8")
    stage.output("table").write_text(tsv(table.frame, notes), encoding="utf-8")
    stage.output("markdown").write_text(text, encoding="utf-8")
    page = render.page(text, f"{settings.paper}, {settings.name}")
    if isinstance(item, ClaimItem):
        page = page.replace("</table>", f"</table>\n{item_tables.drawn(stage.output('table'), settings)}", 1)
    stage.output("html").write_text(page, encoding="utf-8")


def compared_cells(stage: Stage, settings: ItemParams, table: ItemTable) -> pd.DataFrame:
    """Compare the values that the paper prints with the table's; none where the item shows none."""
    if settings.published is None:
        return pd.DataFrame(columns=COMPARED)
    cells = shown_cells(read_cells(stage.path("reference")), settings.published)
    if cells.empty:
        where = f"{settings.paper}: {settings.name}"
        raise ArtifactError(where, f"shows no value of {settings.published.table}", "correct published, rows or cells")
    return compare_cells(cells, table.measured, settings.published, settings.protocol, settings.paper)


def build_paper(stage: Stage) -> None:
    """Read inputs `tables` (Markdown) and `figures` (svg) in the order of the items; write output `html`."""
    settings = validate(PaperParams, stage.params, stage.spec.name())
    tables, figures = stage.paths("tables"), stage.paths("figures")
    if (len(tables), len(figures)) != (len(settings.items), sum(settings.items.values())):
        problem = f"found {len(tables)} tables and {len(figures)} figures of {len(settings.items)} items"
        raise ArtifactError(stage.spec.name(), problem, "declare both of each item as inputs")
    body, drawn = [f"# {settings.label}\n"], {path.stem: path.name for path in figures}
    for table in tables:
        figure = f"\n![{table.stem}]({drawn[table.stem]})\n" if table.stem in drawn else ""
        body.append(table.read_text(encoding="utf-8") + figure)
    if settings.left_out:
        body.append(f"## Not on this page at scale {settings.scale}\n")
        body += [f"- `{page}`: {title}" for page, title in settings.left_out.items()]
    stage.output("html").write_text(render.page("\n".join(body), settings.label), encoding="utf-8")


def _labels(settings: ItemParams) -> dict[str, str]:
    return settings.published.labels if settings.published else {}


def _markdown(table: ItemTable, notes: list[str]) -> str:
    header, rows = table.shown
    printed = render.markdown_table(header, rows, render.columns_of_words(rows))
    return "\n".join([printed, "".join(f"- {note}\n" for note in notes)])


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
    remarks: tuple[str, ...] = ()
    """Reasons that it, or a row, is not as published."""


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
            body[-1] += "".join(f"- {remark}\n" for remark in item.remarks)
    for table, rows in left.groupby("item", sort=False):
        nothing = CellParams(table=str(table), whole=True, protocol=settings.protocol, as_published=False)
        compared = compare_cells(rows, {}, nothing, settings.protocol, settings.label)
        tables.append(compared.assign(item=""))
        body.append(f"## {table}, which no item shows\n\n{cells_section(compared)}")
    every = pd.concat(tables, ignore_index=True)
    stage.note(verdicts={str(word): int(count) for word, count in every["verdict"].value_counts().items()})
    stage.output("table").write_text(cells_tsv(every), encoding="utf-8")
    stage.output("html").write_text(render.page("\n".join(body), settings.label), encoding="utf-8")


def _ranked(stage: Stage) -> dict[Key, float | str]:
    """Read means by method, collection and measure. A query without results counts as 0."""
    paths = stage.paths("summaries") if "summaries" in stage.spec.inputs else []
    if not paths:
        return {}
    rows = read_summaries(paths)
    values = pd.to_numeric(rows["value"], errors="coerce")
    keys = zip(rows["model"], rows["collection"], rows["metric"], strict=True)
    return {key: float(value) for key, value in zip(keys, values, strict=True) if value == value}
