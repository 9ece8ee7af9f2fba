"""A copy of the configuration that a test may change, and what a plan says of a job."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from zerodr.config.load import load_bench
from zerodr.plan import Plan

ROOT = Path(__file__).resolve().parents[2]


def copy_config(folder: Path) -> Path:
    """Copy the project's configuration into a folder, with its resources as a link."""
    (folder / "resources").symlink_to(ROOT / "resources")
    shutil.copytree(ROOT / "config", folder / "config", symlinks=True, ignore=shutil.ignore_patterns("my"))
    return folder


@pytest.fixture
def root(tmp_path):
    return copy_config(tmp_path)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the configuration, where a test runs, without a folder of the user's own."""
    monkeypatch.delenv("ZERODR_MY")
    copy_config(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lab_plan(root: Path, **config: object) -> Plan:
    """The plan at scale lab, or as `config` says."""
    return Plan(load_bench(root, {"scale": "lab"} | config))


def add_variants(root: Path, name: str, **variants: dict) -> None:
    """Add variants to a recipe."""
    path = root / f"config/methods/{name}.yaml"
    value = yaml.safe_load(path.read_text())
    value.setdefault("variants", {}).update(variants)
    path.write_text(yaml.safe_dump(value, sort_keys=False))


def inputs(made: Plan, rule: str, **words: str) -> dict[str, Any]:
    """Input files of a job, by the wildcards in its outputs."""
    return made.inputs(rule)(SimpleNamespace(**words))


def params(made: Plan, rule: str, *, scope: str = "shared", **words: str) -> dict[str, Any]:
    """Parameters of a job's stage, by the wildcards in its outputs."""
    return json.loads(made.settings(rule)(SimpleNamespace(scope=scope, **words)))
