"""The examples in the docstrings of search run and give what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ("batching", "candidates", "exact", "feedback", "fuse", "merge", "search", "vectors")


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_show(name):
    found = doctest.testmod(importlib.import_module(f"zerodr.retrieval.{name}"))
    assert found.attempted and not found.failed
