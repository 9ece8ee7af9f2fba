"""Legends of figures: all of them is inside."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from zerodr.reporting.panels import legend, panels


@pytest.mark.parametrize(
    ("labels", "columns", "wider"),
    [
        (["a", "b", "c", "d"], 3, False),
        (["a name of length"] * 4, 2, False),
        (["a name that takes more than half a line"] * 4, 1, False),
        (["a name that is longer than any figure of one panel is wide " * 2] * 2, 1, True),
    ],
)
def test_a_legend_is_as_wide_as_its_figure_at_most(labels, columns, wider):
    figure, (axes,) = panels(1)
    before = figure.get_figwidth()
    for label in labels:
        axes.plot([0, 1], [0, 1], label=label)
    legend(figure, axes)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (drawn,) = figure.legends
    box = drawn.get_window_extent(canvas.get_renderer())
    assert drawn._ncols == columns
    assert box.x0 >= -1 and box.x1 <= figure.bbox.width + 1
    assert bool(figure.get_figwidth() > before) is wider
