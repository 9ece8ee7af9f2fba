"""Build and draw items about units (BERM tables 5 and 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.errors import ArtifactError
from zerodr.papers.berm.items import UnitsItem
from zerodr.reporting.item_inputs import ItemParams, ItemTable, Report
from zerodr.reporting.panels import bars, interval_rows, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNIT_LABELS = {
    "balance_variance": "Var (balance)",
    "relative_balance_variance": "Var / mean square",
    "extractability_accuracy": "Acc (essential unit)",
    "random_accuracy": "Acc of a random unit",
    "dispersion_x": "dispersion, first axis",
    "dispersion_y": "dispersion, second axis",
    "absolute_cosine": "mean |cosine| of two units",
    "passage_norm": "length of passage vectors",
    "unit_norm": "length of unit vectors",
}
MEASURE_NOTES = {
    "balance_variance": "Var: population variance of the similarity of a passage with its units (smaller: more "
    "balanced)",
    "extractability_accuracy": "Acc: share of pairs whose matching vector is nearest to the essential unit",
    "dispersion_x": "dispersion: variance of a passage's units along the first two principal axes of all units of the "
    "model; the paper does not say how it projects them, so compare models here, not with the paper",
}
PRINTED = {
    "balance_variance": "unit_variance",
    "extractability_accuracy": "essential_unit_accuracy",
    "dispersion_x": "axis_x",
    "dispersion_y": "axis_y",
}
"""Measures as the paper's tables call them."""


def units(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Measure models over the units of passages, with intervals.

    Raises:
        ArtifactError: a file lacks a measure.
    """
    assert isinstance(item, UnitsItem)
    seeds, rows = [one["seed"] for one in settings.values] or [None], []
    models = [(method, seed) for seed in seeds for method in item.methods]
    for (method, seed), path in zip(models, stage.paths("measures"), strict=True):
        measures = pd.read_csv(path, sep="\t", index_col="measure")
        missing = [name for name in item.measures if name not in measures.index]
        if missing:
            problem = f"has no measure {missing[0]}, only {', '.join(measures.index)}"
            raise ArtifactError(path, problem, "correct the item's measures")
        for name in item.measures:
            row = {"method": method, "seed": seed, "measure": name, **measures.loc[name, ["mean", "low", "high"]]}
            rows.append(row | {"pairs": int(measures.loc[name, "count"])})
    frame = pd.DataFrame(rows)
    intervals = "95 % intervals (normal approximation)"
    if len(seeds) > 1:
        frame = over_seeds(frame)
        intervals = f"the smallest and largest mean of {len(seeds)} seeds ({', '.join(map(str, seeds))})"
    frame = frame.drop(columns="seed", errors="ignore")
    cells = {(row["method"], row["measure"]): _cell(row) for _, row in frame.iterrows()}
    shown = [[settings.methods[method], *(cells[method, name] for name in item.measures)] for method in item.methods]
    notes = [
        f"units and labels of {settings.methods.get(item.units_of, item.units_of)}, at most {frame['pairs'].max()} "
        f"pairs with an essential unit; means over pairs with {intervals}",
        *(note for name, note in MEASURE_NOTES.items() if name in item.measures),
    ]
    measured = {(row["method"], "", PRINTED.get(row["measure"], "")): float(row["mean"]) for _, row in frame.iterrows()}
    header = ["", *(UNIT_LABELS.get(name, name) for name in item.measures)]
    return ItemTable(frame, notes, (header, shown), measured)


def over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Average each measure of each method over seeds: mean, and as `low` and `high` the smallest and largest mean."""
    groups = frame.groupby(["method", "measure"], sort=False)
    spans = groups["mean"].agg(["mean", "min", "max"]).set_axis(["mean", "low", "high"], axis=1)
    by_seed = frame.pivot(index=["method", "measure"], columns="seed", values="mean").add_prefix("mean_seed")
    return spans.join(by_seed).join(groups["pairs"].max()).reset_index()


def _cell(row: pd.Series) -> str:
    return f"{row['mean']:.4g} [{row['low']:.4g}, {row['high']:.4g}]"


def draw_units(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw a panel a measure, a row a method."""
    measures, names = settings.item["measures"], list(settings.item["methods"])
    figure, every = panels(len(measures), height=1.0 + 0.28 * len(names))
    for axes, measure in zip(every, measures, strict=True):
        rows = frame[frame["measure"] == measure].set_index("method").loc[names]
        rows = rows.rename(columns={"low": "mean_low", "high": "mean_high"})
        interval_rows(axes, rows["mean"], bars(rows, "mean"), [settings.methods[name] for name in names])
        axes.set_title(UNIT_LABELS.get(measure, measure), fontsize=9)
    return figure


REPORT = Report({"units": units}, {"units": draw_units})
