"""Measures of tables 5 and 6: numbers by hand, masks, projections, and the stage."""

from __future__ import annotations

import csv
import shutil
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.config_helpers import copy_config, lab_plan
from tests.unit.model_helpers import SMALL, tiny_settings
from tests.unit.training_helpers import seal
from tests.unit.unit_helpers import label, lay_out, segment

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.encoders.start.initial import from_scratch
from zerodr.errors import ModelError
from zerodr.papers.berm.measure_units import (
    absolute_cosine,
    balance_variance,
    dispersion,
    extracted,
    mean_with_interval,
    measures,
    random_guess,
    relative_variance,
    two_axes,
    unit_dots,
)
from zerodr.papers.berm.training import check_space
from zerodr.plan.plan import PARAMS

Q, P = np.array([[1.0, 0.5, 2.0, -1.0]]), np.array([[1.0, 1.0, 0.5, 0.0]])
E = np.array([[[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [9.0, 9.0, 9.0, 9.0]]])
VALID = np.array([[True, True, False]])


def test_variance_and_accuracy():
    scores = unit_dots(P, E)
    assert balance_variance(scores, VALID).tolist() == pytest.approx([0.0625])
    assert relative_variance(scores, VALID).tolist() == pytest.approx([0.0625 / ((1.5**2 + 1) / 2)])
    assert extracted(Q, P, E, VALID, np.array([0])).tolist() == [True]
    assert extracted(Q, P, E, VALID, np.array([1])).tolist() == [False]
    assert random_guess(VALID).tolist() == [0.5]


def test_accuracy_of_a_scaled_model_reads_its_own_matching_vector():
    """Short vectors: GELU is all but q * p / 2, so signs count; at length sqrt(D) it drops what is negative."""
    query, passage = np.array([[0.01, 0.01]]), np.array([[0.02, -0.03]])
    units, valid, label = np.array([[[1.0, 0.0], [0.0, -1.0]]]), np.ones((1, 2), bool), np.array([0])
    assert not extracted(query, passage, units, valid, label)[0]
    assert extracted(query, passage, units, valid, label, "scaled")[0]


def test_cosines_by_hand():
    assert absolute_cosine(E, VALID).tolist() == pytest.approx([0.0])
    assert absolute_cosine(E, np.array([[True, False, True]])).tolist() == pytest.approx([np.sqrt(0.5)])
    assert absolute_cosine(-E, np.ones((1, 3), bool)).tolist() == pytest.approx([2 * np.sqrt(0.5) / 3])
    assert np.isnan(absolute_cosine(E, np.array([[True, False, False]]))).all()


def test_dispersion_is_variance_on_the_two_widest_axes():
    """Units spread by 3 along one direction and by 1 along another, none along the third."""
    around = np.array([[3.0, 0, 0], [-3, 0, 0], [0, 1, 0], [0, -1, 0]])
    units = np.stack([around, around + np.array([5.0, 0, 0])])
    found = dispersion(units, np.ones((2, 4), bool))
    np.testing.assert_allclose(found, [[4.5, 0.5]] * 2)
    np.testing.assert_allclose(np.abs(two_axes(around)), [[1, 0], [0, 1], [0, 0]], atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.integers(2, 6))
def test_masked_units_and_their_order_change_nothing(seed, count):
    made = np.random.default_rng(seed)
    units, passages, queries = made.normal(size=(3, 6, 4)), made.normal(size=(3, 4)), made.normal(size=(3, 4))
    valid = np.arange(6) < np.array([[2], [count], [6]])
    other = np.where(valid[..., None], units, 1e6)
    order = made.permutation(6)
    back = np.argsort(order)
    labels = np.array([1, 0, 3])
    for function in (
        lambda u, v, y: balance_variance(unit_dots(passages, u), v),
        lambda u, v, y: extracted(queries, passages, u, v, y),
        lambda u, v, y: absolute_cosine(u, v),
        lambda u, v, y: dispersion(u, v),
    ):
        expected = function(units, valid, labels)
        np.testing.assert_allclose(function(other, valid, labels), expected)
        np.testing.assert_allclose(function(units[:, order], valid[:, order], back[labels]), expected)


def test_one_passage_of_many_units_does_not_make_all_as_large():
    """32 units once among passages of 2 to 4: ten times the memory of the units was taken."""
    made = np.random.default_rng(3)
    sizes = made.integers(2, 5, 2000)
    sizes[7] = 32
    valid = np.arange(32) < sizes[:, None]
    units = np.where(valid[..., None], made.normal(size=(2000, 32, 16)), 0).astype(np.float32)
    queries, passages, labels = made.normal(size=(2000, 16)), made.normal(size=(2000, 16)), made.integers(0, 2, 2000)
    tracemalloc.start()
    found = measures(queries, passages, units, valid, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * units.nbytes
    whole = {
        "balance_variance": balance_variance(unit_dots(passages, units), valid),
        "extractability_accuracy": extracted(queries, passages, units, valid, labels),
        "dispersion_y": dispersion(units, valid)[:, 1],
        "absolute_cosine": absolute_cosine(units, valid),
    }
    for name, values in whole.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=name)


def test_intervals():
    told = mean_with_interval(np.array([1.0, 2.0, 3.0, np.nan]))
    assert told["mean"] == 2.0 and told["count"] == 3
    assert told["high"] - told["mean"] == pytest.approx(1.96 / np.sqrt(3)) == told["mean"] - told["low"]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    segment()
    label()
    shutil.rmtree("results/.state", ignore_errors=True)
    return tmp_path


def measured(**params: object) -> dict[str, dict[str, str]]:
    run_spec(
        StageSpec(
            "measure_units",
            1,
            {"model": "tiny"},
            {
                "model": "results/init/manifest.json",
                "source": "results/source/manifest.json",
                "units": "results/units/manifest.json",
                "labels": "results/labels/manifest.json",
            },
            {"measures": "results/measures.tsv"},
            {"pairs": 30} | params,
            13,
            1,
        )
    )
    return {row["measure"]: row for row in csv.DictReader(open("results/measures.tsv"), delimiter="\t")}


def test_the_stage_measures_a_model(project):
    rows = measured()
    assert float(rows["random_accuracy"]["mean"]) == pytest.approx(1 / 3, rel=1e-4)
    assert {row["count"] for row in rows.values()} == {"30"}
    assert 0 <= float(rows["absolute_cosine"]["mean"]) <= 1 and float(rows["balance_variance"]["mean"]) > 0
    assert float(rows["extractability_accuracy"]["low"]) <= float(rows["extractability_accuracy"]["mean"])


def test_units_are_measured_in_the_space_that_was_trained(project):
    model, _ = from_scratch(tiny_settings(head="ance", document_tokens=64, query_tokens=16), Path("results/source"), 3)
    shutil.rmtree("results/init")
    model.save(Path("results/init"))
    seal(Path("results/init"))
    segment()
    label()
    lengths = {space: float(measured(unit_space=space)["unit_norm"]["mean"]) for space in ("raw", "head")}
    assert lengths["raw"] != pytest.approx(lengths["head"], rel=0.01)
    assert lengths["head"] == pytest.approx(SMALL["hidden"] ** 0.5, rel=0.005)  # its last layer is a LayerNorm
    narrow = SimpleNamespace(contract=SimpleNamespace(dimension=8, source="narrow"), tower=model.tower)
    with pytest.raises(ModelError, match="vectors of 8 components, its tokens have 32"):
        check_space(narrow, "raw")


def test_the_space_of_a_models_losses_is_that_of_its_measures(tmp_path):
    copy_config(tmp_path)
    berm = {"variants": {"in-head": {"settings": {"chain": {"ep0": {"berm": {"unit_space": "head"}}}}}}}
    recipe = {"like": "berm-dpr", "label": "head", "description": "test"} | berm
    (tmp_path / "config/methods/mine.yaml").write_text(yaml.safe_dump(recipe))
    made = lab_plan(tmp_path)
    for model, form in {"mine": {}, "mine+in-head": {"unit_space": "head"}}.items():
        params = PARAMS["measure_units"](made, SimpleNamespace(units_of="berm-dpr", model=model))
        assert params == {"pairs": params["pairs"], "title_join": params["title_join"]} | form
