"""Draw figures of the papers from the items' tables. Equal tables have equal bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.errors import ConfigError
from zerodr.evaluation.metrics import LABELS
from zerodr.papers import modules
from zerodr.reporting.claims import draw_claim
from zerodr.reporting.item_inputs import METRIC, ItemParams
from zerodr.reporting.item_tables import method_label
from zerodr.reporting.panels import (
    STYLE,
    bars,
    draw_points,
    interval_rows,
    legend,
    name_points,
    panels,
    style,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_item(stage: Stage) -> None:
    """Read input `table` (tsv of build_item); write `svg` and `png`.

    Raises:
        ConfigError: the item's kind has no figure.
    """
    import matplotlib

    settings = validate(ItemParams, stage.params, stage.spec.name())
    draw = figures().get(settings.item["kind"])
    if draw is None:
        problem = f"is of kind {settings.item['kind']}, which has a table only"
        raise ConfigError(f"{settings.paper}: {settings.name}", problem, f"request {settings.name}.html")
    frame = pd.read_csv(stage.path("table"), sep="\t", comment="#")
    with matplotlib.rc_context(STYLE | {"axes.spines.left": True}):
        figure = draw(frame, settings)
        figure.suptitle(wrapped(figure, settings.item["title"], 10), fontsize=10)
        figure.savefig(stage.output("svg"), format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(stage.output("png"), format="png", dpi=150, metadata={"Software": None})


def _methods(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw differences from the baseline with intervals, a panel a collection."""
    figure, every = panels(len(settings.collections), height=1.1 + 0.28 * len(settings.methods))
    tested = [name for name in settings.methods if name != settings.item["baseline"]]
    for axes, (name, label) in zip(every, settings.collections.items(), strict=True):
        rows = frame[frame["collection"] == name].set_index("method").loc[tested]
        interval_rows(axes, rows["difference"], bars(rows, "difference"), [settings.methods[name] for name in tested])
        axes.axvline(0, color="#888888", linewidth=0.8)
        axes.set_title(label, fontsize=9)
    measure = LABELS.get(key := settings.item.get("measure", METRIC), key)
    baseline = settings.methods[settings.item["baseline"]]
    figure.supxlabel(wrapped(figure, f"{measure} minus that of {baseline}, 95 % interval", 9), fontsize=9)
    return figure


def _similarity(frame: pd.DataFrame, settings: ItemParams) -> Figure:
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


def _episodes(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    figure, every = panels(len(settings.collections))
    key = settings.item.get("measure", METRIC)
    for axes, (name, label) in zip(every, settings.collections.items(), strict=True):
        for number, method in enumerate(settings.item["methods"]):
            rows = frame[(frame["collection"] == name) & (frame["method"] == method)]
            x = np.arange(len(rows)) + 0.03 * (number - (len(settings.item["methods"]) - 1) / 2)
            look = style(number) | {"markersize": 5, "linewidth": 1.0}
            line = method_label(settings, method, rows["stage"].iloc[0])
            axes.errorbar(x, rows[key], yerr=bars(rows, key), label=line, **look)
            axes.set_xticks(range(len(rows)), rows["stage"])
        axes.set_title(label, fontsize=9)
    figure.supylabel(f"{LABELS.get(key, key)}, 95 % interval", fontsize=9)
    legend(figure, every[0])
    return figure


def _sizes(frame: pd.DataFrame, settings: ItemParams) -> Figure:
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
    "methods": _methods,
    "claim": draw_claim,
    "similarity": _similarity,
    "episodes": _episodes,
    "sizes": _sizes,
}


def figures() -> dict[str, Callable[[pd.DataFrame, ItemParams], Figure]]:
    """The functions that draw items, by kind: the core's and the papers'."""
    return FIGURES | {kind: draw for paper in modules("report") for kind, draw in paper.REPORT.figures.items()}
