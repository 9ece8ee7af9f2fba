"""Legends and names in figures: inside, and not over each other."""

from __future__ import annotations

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from zerodr.reporting.panels import TEXT, drawing_style, legend, name_points, panels, svg_of


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


def test_names_of_points_do_not_cover_each_other():
    figure, (axes,) = panels(1)
    x, y = [0.0, 0.02, 0.04, 0.5, 1.0], [0.0, 0.01, 0.0, 0.5, 1.0]
    axes.plot(x, y, "o")
    name_points(axes, x, y, [f"collection {n}" for n in range(5)])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]
    assert len(boxes) == 5
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert max(box.x1 for box in boxes) <= axes.bbox.x1 + 1


@pytest.mark.parametrize("label", ["from $5 to $9", r"costs $\5 and $6"])
def test_dollars_in_a_label_are_no_formula(label):
    with drawing_style(svg=TEXT):
        figure, (axes,) = panels(1)
        axes.set_title(label)
        assert label in svg_of(figure)
