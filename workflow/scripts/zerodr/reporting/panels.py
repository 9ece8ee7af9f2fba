"""Panels, colours and legends of the papers' figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zerodr.reporting.figure import COLORS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT, WIDTH, ACROSS = 3.2, 3.6, 3  # of a panel in inches; panels in a row


def panels(count: int, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, three in a row."""
    columns = min(count, ACROSS)
    figure, grid = blank(-(-count // columns), columns, width, height)
    every = grid.ravel()
    for axes in every[count:]:
        axes.set_axis_off()
    return figure, list(every[:count])


def blank(rows: int, columns: int, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, np.ndarray]:
    """A figure with a grid of panels, (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width + 0.6, rows * height + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.ravel():
        axes.grid(color="#e3e3e3", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, grid


def style(number: int) -> dict[str, Any]:
    """Colour and marker of a line."""
    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}


def legend(figure: Figure, axes: Axes, markers: float = 1.0) -> None:
    """A legend below the figure of what a panel shows, its markers so many times as large.

    It has three columns, or as many as fit; a figure that is narrower than one is made wider.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    handles, labels = axes.get_legend_handles_labels()
    renderer = FigureCanvasAgg(figure).get_renderer()
    for columns in range(min(len(labels), ACROSS), 0, -1):
        drawn = figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, frameon=False, markerscale=markers
        )
        width = drawn.get_window_extent(renderer).width
        if width <= figure.bbox.width:
            return
        if columns > 1:
            drawn.remove()
    figure.set_figwidth(width / figure.dpi)
