"""Figures of items that look into models, drawn from their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zerodr.papers.modir.report import pictures
from zerodr.reporting.figure import COLORS
from zerodr.reporting.item_inputs import METRIC, ItemParams
from zerodr.reporting.item_models import UNIT_LABELS
from zerodr.reporting.panels import blank, legend, panels, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = {"domain_accuracy": "Domain-Acc (dashed: local)", "knn_source": "KNN-Source%", METRIC: "nDCG@10"}
MARK = {"queries": "^", "documents": "o"}
DOMAINS = {"source": COLORS[0], "target": COLORS[4]}  # blue and orange, as in MoDIR's figure 4


def domains(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """A column a target: Domain-Acc, KNN-Source%, nDCG@10 over steps, and Domain-Acc against nDCG@10."""
    figure, grid = blank(len(ROWS) + 1, len(settings.collections))
    for column, (target, label) in enumerate(settings.collections.items()):
        grid[0, column].set_title(label, fontsize=9)
        for number, method in enumerate(settings.points):
            own = frame[(frame["collection"] == target) & (frame["method"] == method)]
            for axes, key in zip(grid[:, column], ROWS, strict=False):
                axes.plot(
                    own["steps"], own[key], label=settings.methods[method], markersize=4, linewidth=1.2, **style(number)
                )
            grid[0, column].plot(
                own["steps"], own["local_accuracy"], linestyle="--", linewidth=1.0, color=style(number)["color"]
            )
            grid[2, column].fill_between(
                own["steps"],
                own[f"{METRIC}_low"],
                own[f"{METRIC}_high"],
                alpha=0.12,
                linewidth=0,
                color=style(number)["color"],
            )
            grid[3, column].plot(own["domain_accuracy"], own[METRIC], markersize=4, linewidth=0.8, **style(number))
        rate = frame.loc[frame["collection"] == target, "knn_base_rate"].iloc[0]
        grid[1, column].axhline(rate, color="#888888", linewidth=0.8, linestyle=":")
        grid[2, column].set_xlabel("steps")
        grid[3, column].set_xlabel("Domain-Acc")
    for axes, label in zip(grid[:, 0], [*ROWS.values(), "nDCG@10"], strict=True):
        axes.set_ylabel(label)
    legend(figure, grid[0, 0])
    return figure


def projections(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """A row a target and line, a picture a model; lines of one model stand side by side."""
    sizes = [len(models) for models in settings.points.values()]
    rows = [sum(sizes)] if max(sizes) == 1 else sizes
    every = list(pictures(settings))
    figure, grid = blank(len(settings.collections) * len(rows), max(rows), 2.8, 2.8)
    places = [
        (target * len(rows) + line, column)
        for target in range(len(settings.collections))
        for line, size in enumerate(rows)
        for column in range(size)
    ]
    for axes in grid.ravel():
        axes.set_axis_off()
    for place, (target, model, label) in zip(places, every, strict=True):
        own = frame[(frame["collection"] == target) & (frame["model"] == model) & (frame["picture"] == label)]
        _picture(grid[place], own, f"{settings.collections[target]}: {label}")
    legend(figure, grid[0, 0], markers=2.5)
    return figure


def _picture(axes: Axes, points: pd.DataFrame, title: str) -> None:
    for (domain, kind), own in points.groupby(["domain", "kind"], sort=False):
        axes.scatter(
            own["x"],
            own["y"],
            s=7,
            alpha=0.6,
            linewidths=0,
            color=DOMAINS[str(domain)],
            marker=MARK[str(kind)],
            label=f"{domain}, {kind}",
        )
    axes.set_title(title, fontsize=7)


def units(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """A panel a measure, a row a method."""
    measures, names = settings.item["measures"], list(settings.item["methods"])
    figure, every = panels(len(measures), height=1.0 + 0.28 * len(names))
    for axes, measure in zip(every, measures, strict=True):
        own = frame[frame["measure"] == measure].set_index("method").loc[names]
        bars = np.abs(own[["low", "high"]].to_numpy().T - own["mean"].to_numpy())
        axes.errorbar(
            own["mean"], range(len(names)), xerr=bars, linestyle="", marker="o", markersize=5, color=COLORS[0]
        )
        axes.set_yticks(range(len(names)), [settings.methods[name] for name in names], fontsize=7)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_title(UNIT_LABELS.get(measure, measure), fontsize=9)
    return figure


def adaptation(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """A panel a collection: nDCG@10 over steps on the target; references as level lines."""
    figure, every = panels(len(settings.collections))
    for axes, (name, label) in zip(every, settings.collections.items(), strict=True):
        for number, line in enumerate(settings.points):
            own = frame[(frame["collection"] == name) & (frame["line"] == line)]
            if own["reference"].iloc[0]:
                axes.axhline(
                    own[METRIC].iloc[0],
                    color=style(number)["color"],
                    linestyle="--",
                    linewidth=1.0,
                    label=settings.methods[line],
                )
                continue
            bars = np.abs(own[[f"{METRIC}_low", f"{METRIC}_high"]].to_numpy().T - own[METRIC].to_numpy())
            axes.errorbar(
                own["steps"], own[METRIC], yerr=bars, label=line, markersize=4, linewidth=1.2, **style(number)
            )
        axes.set_title(label, fontsize=9)
        axes.set_xlabel("steps on the target's texts")
    every[0].set_ylabel("nDCG@10")
    legend(figure, every[0])
    return figure
