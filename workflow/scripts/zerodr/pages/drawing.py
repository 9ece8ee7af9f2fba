"""Draw curves of trainings for the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from zerodr.artifacts.record import Record
from zerodr.reporting.panels import COLORS, TEXT, blank, drawing_style, svg_of

ACROSS = 4  # panels of a job
LINES = 4  # in a panel
SETTINGS = ("learning_rate", "gradient_norm", "vector_gradient", "vector_gradient_cosine")  # not what is learned
WINDOW = 20  # of a curve's points in its running mean: a twentieth
Series = dict[str, tuple[np.ndarray, np.ndarray]]


def series(record: Record) -> Series:
    """Collect the metrics of a job that change over steps: name -> steps, values.

    A number with one step is no curve, and one that never changes is a setting.
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for metric in record["metrics"]:
        points.setdefault(metric["name"], []).append((metric["step"], metric["value"]))
    curves = {}
    for name, values in points.items():
        steps, numbers = np.array(sorted(values), float).T
        if len(steps) > 1 and np.ptp(steps) and np.ptp(numbers) and name.partition(".")[0] not in SETTINGS:
            curves[name] = steps, numbers
    return curves


def groups(curves: Series) -> dict[str, list[str]]:
    """Put curves into panels: losses, and a panel a dev measure; one of two equal curves."""
    losses = [name for name in curves if not name.startswith("dev.")]
    total = [name for name in losses if name == "loss"]
    terms = [name for name in losses if name != "loss" and not _same(curves, name, "loss")]
    alike = [name for name in terms if _like(curves[name][1], curves[total[0]][1])] if total else []
    panels = {"loss": [*total, *alike][:LINES], "terms": [name for name in terms if name not in alike][:LINES]}
    for name in curves:
        title = ".".join(name.split(".")[:2])
        shown = panels.setdefault(title, []) if name.startswith("dev.") else []
        if len(shown) < LINES and not any(_same(curves, name, other) for other in shown):
            shown.append(name)
    return dict([(name, lines) for name, lines in panels.items() if lines][:ACROSS])


def _same(curves: Series, name: str, other: str) -> bool:
    return other in curves and np.array_equal(curves[name][1], curves[other][1])


def _like(values: np.ndarray, reference: np.ndarray) -> bool:
    """Test whether two curves fit one axis."""
    low, high = np.abs(values).mean(), np.abs(reference).mean()
    return max(low, high) < 10 * max(min(low, high), 1e-9)


def draw_curves(record: Record) -> Markup | None:
    """Draw the curves of a job as SVG; None without any."""
    curves = series(record)
    panels = groups(curves)
    if not panels:
        return None
    with drawing_style(svg=TEXT):
        figure, grid = blank(1, len(panels), 3.5, 2.1)
        for axes, (title, names) in zip(grid[0], panels.items(), strict=True):
            _panel(axes, title, [(name, *curves[name]) for name in names])
        return svg_of(figure)


def _panel(axes: Any, title: str, lines: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> None:
    for number, (name, steps, values) in enumerate(lines):
        color = COLORS[number % len(COLORS)]
        smooth = running_mean(values)
        if len(values) > WINDOW:
            axes.plot(steps, values, color=color, linewidth=0.6, alpha=0.3)
        marker = "o" if len(values) <= WINDOW else ""
        axes.plot(
            steps, smooth, color=color, linewidth=1.6, label=name.removeprefix("dev."), marker=marker, markersize=3
        )
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel("step")
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=7)


def running_mean(values: np.ndarray) -> np.ndarray:
    """Average each value with its neighbours, a twentieth of the curve around it."""
    half = len(values) // WINDOW // 2
    sums = np.concatenate([[0.0], np.cumsum(values)])
    positions = np.arange(len(values))
    low, high = np.maximum(positions - half, 0), np.minimum(positions + half + 1, len(values))
    return (sums[high] - sums[low]) / (high - low)
