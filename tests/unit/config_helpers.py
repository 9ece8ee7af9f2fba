"""A copy of the configuration that a test may change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def copy_config(folder: Path) -> Path:
    """Copy the project's configuration into a folder, with its resources as a link."""
    (folder / "resources").symlink_to(ROOT / "resources")
    shutil.copytree(ROOT / "config", folder / "config", symlinks=True)
    return folder


@pytest.fixture
def root(tmp_path):
    return copy_config(tmp_path)
