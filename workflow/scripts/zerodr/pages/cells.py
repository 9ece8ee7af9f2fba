"""Tell where one cell of the main table comes from: interval, test, published values, commands, lineage."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from zerodr.lineage.graph import Graph
from zerodr.lineage.tree import render_tree
from zerodr.plan import paths
from zerodr.reporting.grid import Column
from zerodr.reporting.render import shown_p
from zerodr.reporting.settings import TableSettings

PROFILE = "config/profiles/mini"
LEVELS = 2  # of the lineage that is shown; the command shows all


@dataclass(frozen=True)
class Sources:
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


def cell_facts(method: str, column: Column, sources: Sources) -> dict[str, Any]:
    """Return `facts` (name, text), `links` (name, address), `commands` (purpose, command) and `lineage` of a cell."""
    if column.members != (column.name,):
        return _mean_facts(method, column, sources)
    summary = paths.summary(method, column.name, sources.settings.protocol.name)
    commands = [["make it", command(summary, sources.words)], ["explain it", f"python -m zerodr explain {summary}"]]
    commands.append(["its sources", f"python -m zerodr lineage {summary}"])
    known = sources.graph.record(summary) is not None
    return {
        "facts": [
            *_interval(method, column.name, sources),
            *_test(method, column.name, sources),
            *_published(method, column.name, sources),
        ],
        "links": _links(method, column.name, sources),
        "commands": commands,
        "lineage": render_tree(sources.graph, summary, depth=LEVELS) if known else "no record",
    }


def command(target: str, words: Iterable[str]) -> str:
    """Write the command that makes a target."""
    return shlex.join(["snakemake", "--profile", PROFILE, target, "--config", *words])


def _mean_facts(method: str, column: Column, sources: Sources) -> dict[str, Any]:
    facts = [["mean over", ", ".join(column.members)], *_published(method, column.name, sources)]
    table = paths.beir(f"{sources.selection}.tsv")
    return {"facts": facts, "commands": [["make it", command(table, (*sources.words, *sources.choice))]]}


def _interval(method: str, collection: str, sources: Sources) -> list[list[str]]:
    frame = sources.frame
    rows = frame[(frame["model"] == method) & (frame["collection"] == collection)]
    row = rows[rows["metric"] == sources.settings.metric]
    if row.empty:
        return [["ranking", "none: this method has no run of the collection"]]
    first = row.iloc[0]
    interval = f"{float(first['low']):.4f} to {float(first['high']):.4f}"
    return [["95 % interval", interval], ["queries", f"{int(first['queries'])} of split {first['split']}"]]


def _test(method: str, collection: str, sources: Sources) -> list[list[str]]:
    tests = sources.tests
    rows = tests[(tests["method"] == method) & (tests["collection"] == collection)]
    if rows.empty:
        return []
    test = rows.iloc[0]
    labels = {row.name: row.label for row in sources.settings.methods}
    gain = f"{test['difference']:+.4f}, 95 % interval {test['low']:+.4f} to {test['high']:+.4f}"
    p = f"{shown_p(test['p_t_holm'])} (t-test), {shown_p(test['p_randomization_holm'])} (randomisation), after Holm"
    queries = f"{int(test['wins'])} better, {int(test['losses'])} worse, {int(test['ties'])} equal"
    return [[f"against {labels.get(test['baseline'], test['baseline'])}", gain], ["p", p], ["by query", queries]]


def _published(method: str, collection: str, sources: Sources) -> list[list[str]]:
    frame = sources.published
    rows = frame[(frame["method"] == method) & (frame["collection"] == collection)]
    rows = rows[rows["metric"] == sources.settings.metric]
    return [
        [row.kind, f"{row.reference} ({row.verdict}, {float(row.difference):+.4f}): {row.source}"]
        for row in rows.itertuples()
    ]


def _links(method: str, collection: str, sources: Sources) -> list[list[str]]:
    if sources.tests.empty or method == sources.tests["baseline"].iloc[0]:
        return []
    page = f"{sources.folder}{sources.selection}/queries/{collection}/{method}.html"
    return [["query by query, against the baseline", page]]
