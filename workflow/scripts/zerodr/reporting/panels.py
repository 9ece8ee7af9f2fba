"""Draw the panels, intervals and legends of every figure, and write figures. Equal figures have equal bytes.

No dates, salted ids, no pyplot: no display and no global state.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
STYLE: Any = {"svg.hashsalt": "zerodr", "font.family": "DejaVu Sans", "font.size": 9.0}
STYLE |= {"text.parse_math": False}  # dollars in labels are no formulas, as in the tables
STYLE |= {f"axes.spines.{side}": False for side in ("top", "right", "left")}
PATHS, TEXT = "path", "none"  # letters of an svg: drawn, the same everywhere; or text, smaller and searchable in a page
POINT = 5.0  # size of a point in pixels, which no name covers
POSITIONS = [(side * 5, height) for height in (3, -9, 12, -18, 21, -27) for side in (1, -1)]  # of a name, in points
HEIGHT, WIDTH, ACROSS = 3.2, 3.6, 3  # of a panel in inches; panels in a row
TICKS = 3  # spaces between the ticks of a narrow panel, whose numbers have up to seven characters
LETTER = 0.58  # mean width of a letter, as a share of the size of its font


def drawing_style(left: bool = False, svg: str = PATHS) -> AbstractContextManager[None]:
    """Set the style of figures that are drawn and written inside; `left` draws the vertical axis."""
    import matplotlib

    return matplotlib.rc_context(STYLE | {"axes.spines.left": left, "svg.fonttype": svg})


def save(figure: Figure, svg: Path, png: Path) -> None:
    """Write a figure as svg and png."""
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(png, format="png", dpi=150, metadata={"Software": None})


def svg_of(figure: Figure) -> Markup:
    """Return a figure as an element of a page, without addresses of schemas, which HTML does not need."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    element = text.getvalue()[text.getvalue().index("<svg") :]
    return Markup(element.replace('xmlns:xlink="http://www.w3.org/1999/xlink" ', ""))


def panels(count: int, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """Create a figure with `count` panels, three in a row."""
    columns = min(count, ACROSS)
    figure, grid = blank(-(-count // columns), columns, width, height)
    every = grid.ravel()
    for axes in every[count:]:
        axes.set_axis_off()
    return figure, list(every[:count])


def blank(rows: int, columns: int, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, np.ndarray]:
    """Create a figure with a grid of panels, (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width + 0.6, rows * height + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.ravel():
        axes.grid(color="#e3e3e3", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, grid


def style(number: int) -> dict[str, Any]:
    """Return colour and marker of a line."""
    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}


def bars(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Return the lengths of intervals `<name>_low`, `<name>_high` from `<name>`, (2, rows)."""
    return np.abs(frame[[f"{name}_low", f"{name}_high"]].to_numpy().T - frame[name].to_numpy())


def interval_rows(axes: Axes, values: pd.Series, lengths: np.ndarray, labels: list[str]) -> None:
    """Draw one row a value with its horizontal interval, from the top."""
    axes.errorbar(values, range(len(labels)), xerr=lengths, linestyle="", marker="o", markersize=5, color=COLORS[0])
    row_labels(axes, labels)


def difference_panels(shown: Mapping[str, pd.DataFrame], labels: list[str], row_height: float, what: str) -> Figure:
    """Draw differences from a control with their intervals, small dots for seeds where there are several.

    Args:
        shown: a panel each, by title: rows with `difference`, `difference_low`, `difference_high`, `difference_seed*`.
        labels: of the rows.
        row_height: inches.
        what: is written below.
    """
    figure, every = panels(len(shown), height=1.1 + row_height * len(labels))
    several = False
    for axes, (title, rows) in zip(every, shown.items(), strict=True):
        seeds = [column for column in rows.columns if column.startswith("difference_seed")]
        several = len(seeds) > 1
        axes.axvline(0, color="#888888", linewidth=0.8)
        interval_rows(axes, rows["difference"], np.nan_to_num(bars(rows, "difference")), labels)
        for seed in seeds if several else ():
            axes.plot(rows[seed], range(len(labels)), linestyle="", marker="o", markersize=2.5, color=COLORS[1])
        axes.set_title(title, fontsize=9)
    figure.supxlabel(wrapped(figure, what + ("; small dots: seeds" if several else ""), 9), fontsize=9)
    return figure


def row_labels(axes: Axes, labels: list[str], size: float = 7) -> None:
    """Label rows 0, 1, ... from the top in a font of `size` points, above few ticks."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(TICKS))
    axes.set_yticks(range(len(labels)), labels, fontsize=size)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def wrapped(figure: Figure, text: str, size: float) -> str:
    """Break a text into lines that fit the figure's width, in a font of `size` points."""
    return textwrap.fill(text, max(int(72 * figure.get_figwidth() / (LETTER * size)), 10))


def legend(figure: Figure, axes: Axes, markers: float = 1.0) -> None:
    """Draw the legend of a panel below the figure, with markers `markers` times as large."""
    fit_legend(figure, *axes.get_legend_handles_labels(), "lower", ACROSS, markers)


def fit_legend(figure: Figure, handles: Any, labels: list[str], side: str, columns: int, markers: float = 1.0) -> None:
    """Draw a legend at the `upper` or `lower` side of a figure, in at most `columns` columns, as many as fit.

    A figure that is narrower than one column is widened.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    for count in range(min(len(labels), columns), 0, -1):
        look: Any = {"loc": f"outside {side} center", "frameon": False, "markerscale": markers}
        drawn = figure.legend(handles, labels, ncols=count, **look)
        width = drawn.get_window_extent(renderer).width
        if width <= figure.bbox.width:
            return
        if count > 1:
            drawn.remove()
    figure.set_figwidth(width / figure.dpi)


def name_points(axes: Axes, x: Iterable[float], y: Iterable[float], names: Iterable[str]) -> None:
    """Write a name next to each point, at the first of some positions where it covers no other name and no point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    figure: Any = axes.figure
    figure.draw_without_rendering()  # which lays the panels out
    renderer, points = FigureCanvasAgg(figure).get_renderer(), list(zip(x, y, strict=True))
    centers = [axes.transData.transform(point) for point in points]
    covered = [Bbox.from_bounds(u - POINT / 2, v - POINT / 2, POINT, POINT) for u, v in centers]
    for point, name in zip(points, names, strict=True):
        look: Any = {"textcoords": "offset points", "fontsize": 7, "color": "#444444"}
        label = axes.annotate(name, point, xytext=POSITIONS[0], **look)
        crowd = []
        for offset in POSITIONS:
            label.set_position(offset)
            label.set_horizontalalignment("left" if offset[0] > 0 else "right")
            box = label.get_window_extent(renderer)
            outside = not (axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0)
            crowd.append((sum(box.overlaps(other) for other in covered) + outside, offset, box))
            if not crowd[-1][0]:
                break
        _, offset, box = min(crowd, key=lambda choice: choice[0])
        label.set_position(offset)
        label.set_horizontalalignment("left" if offset[0] > 0 else "right")
        covered.append(box)


def draw_points(axes: Axes, frame: pd.DataFrame, x: str, y: str, label: str, number: int) -> None:
    """Draw points with vertical intervals `<y>_low`, `<y>_high`."""
    look = style(number) | {"linestyle": "", "markersize": 5, "linewidth": 1.0}
    axes.errorbar(frame[x], frame[y], yerr=bars(frame, y), label=label, **look)
