"""Draw the main table: every method on every collection with its 95 % interval over queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.measures import label_of
from zerodr.errors import ArtifactError
from zerodr.evaluation.evaluate import read_measures
from zerodr.evaluation.numbers import fixed, read_tsv
from zerodr.evaluation.significance import drawn_means, mean_interval
from zerodr.reporting.grid import TableSettings, average_columns, distinct, table_columns
from zerodr.reporting.panels import drawing_style, fit_legend, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW, GAP, WIDTH, MARGIN = 0.23, 0.22, 8.6, 1.5  # inches
LEGEND_COLUMNS = 4
AGREEMENT = 0.00011


class FigureSettings(TableSettings):
    """Settings of `plot_table`: rows and columns of the table, and samples of the intervals."""

    bootstrap_samples: int = Field(1000, ge=1)
    """Resamples of the intervals."""


def plot_table(stage: Stage) -> None:
    """Read inputs `per_query` (parquet) and `table` (tsv); write `svg` and `png`."""
    settings = validate(FigureSettings, stage.params, stage.spec.rule)
    frame = read_measures(stage.path("per_query"), settings.metric)
    points = intervals(frame, settings, stage.seed)
    check_agreement(points, read_tsv(stage.path("table")).set_index("model"))
    with drawing_style():
        save(draw(points, settings), stage.output("svg"), stage.output("png"))


def intervals(frame: pd.DataFrame, settings: FigureSettings, seed: int) -> pd.DataFrame:
    """Compute `column`, `header`, `label`, `queries`, `model`, `value`, `low`, `high`, `average`, in the table's order.

    Intervals of aggregates and averages resample the queries of every member and average as the table does. A method
    without a run of a collection has no number there.
    """
    methods = [method.name for method in settings.methods]
    columns = table_columns(settings)
    resampled, means, queries, spans = {}, {}, {}, {}
    for number, (collection, runs) in enumerate(frame.groupby("collection", sort=False)):
        values = runs.pivot(index="query", columns="model", values=settings.metric)
        # In the order of the evaluations, which draw queries by it: a cell has one interval everywhere.
        values = values.reindex(runs["query"].unique(), columns=methods).to_numpy()
        # With one seed, collections of equal size would draw the same rows, and their means vary together.
        resampled[collection] = drawn_means(values, settings.bootstrap_samples, seed + number, 0.0)
        spans[collection] = mean_interval(values, settings.bootstrap_samples, seed, 0.0)
        means[collection], queries[collection] = values.mean(axis=0), len(values)
    points = []
    averages = distinct(average_columns(columns, settings))
    for column in [*columns, *averages]:
        resampled[column.name] = np.mean([resampled[member] for member in column.members], axis=0)
        means[column.name] = np.mean([means[member] for member in column.members], axis=0)
        queries[column.name] = sum(queries[member] for member in column.members)
        drawn = np.quantile(resampled[column.name], [0.025, 0.975], axis=0)
        low, high = spans.get(column.name, drawn)
        names = {"column": column.name, "header": column.header, "label": column.printed}
        numbers = {"model": methods, "value": means[column.name], "low": low, "high": high}
        row = names | {"queries": queries[column.name]} | numbers | {"average": column in averages}
        points.append(pd.DataFrame(row))
    return pd.concat(points, ignore_index=True)


def check_agreement(points: pd.DataFrame, table: pd.DataFrame) -> None:
    """Check that the picture shows the table's numbers.

    Raises:
        ArtifactError: a mean over queries is not the number in the table.
    """
    for point in points.itertuples():
        where = f"{point.model}/{point.column}"
        if point.header not in table or point.model not in table.index:
            raise ArtifactError(where, "is not in the table", "build the table again")
        stated = table.loc[point.model, point.header]
        if abs(stated - point.value) > AGREEMENT:
            problem = f"the table says {stated}, the queries' mean is {fixed(point.value)}"
            raise ArtifactError(where, problem, "build both from the same evaluations")


def draw(points: pd.DataFrame, settings: TableSettings) -> Figure:
    """Draw one band a column, one row a method inside it: a dot, its interval, its value."""
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys(points["column"]))
    band = len(settings.methods) * ROW + GAP
    figure = Figure(figsize=(WIDTH, len(columns) * band + MARGIN), layout="constrained")
    axes = figure.add_subplot()
    bands = [points[points["column"] == name] for name in columns]
    ticks = [_draw_band(axes, rows, n * band, band, n % 2 == 0) for n, rows in enumerate(bands)]
    axes.set_yticks(ticks, [_band_label(rows.iloc[0]) for rows in bands])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(columns) * band, 0)
    axes.set_xlim(*_limits(points))
    axes.grid(axis="x", color="#d9d9d9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(
        f"{label_of(settings.metric)}, mean and 95 % bootstrap interval over queries "
        f"(protocol {settings.protocol.name}, scale {settings.scale})"
    )
    _draw_legend(figure, settings)
    return figure


def _draw_band(axes: Axes, rows: pd.DataFrame, top: float, band: float, shaded: bool) -> float:
    """Draw one column's methods; return the height of the band's middle."""
    if shaded:
        axes.axhspan(top, top + band, color="#f4f4f4", linewidth=0, zorder=0)
    best = fixed(rows["value"].max())
    label_style: Any = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 7.5}
    for number, row in enumerate(rows.itertuples()):
        if np.isnan(row.value):
            continue  # an imported row without a run of this collection
        height, style = top + GAP / 2 + (number + 0.5) * ROW, _style(number)
        axes.hlines(height, row.low, row.high, color=style["color"], linewidth=1.6, zorder=2)
        axes.plot(row.value, height, linestyle="", markersize=5.5, zorder=3, **style)
        weight = "bold" if fixed(row.value) == best else "normal"
        axes.annotate(fixed(row.value), (row.high, height), color="#333333", fontweight=weight, **label_style)
    return top + band / 2


def _style(number: int) -> dict[str, Any]:
    return style(number) | {"markeredgecolor": "white", "markeredgewidth": 0.6}


def _band_label(row: pd.Series) -> str:
    return row["label"] if row["average"] else f"{row['label']}\n{row['queries']:,} queries"


def _limits(points: pd.DataFrame) -> tuple[float, float]:
    low, high = points["low"].min(), points["high"].max()
    room = max(high - low, 0.05)
    return max(0.0, low - 0.04 * room), high + 0.09 * room


def _draw_legend(figure: Figure, settings: TableSettings) -> None:
    from matplotlib.lines import Line2D

    line: Any = {"linewidth": 1.6, "markersize": 5.5}
    handles = [Line2D([], [], **line, **_style(n)) for n in range(len(settings.methods))]
    fit_legend(figure, handles, [method.label for method in settings.methods], "upper", LEGEND_COLUMNS)
