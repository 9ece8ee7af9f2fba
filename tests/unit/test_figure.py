"""The picture of the main table shows the table's numbers, with intervals, and is the same twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from test_compare import write
from test_table import VALUES, params, write_summary
from test_table import run_stage as build

from zerodr.artifacts.stage import Stage, StageSpec, temporary_output
from zerodr.config.base import validate
from zerodr.errors import ArtifactError
from zerodr.evaluation.compare import read_per_query
from zerodr.evaluation.numbers import fixed
from zerodr.evaluation.significance import mean_interval
from zerodr.reporting.figure import FigureSettings, draw, intervals, plot_table


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, str]:
    generator = np.random.default_rng(0)
    summaries, files = [], []
    for model, row in VALUES.items():
        for name, value in row.items():
            values = np.clip(generator.normal(value, 0.1, 30), 0, 1)
            files.append(write(tmp_path, model, name, values))
            summaries.append(str(write_summary(tmp_path, model, name, values.mean())))
    frame = read_per_query(files, tuple(VALUES))
    frame.to_parquet(tmp_path / "all.parquet")
    table = build(tmp_path, {"summaries": summaries}, ("table",))["table"]
    return {"per_query": str(tmp_path / "all.parquet"), "table": str(table)}


def plot(folder: Path, inputs: dict[str, str]) -> dict[str, bytes]:
    outputs = {name: str(folder / f"all.{name}") for name in ("svg", "png")}
    spec = StageSpec("plot_table", 1, {}, inputs, outputs, params(bootstrap_samples=50), 13)
    plot_table(Stage(spec, folder))
    return {name: temporary_output(path).read_bytes() for name, path in outputs.items()}


def settings() -> FigureSettings:
    return validate(FigureSettings, params(bootstrap_samples=50), "figure")


def test_equal_inputs_give_equal_bytes_without_dates(tmp_path, inputs):
    first = plot(tmp_path, inputs)
    assert first == plot(tmp_path, inputs)
    assert first["png"].startswith(b"\x89PNG") and b"Software" not in first["png"]
    assert b"<svg" in first["svg"] and b"<dc:date>" not in first["svg"]


def test_intervals_hold_the_means_of_columns_aggregates_and_averages(inputs):
    points = intervals(pq.read_table(inputs["per_query"]).to_pandas(), settings(), 13)
    assert list(dict.fromkeys(points["header"])) == [
        "alpha",
        "beta",
        "part (subset)",
        "dup",
        "Avg pair",
        "Avg all4 (2 of 4)",
    ]
    assert ((points["low"] <= points["value"]) & (points["value"] <= points["high"])).all()
    cells = points.set_index(["column", "model"])["value"]
    assert cells["Avg pair", "bm25"] == pytest.approx((cells["alpha", "bm25"] + cells["beta", "bm25"]) / 2)
    assert points.set_index("column").loc["dup", "queries"].tolist() == [60, 60]


def test_intervals_of_cells_are_those_of_their_evaluations_whatever_the_order_of_ids(tmp_path):
    values = np.random.default_rng(0).uniform(size=60)
    table = pq.read_table(write(tmp_path, "bm25", "alpha", values)).to_pandas()
    table["query"] = [f"PLAIN-{number}" for number in range(60)]  # PLAIN-10 is before PLAIN-2
    given = params(bootstrap_samples=50, methods=params()["methods"][:1], collections=params()["collections"][:1])
    points = intervals(table, validate(FigureSettings, given, "figure"), 13)
    assert points[["low", "high"]].iloc[0].tolist() == np.ravel(mean_interval(values[:, None], 50, 13, 0.0)).tolist()


def test_another_number_in_the_table_is_refused(tmp_path, inputs):
    text = Path(inputs["table"]).read_text().splitlines()
    cells = text[1].split("\t")
    cells[1] = "0.9999"
    Path(inputs["table"]).write_text("\n".join([text[0], "\t".join(cells), *text[2:]]))
    with pytest.raises(ArtifactError, match="bm25/alpha: the table says 0.9999"):
        plot(tmp_path, inputs)


def test_every_method_and_column_is_named(inputs):
    points = intervals(pq.read_table(inputs["per_query"]).to_pandas(), settings(), 13)
    figure = draw(points, settings())
    labels = [label.get_text().split("\n")[0] for label in figure.axes[0].get_yticklabels()]
    assert labels == list(dict.fromkeys(points["label"]))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["BM25", "Dense_1"]
    shown = {text.get_text() for text in figure.axes[0].texts}
    assert shown == {f"{value:.4f}" for value in points["value"]}


def test_a_number_is_that_of_the_table_whatever_the_order_of_the_sum():
    values = np.random.default_rng(4).binomial(10, 0.4, (40, 400)) / 10
    assert [fixed(row.mean()) for row in values] == [fixed(float(f"{row.mean():.10f}")) for row in values]
    assert any(f"{row.mean():.4f}" != fixed(row.mean()) for row in values)


def test_the_largest_number_is_bold_of_a_measure_above_one(inputs):
    points = intervals(pq.read_table(inputs["per_query"]).to_pandas(), settings(), 13)
    value = np.where(points["model"] == "bm25", 9.5, 12.0)
    points = points.assign(low=value, value=value, high=value)
    texts = draw(points, settings()).axes[0].texts
    assert {text.get_text() for text in texts if text.get_fontweight() == "bold"} == {"12.0000"}


def test_one_method_one_collection_one_query(tmp_path):
    frame = pd.DataFrame({"model": ["bm25"], "collection": ["alpha"], "query": ["q"], "ndcg_cut_10": [1.0]})
    given = params(bootstrap_samples=5, methods=params()["methods"][:1], collections=params()["collections"][:1])
    one = validate(FigureSettings, given, "figure")
    points = intervals(frame, one, 0)
    assert points[["low", "value", "high"]].to_numpy().tolist() == [[0.0, 1.0, 1.0]]
    assert draw(points, one).axes


def test_a_method_without_a_run_of_a_collection_is_left_out_there(tmp_path, inputs):
    frame = pq.read_table(inputs["per_query"]).to_pandas()
    frame = frame[~((frame["model"] == "dense") & (frame["collection"] == "beta"))]
    points = intervals(frame, settings(), 13).set_index(["model", "column"])["value"]
    assert np.isnan(points["dense", "beta"]) and np.isnan(points["dense", "Avg pair"])
    assert points["dense", "alpha"] > 0 and points["bm25", "beta"] > 0
    draw(intervals(frame, settings(), 13), settings())


def test_long_labels_stay_inside_the_figure(inputs):
    points = intervals(pq.read_table(inputs["per_query"]).to_pandas(), settings(), 13)
    rows = params()["methods"]
    long = validate(
        FigureSettings,
        params(bootstrap_samples=50, methods=[row | {"label": row["label"] + " of many words" * 5} for row in rows]),
        "figure",
    )
    figure = draw(points, long)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent(FigureCanvasAgg(figure).get_renderer())
    assert 0 <= box.x0 and box.x1 <= figure.bbox.x1
