"""Plans of all recipes at all scales equal their golden files: a move of code changes nothing, a change is a diff."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest
from tests.dag.plans import GIVEN
from tests.forked import shipped_planners

from zerodr.config.files import read_yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
METHODS = sorted((ROOT / "config/methods").glob("*.yaml"))
RECIPES = [path.stem for path in METHODS if read_yaml(path).get("kind") != "scores"]  # published numbers need no job
PAPERS = sorted(f"paper-{path.stem}" for path in (ROOT / "config/papers").glob("*.yaml"))


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    done = shipped_planners().run("tests.dag.plans", str(folder), cwd=ROOT, env=os.environ)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", ["collections", *RECIPES, *PAPERS])
def test_plans_are_golden(plans, name):
    golden, planned = ((folder / f"{name}.txt").read_text() for folder in (HERE / "golden/plans", plans))
    changes = difflib.unified_diff(golden.splitlines(), planned.splitlines(), "golden", "planned", lineterm="", n=2)
    assert golden == planned, "\n".join(["run: python tests/dag/plans.py, and read the diff", *list(changes)[:60]])


def test_no_golden_plan_is_left_over(plans):
    assert sorted(path.name for path in (HERE / "golden/plans").iterdir()) == sorted(p.name for p in plans.iterdir())


def test_every_variant_is_planned(plans):
    for recipe in RECIPES:
        variants = read_yaml(ROOT / f"config/methods/{recipe}.yaml").get("variants") or {}
        text = (plans / f"{recipe}.txt").read_text()
        planned = {f"{recipe}+{name}" for name in variants} - {*GIVEN}
        assert [name for name in planned if name not in text] == []
