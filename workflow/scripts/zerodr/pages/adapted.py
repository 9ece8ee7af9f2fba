"""Stage `build_adapted_page`: one page about a comparison of candidates on a folder; it needs no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup
from pydantic import Field

from zerodr.artifacts.record import Record
from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.params import Candidate
from zerodr.lineage.graph import Graph
from zerodr.lineage.tree import render_tree
from zerodr.pages.costs import Cost, cost_by_rule, jobs_above
from zerodr.pages.html import fill
from zerodr.reporting.panels import COLORS, TEXT, blank, drawing_style, row_labels, svg_of

MEAN = "mean"
SIDES = ("left", "right")
SHOWN_RULES = 6
PANEL, ROW = 1.9, 0.27  # width of a panel and height of a row, in inches
NEW, OLD = (COLORS[0], "D"), ("#9a5b00", "o")  # colour and marker, as templates/adapted.html names them


class AdaptedPageSettings(Settings):
    """Settings of `build_adapted_page`."""

    collection: str
    """Name of the folder's collection."""
    label: str
    """Its name in headings."""
    command: str
    """The command that makes the page again."""
    methods: tuple[Candidate, ...] = Field(min_length=2)
    """The candidates."""


def build_adapted_page(stage: Stage) -> None:
    """Read inputs `answer` and `model`; write `page`."""
    settings = validate(AdaptedPageSettings, stage.params, stage.spec.name())
    home, graph = stage.path("answer"), Graph()
    answer, examples = (
        json.loads((home / f"{name}.json").read_text(encoding="utf-8")) for name in ("answer", "examples")
    )
    table = pd.read_csv(home / "comparison.tsv", sep="\t")
    if len(answer["kinds"]) == 1:  # the mean is the one kind that decides
        table = table[table["kind"] != MEAN].reset_index(drop=True)
    labels = {method.name: method.label for method in settings.methods}
    adapted = {method.name for method in settings.methods if method.adapted}
    manifests = [str(path) for name in ("answer", "model") for path in stage.paths(name)]
    page = fill(
        "adapted.html",
        title=f"{settings.label}: does adapting help?",
        collection=settings.collection,
        sentences=answer["sentences"],
        undecided=answer["verdict"] == "undecided",
        plot=draw(table, labels, adapted),
        kinds=headings(table),
        rows=rows(table, settings, answer["choice"]),
        has_proxies=bool(table["proxy"].any()),
        remarks=remarks(settings),
        examples=described(examples, labels),
        costs=costs(jobs_above(graph, manifests)),
        has_model=(stage.path("model") / "config.json").exists() or (stage.path("model") / "modules.json").exists(),
        command=settings.command,
        trees=[render_tree(graph, path) for path in manifests],
    )
    stage.output("page").write_text(page, encoding="utf-8")


def draw(table: pd.DataFrame, labels: dict[str, str], adapted: set[str]) -> Markup:
    """Draw means and 95 % intervals, a panel a kind of queries, a row a candidate.

    Args:
        table: columns kind, proxy, method, queries, value, low, high.
        labels: printed name of each method, in the order of the rows.
        adapted: methods that learned from the documents, which are diamonds.
    """
    kinds = {str(kind): rows.set_index("method") for kind, rows in table.groupby("kind", sort=False)}
    with drawing_style(svg=TEXT):
        figure, grid = blank(1, len(kinds), PANEL, ROW * len(labels))
        for axes, (kind, rows) in zip(grid[0], kinds.items(), strict=True):
            for number, name in enumerate(labels):
                row, (color, marker) = rows.loc[name], NEW if name in adapted else OLD
                axes.hlines(number, row["low"], row["high"], color=color, linewidth=1.8)
                axes.plot(row["value"], number, color=color, marker=marker, markersize=5)
            shown = labels.values() if axes is grid[0][0] else [""] * len(labels)
            row_labels(axes, list(shown), 9)
            axes.tick_params(axis="y", length=0)
            axes.set_title(f"{kind} (proxy)" if rows["proxy"].all() else kind, loc="left", fontsize=9)
        return svg_of(figure)


def headings(table: pd.DataFrame) -> list[dict[str, Any]]:
    """List the kinds of queries with their sizes, the mean last."""
    kinds = table.drop_duplicates("kind")
    return kinds[["kind", "proxy", "queries"]].to_dict("records")


def rows(table: pd.DataFrame, settings: AdaptedPageSettings, choice: str) -> list[dict[str, Any]]:
    """Return a row a candidate: its label, whether it is adapted or chosen, and a cell a kind of queries."""
    cells = {name: lines.to_dict("records") for name, lines in table.groupby("method", sort=False)}
    return [
        {"label": one.label, "adapted": one.adapted, "chosen": one.name == choice, "cells": cells[one.name]}
        for one in settings.methods
    ]


def remarks(settings: AdaptedPageSettings) -> dict[str, str]:
    """Map each footnote to the candidates that it is about."""
    notes: dict[str, list[str]] = {}
    for method in settings.methods:
        if method.remark:
            notes.setdefault(method.remark, []).append(method.label)
    return {remark: ", ".join(names) for remark, names in notes.items()}


def described(examples: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """Put labels to the queries on which one candidate gained and lost most against another."""
    names = [labels[examples[side]] for side in SIDES]
    queries = [
        query | {"sides": [query[side] | {"label": name} for side, name in zip(SIDES, names, strict=True)]}
        for query in examples["queries"]
    ]
    return {"names": names, "queries": queries}


def costs(jobs: Sequence[Record]) -> dict[str, Cost]:
    """Add up jobs: all of them, those of each of the longest rules, and the others together."""
    longest = list(cost_by_rule(jobs))[:SHOWN_RULES]
    lines = {"all jobs": Cost(), **{rule: Cost() for rule in longest}}
    for record in jobs:
        lines["all jobs"].add(record)
        lines.setdefault(record["rule"] if record["rule"] in longest else "all others", Cost()).add(record)
    return lines
