"""Draw figures of items about source and target in a model's space from their tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from zerodr.reporting.item_inputs import METRIC, ItemParams
from zerodr.reporting.panels import COLORS, blank, legend, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = {"domain_accuracy": "Domain-Acc (dashed: local)", "knn_source": "KNN-Source%", METRIC: "nDCG@10"}
MARK = {"queries": "^", "documents": "o"}
DOMAINS = {"source": COLORS[0], "target": COLORS[4]}  # blue and orange, as in MoDIR's figure 4


def draw_domains(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw a column a target: Domain-Acc, KNN-Source%, nDCG@10 over steps, and Domain-Acc against nDCG@10."""
    from matplotlib.ticker import PercentFormatter

    figure, grid = blank(len(ROWS) + 1, len(settings.collections))
    for column, (target, label) in enumerate(settings.collections.items()):
        grid[0, column].set_title(label, fontsize=9)
        for number, method in enumerate(settings.points):
            rows = frame[(frame["collection"] == target) & (frame["method"] == method)]
            steps, look, label = rows["steps"], style(number) | {"markersize": 4}, settings.methods[method]
            for axes, key in zip(grid[:, column], ROWS, strict=False):
                axes.plot(steps, rows[key], label=label, linewidth=1.2, **look)
            grid[0, column].plot(steps, rows["local_accuracy"], linestyle="--", linewidth=1.0, color=look["color"])
            interval = rows[f"{METRIC}_low"], rows[f"{METRIC}_high"]
            grid[2, column].fill_between(steps, *interval, alpha=0.12, linewidth=0, color=look["color"])
            grid[3, column].plot(rows["domain_accuracy"], rows[METRIC], linewidth=0.8, **look)
        rate = frame.loc[frame["collection"] == target, "knn_base_rate"].iloc[0]
        grid[1, column].yaxis.set_major_formatter(PercentFormatter(1.0))
        grid[1, column].axhline(rate, color="#888888", linewidth=0.8, linestyle=":")
        grid[2, column].set_xlabel("steps")
        grid[3, column].set_xlabel("Domain-Acc")
    for axes, label in zip(grid[:, 0], [*ROWS.values(), "nDCG@10"], strict=True):
        axes.set_ylabel(label)
    legend(figure, grid[0, 0])
    return figure


def draw_projections(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw a row a target and line, a picture a model; lines of one model share a row."""
    sizes = [len(models) for models in settings.points.values()]
    rows = [sum(sizes)] if max(sizes) == 1 else sizes
    every = list(pictures(settings))
    figure, grid = blank(len(settings.collections) * len(rows), max(rows), 2.8, 2.8)
    lines = [(line, size) for _ in settings.collections for line, size in enumerate(rows)]
    cells = [(row, column) for row, (_, size) in enumerate(lines) for column in range(size)]
    for axes in grid.ravel():
        axes.set_axis_off()
    for cell, (target, model, label) in zip(cells, every, strict=True):
        points = frame[(frame["collection"] == target) & (frame["model"] == model) & (frame["picture"] == label)]
        _picture(grid[cell], points, f"{settings.collections[target]}: {label}")
    legend(figure, grid[0, 0], markers=2.5)
    return figure


def _picture(axes: Axes, points: pd.DataFrame, title: str) -> None:
    for (domain, kind), rows in points.groupby(["domain", "kind"], sort=False):
        look: Any = {"color": DOMAINS[str(domain)], "marker": MARK[str(kind)], "label": f"{domain}, {kind}"}
        axes.scatter(rows["x"], rows["y"], s=7, alpha=0.6, linewidths=0, **look)
    axes.set_title(title, fontsize=7)


def pictures(settings: ItemParams) -> Iterator[tuple[str, str, str]]:
    """Target, model and label of every picture, line by line; a model once in each line."""
    for target in settings.collections:
        for method, models in settings.points.items():
            for model, steps in models.items():
                label = settings.methods.get(method, settings.methods[model])
                yield target, model, f"{label}, step {steps}" if len(models) > 1 else label
