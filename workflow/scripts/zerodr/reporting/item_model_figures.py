"""Draw figures of items about models from their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from zerodr.papers.modir.report import pictures
from zerodr.reporting.item_inputs import METRIC, ItemParams
from zerodr.reporting.item_models import UNIT_LABELS
from zerodr.reporting.panels import COLORS, bars, blank, interval_rows, legend, panels, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = {"domain_accuracy": "Domain-Acc (dashed: local)", "knn_source": "KNN-Source%", METRIC: "nDCG@10"}
MARK = {"queries": "^", "documents": "o"}
DOMAINS = {"source": COLORS[0], "target": COLORS[4]}  # blue and orange, as in MoDIR's figure 4


def domains(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw a column a target: Domain-Acc, KNN-Source%, nDCG@10 over steps, and Domain-Acc against nDCG@10."""
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
        grid[1, column].axhline(rate, color="#888888", linewidth=0.8, linestyle=":")
        grid[2, column].set_xlabel("steps")
        grid[3, column].set_xlabel("Domain-Acc")
    for axes, label in zip(grid[:, 0], [*ROWS.values(), "nDCG@10"], strict=True):
        axes.set_ylabel(label)
    legend(figure, grid[0, 0])
    return figure


def projections(frame: pd.DataFrame, settings: ItemParams) -> Figure:
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


def units(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw a panel a measure, a row a method."""
    measures, names = settings.item["measures"], list(settings.item["methods"])
    figure, every = panels(len(measures), height=1.0 + 0.28 * len(names))
    for axes, measure in zip(every, measures, strict=True):
        rows = frame[frame["measure"] == measure].set_index("method").loc[names]
        rows = rows.rename(columns={"low": "mean_low", "high": "mean_high"})
        interval_rows(axes, rows["mean"], bars(rows, "mean"), [settings.methods[name] for name in names])
        axes.set_title(UNIT_LABELS.get(measure, measure), fontsize=9)
    return figure


def adaptation(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw a panel a collection: nDCG@10 over steps on the target; references as level lines."""
    figure, every = panels(len(settings.collections))
    for axes, (name, label) in zip(every, settings.collections.items(), strict=True):
        for number, line in enumerate(settings.points):
            rows = frame[(frame["collection"] == name) & (frame["line"] == line)]
            if rows["reference"].iloc[0]:
                look = {"color": style(number)["color"], "linestyle": "--", "linewidth": 1.0}
                axes.axhline(rows[METRIC].iloc[0], label=settings.methods[line], **look)
            else:
                look = style(number) | {"markersize": 4, "linewidth": 1.2}
                axes.errorbar(rows["steps"], rows[METRIC], yerr=bars(rows, METRIC), label=line, **look)
        axes.set_title(label, fontsize=9)
        axes.set_xlabel("steps on the target's texts")
    every[0].set_ylabel("nDCG@10")
    legend(figure, every[0])
    return figure
