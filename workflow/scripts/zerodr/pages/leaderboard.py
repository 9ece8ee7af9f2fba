"""Build the leaderboard: the main table as a page to sort and filter, with the story of each cell behind it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.evaluation.metrics import LABELS
from zerodr.lineage.graph import Graph
from zerodr.pages import html
from zerodr.pages.cells import Sources, cell_facts
from zerodr.pages.costs import Cost, cost_of, jobs_above
from zerodr.reporting.footnotes import method_remarks
from zerodr.reporting.grid import Column, Grid, fill, read_summaries
from zerodr.reporting.render import BETTER, WORSE, format_number, significance_marks
from zerodr.reporting.scores import without_empty
from zerodr.reporting.settings import TableMethod, TableSettings

Files = Mapping[str, list[Path]]


class LeaderboardSettings(Settings):
    """Settings of `build_leaderboard`."""

    table: TableSettings
    """The main table."""
    selection: str
    """Name of its collections in paths."""
    seed: int
    """Source of every random choice of the run."""
    words: tuple[str, ...]
    """`--config` words of the commands on the page."""
    choice: tuple[str, ...] = ()
    """Further words of commands that make the whole table."""


def build_leaderboard(stage: Stage) -> None:
    """Read the main table's files and the records of everything above them; write `page`."""
    settings = validate(LeaderboardSettings, stage.params, "build_leaderboard")
    files = {name: stage.paths(name) for name in stage.spec.inputs}
    context = leaderboard(files, settings, Graph())
    stage.output("page").write_text(html.fill("leaderboard.html", **context), encoding="utf-8")


def leaderboard(files: Files, settings: LeaderboardSettings, graph: Graph, folder: str = "") -> dict[str, Any]:
    """Collect what the template shows.

    Args:
        files: inputs of `build_leaderboard` by name.
        settings: its settings.
        graph: the checkout's lineage.
        folder: of the table's files, as seen from the page.
    """
    summaries = [str(path) for path in files["summaries"]]
    frame = read_summaries(files["summaries"])
    numbers = pd.read_csv(files["table"][0], sep="\t", index_col="model")
    table, _ = without_empty(settings.table, _scores(numbers, settings.table))
    grid = _grid(frame, numbers, table)
    tests = pd.read_csv(files["significance"][0], sep="\t", comment="#")
    published = pd.read_csv(files["published"][0], sep="\t", comment="#", keep_default_na=False)
    sources = Sources(
        graph, settings.words, settings.choice, settings.selection, table, frame, tests, published, folder
    )
    paths = _by_method(frame, summaries)
    costs = {name: cost_of(jobs_above(graph, files)) for name, files in paths.items()}
    rows = [_row(method, grid, costs.get(method.name), sources) for method in table.methods]
    records = [record for path in summaries if (record := graph.record(path)) is not None]
    return {
        "title": f"zerodr: {settings.selection}",
        "selection": settings.selection,
        "metric": LABELS[table.metric],
        "columns": grid.columns,
        "averages": grid.averages,
        "rows": rows,
        "families": list(dict.fromkeys(method.family for method in table.methods if method.family)),
        "facts": _facts(settings, records),
        "has_gpu": any(cost.gpu_hours for cost in costs.values()),
        "has_energy": any(cost.joules is not None for cost in costs.values()),
        "cells": {row["name"]: row["details"] for row in rows},
        "figure": html.inline_svg(files["figure"][0]),
        "notes": files["notes"][0].read_text(encoding="utf-8").replace("- ", "", 1).rstrip().split("\n- "),
        "tests": tests.to_dict("records"),
        "published": published[published["metric"] == table.metric].to_dict("records"),
        "labels": {method.name: method.label for method in table.methods},
        "better": BETTER,
        "worse": WORSE,
    }


def _scores(numbers: pd.DataFrame, settings: TableSettings) -> pd.DataFrame:
    shown = [name for name in settings.published if name in numbers.index]
    return pd.DataFrame({"model": shown, "metric": settings.metric})


def _grid(frame: pd.DataFrame, numbers: pd.DataFrame, settings: TableSettings) -> Grid:
    """Take the columns from the summaries, and the numbers, published rows included, from the table itself."""
    ranked = tuple(method for method in settings.methods if method.scores is None)
    columns = fill(frame, settings.model_copy(update={"methods": ranked})).printed()
    values = numbers.rename(columns={column.header: column.name for column in columns.columns})
    return Grid(columns.columns, columns.averages, values[[column.name for column in columns.columns]])


def _by_method(frame: pd.DataFrame, paths: list[str]) -> dict[str, list[str]]:
    """Summaries by method; `frame` has one block of rows a file, in the order of the files."""
    names = frame.drop_duplicates(["model", "collection"])["model"]
    by_method: dict[str, list[str]] = {}
    for name, path in zip(names, paths, strict=True):
        by_method.setdefault(name, []).append(path)
    return by_method


def _row(method: TableMethod, grid: Grid, cost: Cost | None, sources: Sources) -> dict[str, Any]:
    marks, published = significance_marks(sources.tests), sources.settings.published
    rivals = grid.values.drop(index=[name for name in published if name in grid.values.index])
    cells = []
    for column in grid.columns:
        value = float(grid.values.at[method.name, column.name])
        best = format_number(value) == format_number(rivals[column.name].max()) and len(rivals) > 1
        mark = marks.get((method.name, column.name), "")
        cells.append({"name": column.name, "value": value, "text": format_number(value), "mark": mark})
        cells[-1] |= {"best": best and method.scores is None, "known": value == value}
    letters = {remark: letter for letter, remark in method_remarks(sources.settings)}
    return {
        "name": method.name,
        "label": method.label,
        "letter": letters.get(method.remark, ""),
        "remark": method.remark,
        "family": method.family,
        "published": method.scores is not None,
        "cells": cells,
        "cost": cost,
        "details": {column.name: _details(method, column, sources) for column in grid.columns}
        | ({"cost": _cost_facts(method, cost)} if cost else {}),
    }


def _details(method: TableMethod, column: Column, sources: Sources) -> dict[str, Any]:
    title = f"{method.label} on {column.label}"
    if method.scores is not None:
        facts = [["published number", f"{method.scores.source}, {method.scores.row}"], ["here", "not run, in no test"]]
        return {"title": title, "facts": facts}
    return {"title": title} | cell_facts(method.name, column, sources)


def _cost_facts(method: TableMethod, cost: Cost) -> dict[str, Any]:
    facts = [[rule, html.duration(seconds)] for rule, seconds in sorted(cost.rules.items(), key=lambda item: -item[1])]
    energy = "not measured" if cost.joules is None else f"{cost.joules / 3600:.1f} Wh"
    facts += [["GPU-hours", f"{cost.gpu_hours:.2f}"], ["energy", energy]]
    if cost.steps:
        facts.append(["training", f"{cost.steps:,} steps with {cost.texts:,} texts in their batches"])
    return {"title": f"{method.label}: wall time by stage", "facts": facts}


def _facts(settings: LeaderboardSettings, records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Date, commit, scale and machine of the numbers."""
    newest = max((record["started_unix_s"] + record["seconds"] for record in records), default=0.0)
    code = {
        (record["code"]["commit"] or "no commit")[:10] + (" + changes" if record["code"]["dirty_patch_sha256"] else "")
        for record in records
    }
    machines = {f"{record['environment']['processor']}, {record['environment']['device']}" for record in records}
    return [
        ("evaluated", f"{datetime.fromtimestamp(newest, UTC):%Y-%m-%d %H:%M} UTC"),
        ("commit", ", ".join(sorted(code))),
        ("scale", settings.table.scale),
        ("protocol", settings.table.protocol.name),
        ("source", settings.table.source),
        ("seed", str(settings.seed)),
        ("machine", "; ".join(sorted(machines))),
    ]
