"""Hub models without a revision: planned, and refused before a run at scale paper fetches them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from zerodr.config.load import load_bench
from zerodr.errors import ConfigError
from zerodr.plan import Plan
from zerodr.plan.pins import pin_refusal

HUB = "kind: encoder\nlabel: x\ndescription: x\nsettings: {model: organisation/name}\n"
TRAINED = """
kind: trained
label: x
description: x
settings:
  encoder: {init: organisation/start}
  chain:
    ep0:
      negatives: {source: bm25-flat+bm25s}
      objective: {name: info_nce}
      training: {steps: 10, batch_queries: 8}
"""


@pytest.fixture
def methods(root, tmp_path):
    (tmp_path / "resources").symlink_to(root / "resources")
    project = Path(shutil.copytree(root / "config", tmp_path / "config")).parent
    (project / "config/methods/hub.yaml").write_text(HUB)
    (project / "config/methods/hub2.yaml").write_text(HUB.replace("}", ", revision: abc}"))
    (project / "config/methods/own.yaml").write_text(TRAINED)
    return project


def refusal(root, scale, *jobs):
    return pin_refusal(Plan(load_bench(root, {"scale": scale, "methods": ["bm25-flat"]})), jobs)


def test_a_table_with_an_unpinned_row_is_planned(methods):
    assert Plan(load_bench(methods, {"scale": "paper", "methods": ["hub"]})).methods == ("hub",)


def test_a_run_that_would_fetch_it_is_refused(methods):
    text = refusal(methods, "paper", ("import_model", "hub"), ("init_model", "own"), ("search_bm25", "bm25-flat"))
    assert "'organisation/name' (method hub)" in text and "'organisation/start' (method own)" in text
    assert (
        "pin before use: add --config 'revisions={organisation/name: <commit>, organisation/start: <commit>}'" in text
    )


def test_the_option_pins_whatever_names_the_model(methods):
    pins = {"organisation/name": "abc", "organisation/start": "def"}
    bench = load_bench(methods, {"scale": "paper", "revisions": pins})
    assert bench.methods["hub"].settings.revision == bench.methods["hub2"].settings.revision == "abc"
    assert bench.methods["own@ep0"].settings.encoder.revision == "def"
    assert bench.methods["dpr"].settings.encoder.revision != "def"
    assert pin_refusal(Plan(bench), [("import_model", "hub"), ("init_model", "own")]) == ""


def test_a_model_that_no_recipe_names_is_refused(methods):
    with pytest.raises(ConfigError, match="no recipe names the model 'organisation/nam': did you mean organisation/n"):
        load_bench(methods, {"revisions": {"organisation/nam": "abc"}})


def test_pinned_models_packages_and_small_scales_are_not(methods):
    assert refusal(methods, "paper", ("import_model", "hub2"), ("import_model", "all-minilm-l6-v2")) == ""
    assert refusal(methods, "paper", ("init_model", "dpr"), ("init_model", "dpr+scratch"), ("init_model", "kd")) == ""
    assert refusal(methods, "mini", ("import_model", "hub")) == ""
