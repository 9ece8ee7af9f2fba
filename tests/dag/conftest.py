"""A clone of the checkout without results, and Snakemake run in it as a user would."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.forked import shipped_planners

PARTS = ("Snakefile", "workflow", "config", "envs", "slurm", "resources/reference")


def clone(root: Path, target: Path) -> Path:
    """Copy the tracked parts of the project that a run needs, with its modules compiled."""
    compileall.compile_dir(root / "workflow/scripts", quiet=2)
    for part in PARTS:
        source = root / part
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            (target / part).symlink_to(source.readlink())
        elif source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("my", "*.pyc.*"))
        else:
            shutil.copy(source, target / part)
    return target


@pytest.fixture(scope="session")
def checkout(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean clone, shared by tests that only plan."""
    return clone(root, tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def snakemake(checkout: Path) -> Callable[..., subprocess.CompletedProcess]:
    """`snakemake("-n", ...)` in the clean clone."""

    def call(*words: str, cwd: Path = checkout) -> subprocess.CompletedProcess:
        environment = {name: value for name, value in os.environ.items() if name != "ZERODR_MY"}
        return shipped_planners().run("snakemake", *words, cwd=cwd, env=environment)

    return call
