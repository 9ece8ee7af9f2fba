"""Figures of the papers, drawn from the items' tables. Equal tables give equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.errors import ConfigError
from zerodr.evaluation.metrics import LABELS
from zerodr.papers.moma import report as item_memories
from zerodr.reporting import item_model_figures
from zerodr.reporting.figure import COLORS, STYLE
from zerodr.reporting.item_inputs import METRIC, ItemParams
from zerodr.reporting.panels import legend, panels, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAIN = "gain in nDCG@10"


def plot_item(stage: Stage) -> None:
    """Input `table` (tsv of build_item); outputs `svg`, `png`.

    Raises:
        ConfigError: the item's kind has no figure.
    """
    import matplotlib

    settings = validate(ItemParams, stage.params, stage.spec.name())
    draw = FIGURES.get(settings.item["kind"])
    if draw is None:
        raise ConfigError(
            f"{settings.paper}: {settings.name}",
            f"is of kind {settings.item['kind']}, which is a table alone",
            f"ask for {settings.name}.html",
        )
    frame = pd.read_csv(stage.path("table"), sep="\t", comment="#")
    with matplotlib.rc_context(STYLE | {"axes.spines.left": True}):
        figure = draw(frame, settings)
        figure.suptitle(settings.item["title"], fontsize=10)
        figure.savefig(stage.output("svg"), format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(stage.output("png"), format="png", dpi=150, metadata={"Software": None})


def _name(axes: Axes, x: Iterable[float], y: Iterable[float], names: Iterable[str]) -> None:
    for one, other, name in zip(x, y, names, strict=True):
        axes.annotate(name, (one, other), xytext=(4, 3), textcoords="offset points", fontsize=7, color="#444444")


def _points(axes: Axes, frame: pd.DataFrame, x: str, y: str, label: str, number: int) -> None:
    """Points with vertical intervals `<y>_low`, `<y>_high`."""
    bars = np.abs(frame[[f"{y}_low", f"{y}_high"]].to_numpy().T - frame[y].to_numpy())
    axes.errorbar(
        frame[x], frame[y], yerr=bars, linestyle="", markersize=5, linewidth=1.0, label=label, **style(number)
    )


def _methods(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Differences from the baseline with intervals, a panel a collection."""
    figure, every = panels(len(settings.collections), height=1.1 + 0.28 * len(settings.methods))
    tested = [name for name in settings.methods if name != settings.item["baseline"]]
    for axes, (name, label) in zip(every, settings.collections.items(), strict=True):
        own = frame[frame["collection"] == name].set_index("method").loc[tested]
        bars = np.abs(own[["difference_low", "difference_high"]].to_numpy().T - own["difference"].to_numpy())
        axes.errorbar(
            own["difference"], range(len(tested)), xerr=bars, linestyle="", marker="o", markersize=5, color=COLORS[0]
        )
        axes.axvline(0, color="#888888", linewidth=0.8)
        axes.set_yticks(range(len(tested)), [settings.methods[name] for name in tested], fontsize=7)
        axes.set_ylim(len(tested) - 0.5, -0.5)
        axes.set_title(label, fontsize=9)
    measure = LABELS.get(key := settings.item.get("measure", METRIC), key)
    figure.supxlabel(
        f"{measure} minus that of {settings.methods[settings.item['baseline']]}, 95 % interval", fontsize=9
    )
    return figure


def _similarity(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    figure, every = panels(2)
    names = [settings.collections[name] for name in frame["collection"]]
    for axes, (key, what) in zip(every, (("query_types", "query types"), ("corpus", "documents")), strict=True):
        for number, method in enumerate(settings.item["methods"]):
            _points(axes, frame, key, f"gain.{method}", settings.methods[method], number)
        _name(axes, frame[key], frame[f"gain.{settings.item['methods'][0]}"], names)
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.set_xlabel(f"similarity of {what} with {settings.source}")
    every[0].set_ylabel(f"nDCG@10 minus that of {settings.methods[settings.item['baseline']]}")
    legend(figure, every[0])
    return figure


def _episodes(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    figure, every = panels(len(settings.collections))
    for axes, (name, label) in zip(every, settings.collections.items(), strict=True):
        for number, method in enumerate(settings.item["methods"]):
            own = frame[(frame["collection"] == name) & (frame["method"] == method)]
            places = np.arange(len(own)) + 0.03 * (number - (len(settings.item["methods"]) - 1) / 2)
            bars = np.abs(own[[f"{METRIC}_low", f"{METRIC}_high"]].to_numpy().T - own[METRIC].to_numpy())
            axes.errorbar(places, own[METRIC], yerr=bars, label=method, markersize=5, linewidth=1.0, **style(number))
            axes.set_xticks(range(len(own)), own["stage"])
        axes.set_title(label, fontsize=9)
    figure.supylabel("nDCG@10, 95 % interval", fontsize=9)
    legend(figure, every[0])
    return figure


def _spaces(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    figure, every = panels(2, width=4.2, height=3.8)
    for number, (label, own) in enumerate(frame.groupby("model", sort=False)):
        names = [settings.collections[name] for name in own["collection"]]
        every[0].plot(own["alignment"], own["uniformity"], linestyle="", markersize=6, label=label, **style(number))
        _name(every[0], own["alignment"], own["uniformity"], names)
        every[1].plot(own["contrastive"], range(len(own)), linestyle="", markersize=6, **style(number))
        every[1].set_yticks(range(len(own)), names)
    every[0].set_xlabel("alignment (lower is better)")
    every[0].set_ylabel("uniformity (lower is better)")
    every[1].set_xlabel("contrastive loss of held-out documents")
    legend(figure, every[0])
    return figure


def _against(x: str, what: str) -> Callable[[pd.DataFrame, ItemParams], Figure]:
    def draw(frame: pd.DataFrame, settings: ItemParams) -> Figure:
        from matplotlib.ticker import MaxNLocator

        figure, (axes,) = panels(1, width=5, height=3.8)
        _points(axes, frame, x, "gain", "", 0)
        _name(axes, frame[x], frame["gain"], [settings.collections[name] for name in frame["collection"]])
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.axvline(0, color="#888888", linewidth=0.8)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.set_xlabel(what)
        axes.set_ylabel(f"{GAIN}, 95 % interval")
        return figure

    return draw


FIGURES: dict[str, Callable[[pd.DataFrame, ItemParams], Figure]] = {
    "methods": _methods,
    "similarity": _similarity,
    "episodes": _episodes,
    "spaces": _spaces,
    "pretraining_gain": _against("reduction", "part of the contrastive loss that the pretraining takes off"),
    "domains": item_model_figures.domains,
    "projections": item_model_figures.projections,
    "units": item_model_figures.units,
    "adaptation": item_model_figures.adaptation,
    "shares": item_memories.draw_shares,
    "components": item_memories.draw_components,
    "nearest_clusters": _against("source_gain", "gain in nDCG@10 on the nearest source cluster"),
}
