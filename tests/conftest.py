"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.shipped import read_once
from zerodr.config.load import mirrors_of
from zerodr.encoders.inference import graph

os.environ["ZERODR_MY"] = ""  # what users add to their checkout changes no test
ROOT = Path(__file__).resolve().parents[1]

# A busy machine is no failure: no time limit for an example, nor for making one.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return ROOT


@pytest.fixture(scope="session")
def mirror() -> Path:
    """A mirror folder with real collections; tests that need one are skipped without it."""
    for path in mirrors_of(ROOT):
        if (path / "scifact.zip").exists():
            return path
    pytest.skip("no mirror folder with real collections (ZERODR_MIRRORS)")


@pytest.fixture(scope="session", autouse=True)
def _graphs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All tests of a run share what was converted for OpenVINO, and leave nothing elsewhere."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "graphs"
    graph.graphs_folder = lambda: shared


@pytest.fixture(scope="session", autouse=True)
def _read_once() -> None:
    """Texts and shipped recipes are read once, not for each bench that a test loads."""
    read_once()


@pytest.fixture(autouse=True)
def _forget_changed() -> Iterator[None]:
    """Forget after each test which artifacts Snakemake found changed."""
    yield
    if trust := sys.modules.get("zerodr.operations.trust"):
        trust.CHANGED.clear()


def pytest_collection_finish() -> None:
    """Let the search for garbage pass over the modules and tests, which stay to the end."""
    gc.collect()
    gc.freeze()
