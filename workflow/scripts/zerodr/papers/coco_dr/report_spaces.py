"""Build and draw items about vector spaces of pretrained models, and what pretraining brings (COCO-DR figure 5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.papers.coco_dr.items import PretrainingGainItem, SpacesItem
from zerodr.reporting.item_inputs import Gain, ItemParams, ItemTable, correlation, gain, read_scores
from zerodr.reporting.panels import draw_points, legend, name_points, panels, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAIN = "gain in nDCG@10"
SPACE_NOTE = (
    "two spans of each held-out document: contrastive loss (nats, among the spans of all of them), alignment "
    "(mean squared distance of a pair's unit vectors), uniformity (log of the mean of exp(-2 d^2))"
)


def read_spaces(paths: Sequence[Path]) -> dict[tuple[str, str], dict[str, float]]:
    """Read the measures of each (model, collection)."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return {(facts["model"], facts["collection"]): facts for facts in files}


def spaces(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare contrastive loss, alignment, uniformity of models by collection (COCO-DR figure 5b)."""
    assert isinstance(item, SpacesItem)
    facts = read_spaces(stage.paths("spaces"))
    rows: list[dict[str, Any]] = []
    for name in settings.collections:
        for label, model in item.models.items():
            measures = {key: facts[model, name][key] for key in ("documents", "contrastive", "alignment", "uniformity")}
            rows.append({"collection": name, "model": label} | measures)
    shown = [
        [settings.collections[row["collection"]], row["model"], str(row["documents"])]
        + [f"{row[key]:.4f}" for key in ("contrastive", "alignment", "uniformity")]
        for row in rows
    ]
    header = ["", "model", "held-out documents", "contrastive loss", "alignment", "uniformity"]
    return ItemTable(pd.DataFrame(rows), [SPACE_NOTE], (header, shown))


def pretraining_gain(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare contrastive loss without and with a pretraining with the gain in retrieval (COCO-DR figure 5a)."""
    assert isinstance(item, PretrainingGainItem)
    facts, scores, rows = read_spaces(stage.paths("spaces")), read_scores(stage.paths("per_query")), []
    for name in settings.collections:
        without, with_it = (facts[model, name]["contrastive"] for model in item.models)
        numbers: dict[str, str | float] = {"collection": name, "loss_without": without, "loss_with": with_it}
        after, before = (scores[method, name] for method in reversed(item.methods))
        gained = gain(after, before, settings.bootstrap_samples, stage.seed).columns("gain")
        rows.append({**numbers, "reduction": 1 - with_it / without, **gained})
    frame = pd.DataFrame(rows)
    notes = [
        SPACE_NOTE,
        f"loss without: of model {item.models[0]}, loss with: of {item.models[1]}; gain: nDCG@10 of "
        f"{settings.methods[item.methods[1]]} minus that of {settings.methods[item.methods[0]]}",
        correlation(frame["reduction"], frame["gain"], "reduction and gain"),
    ]
    shown = []
    for _, row in frame.iterrows():
        losses = f"{row['loss_without']:.4f}", f"{row['loss_with']:.4f}", f"{row['reduction']:+.1%}"
        shown.append([settings.collections[row["collection"]], *losses, str(Gain.of(row, "gain"))])
    return ItemTable(frame, notes, (["", "loss without", "loss with", "reduction", "gain in nDCG@10"], shown))


def draw_spaces(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw alignment against uniformity, and the contrastive loss of each collection."""
    figure, every = panels(2, width=4.2, height=3.8)
    for number, (label, rows) in enumerate(frame.groupby("model", sort=False)):
        names = [settings.collections[name] for name in rows["collection"]]
        every[0].plot(rows["alignment"], rows["uniformity"], linestyle="", markersize=6, label=label, **style(number))
        name_points(every[0], rows["alignment"], rows["uniformity"], names)
        every[1].plot(rows["contrastive"], range(len(rows)), linestyle="", markersize=6, **style(number))
        every[1].set_yticks(range(len(rows)), names)
    for axes in every:
        axes.locator_params(axis="x", nbins=5)
    every[0].set_xlabel("alignment (lower is better)")
    every[0].set_ylabel("uniformity (lower is better)")
    every[1].set_xlabel("contrastive loss of held-out documents")
    legend(figure, every[0])
    return figure


def draw_against(x: str, what: str) -> Callable[[pd.DataFrame, ItemParams], Figure]:
    """A function that draws gains against a column of the table; `what` the column is."""

    def draw(frame: pd.DataFrame, settings: ItemParams) -> Figure:
        from matplotlib.ticker import MaxNLocator

        figure, (axes,) = panels(1, width=5, height=3.8)
        draw_points(axes, frame, x, "gain", "", 0)
        name_points(axes, frame[x], frame["gain"], [settings.collections[name] for name in frame["collection"]])
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.axvline(0, color="#888888", linewidth=0.8)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.set_xlabel(what)
        axes.set_ylabel(f"{GAIN}, 95 % interval")
        return figure

    return draw
