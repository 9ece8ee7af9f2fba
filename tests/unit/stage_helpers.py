"""A stage in a checkout of its own, for tests of what runs stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from zerodr.artifacts.stage import Stage, StageSpec

FILE, FOLDER = "results/out/x.txt", "results/out/folder/manifest.json"


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("results/in").mkdir(parents=True)
    Path("results/in/a.txt").write_text("a")
    return tmp_path


def spec_of(**changed) -> StageSpec:
    base = StageSpec(
        rule="make",
        version=1,
        wildcards={"name": "x"},
        inputs={"text": "results/in/a.txt"},
        outputs={"out": FILE},
        params={"times": 2},
    )
    return replace(base, **changed)


def repeat(stage: Stage) -> None:
    stage.output("out").write_text(stage.path("text").read_text() * stage.params["times"])


def making() -> list[str]:
    return sorted(str(path) for path in Path("results").rglob("*making*"))
