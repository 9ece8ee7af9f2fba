"""Examples in docstrings run, and the functions that compute numbers of tables have one."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest
from tests.unit.house_helpers import MODULES, SCRIPTS

from zerodr.encoders.network.heads import POOLINGS

WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(SCRIPTS).with_suffix("").parts) for path in MODULES if ">>> " in path.read_text()
)
SEARCH = ("batching", "candidates", "exact", "feedback", "fuse", "merge", "search", "vectors")
ENCODERS = (
    *("folder.contract", "network.heads", "network.loading", "network.tokenizing", "network.trainable"),
    *("pretraining.condenser", "pretraining.prediction"),
)
SHOWN = ("metrics", "significance")  # modules of evaluation whose public functions all have an example


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_give_what_they_say(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried and not failed


@pytest.mark.parametrize("name", SHOWN)
def test_every_measure_and_test_has_an_example(name):
    module = importlib.import_module(f"zerodr.evaluation.{name}")
    functions = [f for n, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]
    public = [f for f in functions if not f.__name__.startswith("_")]
    assert [f.__name__ for f in public if ">>> " not in (f.__doc__ or "")] == []


def test_search_has_examples():
    assert {f"zerodr.retrieval.{name}" for name in SEARCH} <= set(WITH_EXAMPLES)


def test_encoders_have_examples():
    assert {f"zerodr.encoders.{name}" for name in ENCODERS} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_has_an_example(pooling):
    assert ">>> " in (POOLINGS[pooling].__doc__ or "")
