"""Examples in the docstrings of losses run, and every public function of a paper's losses has one."""

from __future__ import annotations

import ast
import doctest
from importlib import import_module
from pathlib import Path

import pytest

from zerodr import papers

MODULES = sorted(Path(papers.__file__).parent.glob("*/losses.py"))


def test_there_are_losses():
    assert len(MODULES) >= 4


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.parent.name)
def test_examples_of_losses_run(path):
    done = doctest.testmod(import_module(f"zerodr.papers.{path.parent.name}.losses"))
    assert done.attempted > 0 and done.failed == 0


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.parent.name)
def test_every_loss_has_an_example(path):
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    public = [node for node in functions if not node.name.startswith("_")]
    assert [node.name for node in public if ">>>" not in (ast.get_docstring(node) or "")] == []
