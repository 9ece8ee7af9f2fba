"""Build and draw items that compare methods and stages by collection."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.item import Item
from zerodr.config.measures import label_of
from zerodr.config.papers import EpisodesItem, MethodsItem, SimilarityItem
from zerodr.errors import ConfigError
from zerodr.evaluation.numbers import fixed, read_tsv
from zerodr.evaluation.significance import few_queries, holm, t_test
from zerodr.papers import modules
from zerodr.reporting.cells import Measured
from zerodr.reporting.claims import draw_claim
from zerodr.reporting.item_inputs import (
    METRIC,
    Gain,
    ItemParams,
    ItemTable,
    by_column,
    correlation,
    gain,
    level,
    mean_note,
    mean_over_collections,
    read_scores,
)
from zerodr.reporting.panels import (
    bars,
    draw_points,
    drawing_style,
    interval_rows,
    legend,
    name_points,
    panels,
    save,
    style,
    svg_of,
    wrapped,
)
from zerodr.reporting.render import mark_of, marks_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIKENESS = ("corpus", "queries", "query_types")
PRINTED_LIKENESS = {
    "jaccard_unigrams": "corpus",
    "document_lexical_similarity": "corpus",
    "query_intent_similarity": "query_types",
}
"""Similarities as the papers call them."""
HOLES = (
    "Hole@k: share of the first k documents without a judgement for the query (pairs), or without one for any query of "
    "the split (corpus)"
)


def methods(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare methods (rows) by collection (columns), with marks of tests against the baseline (Holm correction)."""
    assert isinstance(item, MethodsItem)
    measures: list[str] = [item.measure, *item.beside]
    scores, rows = {key: read_scores(stage.paths("per_query"), key) for key in measures}, []
    for name in settings.collections:
        base = scores[item.measure][item.baseline, name]
        for method in settings.methods:
            values = scores[item.measure][method, name]
            difference = gain(values, base, settings.bootstrap_samples, stage.seed).columns("difference")
            p_value = float(t_test((values - base).to_numpy()[:, None])[0])
            means = {key: float(scores[key][method, name].mean()) for key in measures}
            row = {"method": method, "collection": name, "queries": len(values)}
            rows.append(row | means | difference | {"p_t": p_value})
    frame = pd.DataFrame(rows)
    tested = frame["method"] != item.baseline
    frame.loc[tested, "p_t_holm"] = holm(frame.loc[tested, "p_t"].to_numpy(float))
    notes = [
        f"{label_of(item.measure)}; {marks_note(settings.methods[item.baseline], int(tested.sum()))}",
        *mean_note(settings),
        *few_queries(frame["queries"]),
        *([HOLES] if any(key.startswith("hole") for key in measures) else []),
    ]
    return ItemTable(frame, notes, _pivot(frame, settings, measures), _measured(frame, measures))


def _measured(frame: pd.DataFrame, measures: list[str]) -> Measured:
    return {(row["method"], row["collection"], key): float(row[key]) for _, row in frame.iterrows() for key in measures}


def _pivot(frame: pd.DataFrame, settings: ItemParams, measures: list[str]) -> tuple[list[str], list[list[str]]]:
    header, rows = ["", *settings.collections.values(), "mean"], []
    cells = {(row["method"], row["collection"]): row for _, row in frame.iterrows()}
    for key in measures:
        for method, label in settings.methods.items():
            line = [cells[method, name] for name in settings.collections]
            first = key == measures[0]
            values = [
                f"{fixed(row[key])} {mark_of(row['difference'], row['p_t_holm']) if first else ''}".rstrip()
                for row in line
            ]
            mean = mean_over_collections((row[key] for row in line), settings)
            rows.append([label if first else f"{label_of(key)}: {label}", *values, fixed(float(mean))])
    return header, rows


def similarity(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare similarities with the source (COCO-DR tables 5, 6) with gains over the baseline (figure 2)."""
    assert isinstance(item, SimilarityItem)
    scores = read_scores(stage.paths("per_query"))
    facts = [json.loads(path.read_text(encoding="utf-8")) for path in stage.paths("statistics")]
    likeness, rows = {fact["collection"]: fact["similarity"] for fact in facts}, []
    for name in settings.collections:
        values: dict[str, str | float] = {"collection": name} | {key: likeness[name][key] for key in LIKENESS}
        for method in item.methods:
            values |= _gain(scores, method, item.baseline, name, settings, stage).columns(f"gain.{method}")
        rows.append(values)
    frame = pd.DataFrame(rows).sort_values("corpus", ascending=False, kind="stable").reset_index(drop=True)
    notes = [
        f"similarity with {settings.source}: weighted Jaccard of word frequencies of documents and of queries, and "
        f"of shares of nine query types; gain: nDCG@10 minus that of {settings.methods[item.baseline]}, with 95 % "
        "intervals over queries"
    ]
    points = by_column(frame, settings)
    notes += [
        correlation(points[key], points[f"gain.{m}"], f"similarity of {what} and gain of {settings.methods[m]}")
        for m in item.methods
        for key, what in (("corpus", "documents"), ("query_types", "query types"))
    ]
    notes += mean_note(settings, "correlations")
    pairs = (f"{settings.methods[m]} - {settings.methods[item.baseline]}" for m in item.methods)
    header, shown = ["", "documents", "queries", "query types", *pairs], []
    for _, row in frame.iterrows():
        gains = (str(Gain.of(row, f"gain.{m}")) for m in item.methods)
        shown.append([settings.collections[row["collection"]], *(f"{row[key]:.3f}" for key in LIKENESS), *gains])
    return ItemTable(frame, notes, (header, shown), _likeness(frame, item))


def _likeness(frame: pd.DataFrame, item: SimilarityItem) -> Measured:
    measured: dict[tuple[str, str, str], float | str] = {}
    for _, row in frame.iterrows():
        for name, key in PRINTED_LIKENESS.items():
            measured["", row["collection"], name] = float(row[key])
        for method in item.methods:
            measured[method, row["collection"], f"{METRIC}_over_bm25"] = float(row[f"gain.{method}"])
    return measured


def episodes(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare methods after each stage (COCO-DR figures 4, 6; MoMA figure 4)."""
    assert isinstance(item, EpisodesItem)
    scores, rows = read_scores(stage.paths("per_query"), item.measure), []
    stages = list(dict.fromkeys(name.partition("@")[2] for name in settings.methods))
    for name in settings.collections:
        for method in item.methods:
            for at in stages:
                values = scores[f"{method}@{at}", name]
                mean = level(values, settings.bootstrap_samples, stage.seed)
                rows.append({"collection": name, "method": method, "stage": at, **mean.columns(item.measure)})
    frame = pd.DataFrame(rows)
    header = ["", "method", *stages]
    shown = [
        [settings.collections[name], methodlabel_of(settings, method, stages[0]), *map(fixed, line[item.measure])]
        for (name, method), line in frame.groupby(["collection", "method"], sort=False)
    ]
    note = f"{label_of(item.measure)} after each stage; in the figure with 95 % intervals over queries"
    return ItemTable(frame, [note], (header, shown))


def methodlabel_of(settings: ItemParams, method: str, stage: str) -> str:
    """Return the label of a method without the stage that the label of `<method>@<stage>` ends with."""
    return settings.methods[f"{method}@{stage}"].removesuffix(f" @{stage}")


def _gain(scores: dict, method: str, baseline: str, name: str, settings: ItemParams, stage: Stage) -> Gain:
    return gain(scores[method, name], scores[baseline, name], settings.bootstrap_samples, stage.seed)


def plot_item(stage: Stage) -> None:
    """Read input `table` (tsv of build_item); write `svg` and `png`.

    Raises:
        ConfigError: the item's kind has no figure.
    """
    settings = validate(ItemParams, stage.params, stage.spec.name())
    draw = figures().get(settings.item["kind"])
    if draw is None:
        problem = f"is of kind {settings.item['kind']}, which has a table only"
        raise ConfigError(f"{settings.paper}: {settings.name}", problem, f"request {settings.name}.html")
    frame = read_tsv(stage.path("table"))
    with drawing_style(left=True):
        figure = draw(frame, settings)
        figure.suptitle(wrapped(figure, settings.item["title"], 10), fontsize=10)
        save(figure, stage.output("svg"), stage.output("png"))


def drawn(table: Path, settings: ItemParams) -> str:
    """Draw an item's table as an element of its page."""
    with drawing_style(left=True):
        return svg_of(figures()[settings.item["kind"]](read_tsv(table), settings))


def draw_methods(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw differences from the baseline with intervals, a panel a collection."""
    figure, every = panels(len(settings.collections), height=1.1 + 0.28 * len(settings.methods))
    tested = [name for name in settings.methods if name != settings.item["baseline"]]
    for axes, (name, label) in zip(every, settings.collections.items(), strict=True):
        rows = frame[frame["collection"] == name].set_index("method").loc[tested]
        interval_rows(axes, rows["difference"], bars(rows, "difference"), [settings.methods[name] for name in tested])
        axes.axvline(0, color="#888888", linewidth=0.8)
        axes.set_title(label, fontsize=9)
    measure = label_of(settings.item.get("measure", METRIC))
    baseline = settings.methods[settings.item["baseline"]]
    figure.supxlabel(wrapped(figure, f"{measure} minus that of {baseline}, 95 % interval", 9), fontsize=9)
    return figure


def draw_similarity(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw gains against similarities with the source, a panel a kind of similarity."""
    figure, every = panels(2)
    names = [settings.collections[name] for name in frame["collection"]]
    for axes, (key, what) in zip(every, (("query_types", "query types"), ("corpus", "documents")), strict=True):
        for number, method in enumerate(settings.item["methods"]):
            draw_points(axes, frame, key, f"gain.{method}", settings.methods[method], number)
        name_points(axes, frame[key], frame[f"gain.{settings.item['methods'][0]}"], names)
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(f"similarity of {what} with {settings.source}")
    every[0].set_ylabel(f"nDCG@10 minus that of {settings.methods[settings.item['baseline']]}")
    legend(figure, every[0])
    return figure


def draw_episodes(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw a measure after each stage, a panel a collection and a line a method."""
    figure, every = panels(len(settings.collections))
    key = settings.item.get("measure", METRIC)
    for axes, (name, label) in zip(every, settings.collections.items(), strict=True):
        for number, method in enumerate(settings.item["methods"]):
            rows = frame[(frame["collection"] == name) & (frame["method"] == method)]
            x = np.arange(len(rows)) + 0.03 * (number - (len(settings.item["methods"]) - 1) / 2)
            look = style(number) | {"markersize": 5, "linewidth": 1.0}
            line = methodlabel_of(settings, method, rows["stage"].iloc[0])
            axes.errorbar(x, rows[key], yerr=bars(rows, key), label=line, **look)
            axes.set_xticks(range(len(rows)), rows["stage"])
        axes.set_title(label, fontsize=9)
    figure.supylabel(f"{label_of(key)}, 95 % interval", fontsize=9)
    legend(figure, every[0])
    return figure


def draw_sizes(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw the mean over collections against the number of parameters."""
    from matplotlib.ticker import EngFormatter

    figure, (axes,) = panels(1, width=5, height=3.8)
    axes.plot(frame["parameters"], frame[METRIC], linestyle="", markersize=6, **style(0))
    axes.set_xscale("log")
    for which in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        which(EngFormatter(sep=""))
    axes.set_xlabel("parameters")
    axes.set_ylabel("nDCG@10, mean of the collections")
    name_points(axes, frame["parameters"], frame[METRIC], [settings.methods[name] for name in frame["method"]])
    return figure


FIGURES: dict[str, Callable[[pd.DataFrame, ItemParams], Figure]] = {
    "methods": draw_methods,
    "claim": draw_claim,
    "similarity": draw_similarity,
    "episodes": draw_episodes,
    "sizes": draw_sizes,
}


def figures() -> dict[str, Callable[[pd.DataFrame, ItemParams], Figure]]:
    """Return the functions that draw items, by kind: those here and those of papers."""
    return FIGURES | {kind: draw for paper in modules("report") for kind, draw in paper.REPORT.figures.items()}
