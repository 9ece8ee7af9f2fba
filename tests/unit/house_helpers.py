"""Modules of the library, their names and their syntax trees, for the tests of the house."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "workflow/scripts"
LIBRARY = SCRIPTS / "zerodr"
CONVERTER = LIBRARY / "encoders/start/convert.py"  # the one reader of pickled files, of tensors alone
MODULES = sorted(LIBRARY.rglob("*.py"))
ADAPTERS = sorted(SCRIPTS.glob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in [*MODULES, *ADAPTERS]}
