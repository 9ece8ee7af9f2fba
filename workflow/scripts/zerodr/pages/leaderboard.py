"""Build the leaderboard: the main table as a page to sort and filter, with the story of each cell behind it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.measures import label_of
from zerodr.evaluation.numbers import fixed, p_value, read_tsv, signed
from zerodr.lineage.graph import Graph, render_tree
from zerodr.pages import html
from zerodr.pages.costs import Cost, cost_of, jobs_above
from zerodr.plan import paths
from zerodr.plan.targets import command
from zerodr.reporting.grid import Column, Grid, TableMethod, TableSettings, fill, further, read_summaries
from zerodr.reporting.published import nothing_published, without_empty
from zerodr.reporting.render import BETTER, WORSE, method_remarks, significance_marks

Files = Mapping[str, list[Path]]
COST = "wall time"  # key of a row's cell; with a blank, as a collection may be called cost
LEVELS = 2  # of the lineage that is shown; the command shows all


@dataclass(frozen=True)
class CellSources:
    """Tables and lineage that the facts of cells are read from.

    Attributes:
        graph: the checkout's lineage.
        words: `--config` words of commands.
        choice: further words of commands that make the whole table.
        selection: name of the table's collections in paths.
        settings: of the table.
        frame: all summaries, as `read_summaries` gives them.
        tests: significance tests.
        published: comparison with published numbers.
        folder: of the table's files, as seen from the page.
    """

    graph: Graph
    words: tuple[str, ...]
    choice: tuple[str, ...]
    selection: str
    settings: TableSettings
    frame: pd.DataFrame
    tests: pd.DataFrame
    published: pd.DataFrame
    folder: str = ""


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
    settings = validate(LeaderboardSettings, stage.params, stage.spec.rule)
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
    numbers = read_tsv(files["table"][0]).set_index("model")
    table, _ = without_empty(settings.table, _scores(numbers, settings.table))
    grid = _grid(frame, numbers, table)
    tests = read_tsv(files["significance"][0])
    published = read_tsv(files["published"][0])
    sources = CellSources(
        graph, settings.words, settings.choice, settings.selection, table, frame, tests, published, folder
    )
    paths = _by_method(frame, summaries)
    costs = {name: cost_of(jobs_above(graph, files)) for name, files in paths.items()}
    rows = [_row(method, grid, costs.get(method.name), sources) for method in table.methods]
    records = [record for path in summaries if (record := graph.record(path)) is not None]
    return {
        "title": f"zerodr: {settings.selection}",
        "selection": settings.selection,
        "metric": label_of(table.metric),
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
        "further": {label_of(name): other for name, other in further(frame, table).items()},
        "tests": tests.to_dict("records"),
        "published": published[published["metric"] == table.metric].to_dict("records"),
        "nothing_published": nothing_published(published, table.metric),
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
    """Group summary files by method; `frame` has one block of rows a file, in the order of the files."""
    names = frame.drop_duplicates(["model", "collection"])["model"]
    by_method: dict[str, list[str]] = {}
    for name, path in zip(names, paths, strict=True):
        by_method.setdefault(name, []).append(path)
    return by_method


def _row(method: TableMethod, grid: Grid, cost: Cost | None, sources: CellSources) -> dict[str, Any]:
    marks, published = significance_marks(sources.tests), sources.settings.published
    rivals = grid.values.drop(index=[name for name in published if name in grid.values.index])
    cells = []
    for column in grid.columns:
        value = float(grid.values.at[method.name, column.name])
        best = fixed(value) == fixed(rivals[column.name].max()) and len(rivals) > 1
        mark = marks.get((method.name, column.name), "")
        cells.append({"name": column.name, "value": value, "text": fixed(value), "mark": mark})
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
        | ({COST: _cost_facts(method, cost)} if cost else {}),
    }


def _details(method: TableMethod, column: Column, sources: CellSources) -> dict[str, Any]:
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
        facts.append(["training", f"{cost.steps:,} steps with {cost.examples:,} examples in their batches"])
    return {"title": f"{method.label}: wall time by stage", "facts": facts}


def _facts(settings: LeaderboardSettings, records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Date, commit, scale and machine of the numbers."""
    newest = max((record["started_unix_s"] + record["seconds"] for record in records), default=0.0)
    code = {_commit(record["code"]) for record in records}
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


def _commit(code: dict[str, Any]) -> str:
    """Ten letters of a commit, and whether files had changed; else why there is none."""
    if code["commit"] is None:
        return f"no commit ({code.get('reason', 'no reason recorded')})"
    return code["commit"][:10] + (" + changes" if code["dirty_patch_sha256"] else "")


def cell_facts(method: str, column: Column, sources: CellSources) -> dict[str, Any]:
    """Return `facts` (name, text), `links` (name, address), `commands` (purpose, command) and `lineage` of a cell."""
    if column.members != (column.name,):
        return _mean_facts(method, column, sources)
    summary = paths.summary(method, column.name, sources.settings.protocol.name)
    explained = shlex.join(["zerodr", "explain", summary, *(f"--config={word}" for word in sources.words)])
    commands = [["make it", command(summary, sources.words)], ["explain it", explained]]
    commands.append(["its sources", f"zerodr lineage {summary}"])
    known = sources.graph.record(summary) is not None
    return {
        "facts": [
            *_number(method, column.name, sources),
            *_test(method, column.name, sources),
            *_published(method, column.name, sources),
        ],
        "links": _links(method, column.name, sources),
        "commands": commands,
        "lineage": render_tree(sources.graph, summary, depth=LEVELS) if known else "no record",
    }


def _mean_facts(method: str, column: Column, sources: CellSources) -> dict[str, Any]:
    facts = [["mean over", ", ".join(column.members)], *_published(method, column.name, sources)]
    table = paths.beir(f"{sources.selection}.tsv")
    return {"facts": facts, "commands": [["make it", command(table, (*sources.words, *sources.choice))]]}


def _number(method: str, collection: str, sources: CellSources) -> list[list[str]]:
    frame = sources.frame
    rows = frame[(frame["model"] == method) & (frame["collection"] == collection)]
    row = rows[rows["metric"] == sources.settings.metric]
    if row.empty:
        return [["ranking", "none: this method has no run of the collection"]]
    first = row.iloc[0]
    interval = f"{fixed(float(first['low']))} to {fixed(float(first['high']))}"
    value = [label_of(sources.settings.metric), fixed(float(first["value"]))]
    return [value, ["95 % interval", interval], ["queries", f"{int(first['queries'])} of split {first['split']}"]]


def _test(method: str, collection: str, sources: CellSources) -> list[list[str]]:
    tests = sources.tests
    rows = tests[(tests["method"] == method) & (tests["collection"] == collection)]
    if rows.empty:
        return []
    test = rows.iloc[0]
    labels = {row.name: row.label for row in sources.settings.methods}
    gain = f"{signed(test['difference'])}, 95 % interval {signed(test['low'])} to {signed(test['high'])}"
    p = f"{p_value(test['p_t_holm'])} (t-test), {p_value(test['p_randomization_holm'])} (randomisation), after Holm"
    queries = f"{int(test['wins'])} better, {int(test['losses'])} worse, {int(test['ties'])} equal"
    return [[f"against {labels.get(test['baseline'], test['baseline'])}", gain], ["p", p], ["by query", queries]]


def _published(method: str, collection: str, sources: CellSources) -> list[list[str]]:
    frame = sources.published
    rows = frame[(frame["method"] == method) & (frame["collection"] == collection)]
    rows = rows[rows["metric"] == sources.settings.metric]
    return [
        [row.kind, f"{row.reference} ({row.verdict}, {signed(float(row.difference))}): {row.source}"]
        for row in rows.itertuples()
    ]


def _links(method: str, collection: str, sources: CellSources) -> list[list[str]]:
    if sources.tests.empty or method == (baseline := sources.tests["baseline"].iloc[0]):
        return []
    if baseline not in set(sources.frame.loc[sources.frame["collection"] == collection, "model"]):
        return []  # an imported baseline without a run of the collection
    page = f"{sources.folder}{sources.selection}/queries/{collection}/{method}.html"
    return [["query by query, against the baseline", page]]
