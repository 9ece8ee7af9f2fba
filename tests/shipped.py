"""Read what is shipped in `config/` once a process, and its forks (tests/forked.py)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from zerodr.config import files, overrides, recipes
from zerodr.config.layers import Start
from zerodr.config.load import load_bench
from zerodr.config.methods import Method, TrainedMethod

ROOT = Path(__file__).resolve().parents[1]


def read_once() -> None:
    """Parse a text of YAML once, and merge and check a shipped recipe once a scale. Each reader gets values of its own.

    A recipe is a shipped one if it holds the same: a test may write others to `config/methods` of its own folder.
    """
    _parse_once()
    _merge_once()


def _parse_once() -> None:
    loader, parsed = files.UniqueLoader, dict[str, Any]()

    class Once:
        def __init__(self, text: str) -> None:
            self.text = text

        def get_single_data(self) -> Any:
            if self.text not in parsed:
                parsed[self.text] = loader(self.text).get_single_data()
            return deepcopy(parsed[self.text])

    files.UniqueLoader = Once


def _merge_once() -> None:
    read, methods, last = recipes.read_recipe, dict[Any, dict[str, Method]](), dict[str, Any]()
    shipped = {name: repr(written) for name, written in recipes.read_files(ROOT / "config/methods").items()}

    def once(path: Path, written: Any, scale: str, scales: set[str], starts: Mapping[str, Start]) -> dict[str, Method]:
        if shipped.get(path.stem) != repr(written):
            return read(path, written, scale, scales, starts)
        if last.get("starts") is not starts:
            last.update(starts=starts, text=repr(starts))
        key = (path.stem, scale, *sorted(scales), last["text"])
        if key not in methods:
            methods[key] = read(path, written, scale, scales, starts)
        return {name: with_own_chain(method) for name, method in methods[key].items()}

    def with_own_chain(method: Method) -> Method:
        if not isinstance(method, TrainedMethod):
            return method
        settings = method.settings.model_copy(update={"chain": dict(method.settings.chain)})  # which tests change
        return method.model_copy(update={"settings": settings})

    recipes.read_recipe = overrides.read_recipe = once


def read_all() -> None:
    """Read the configuration, and with it all recipes at all scales."""
    read_once()
    load_bench(ROOT)
