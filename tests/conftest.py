"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from zerodr.config import files, overrides, recipes
from zerodr.config.layers import Start
from zerodr.config.load import mirrors_of
from zerodr.config.methods import Method, TrainedMethod
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
def _texts() -> None:
    """A text of YAML is parsed once; each reader gets values of its own."""
    loader, parsed = files.UniqueLoader, dict[str, Any]()

    class Once:
        def __init__(self, text: str) -> None:
            self.text = text

        def get_single_data(self) -> Any:
            if self.text not in parsed:
                parsed[self.text] = loader(self.text).get_single_data()
            return deepcopy(parsed[self.text])

    files.UniqueLoader = Once


@pytest.fixture(scope="session", autouse=True)
def _recipes() -> None:
    """A recipe as it is shipped is merged and checked once a scale, not for each bench that a test loads."""
    read, methods, last = recipes.read_recipe, dict[Any, dict[str, Method]](), dict[str, Any]()
    shipped = {name: repr(written) for name, written in recipes.read_files(ROOT / "config/methods").items()}

    def once(path: Path, written: Any, scale: str, scales: set[str], starts: Mapping[str, Start]) -> dict[str, Method]:
        if shipped.get(path.stem) != repr(written):
            return read(path, written, scale, scales, starts)
        if last.get("starts") is not starts:
            last.update(starts=starts, text=repr(starts))
        key = (str(path), scale, *sorted(scales), last["text"])
        if key not in methods:
            methods[key] = read(path, written, scale, scales, starts)
        return {name: with_own_chain(method) for name, method in methods[key].items()}

    def with_own_chain(method: Method) -> Method:
        if not isinstance(method, TrainedMethod):
            return method
        settings = method.settings.model_copy(update={"chain": dict(method.settings.chain)})  # which tests change
        return method.model_copy(update={"settings": settings})

    recipes.read_recipe = overrides.read_recipe = once


def pytest_collection_finish() -> None:
    """Let the search for garbage pass over the modules and tests, which stay to the end."""
    gc.collect()
    gc.freeze()
