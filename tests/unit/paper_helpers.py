"""A stage's inputs and settings as tests of the papers' items make them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq

from zerodr.config.base import canonical_json
from zerodr.reporting import item_tables, items
from zerodr.reporting.item_inputs import METRIC, ItemParams


class Told:
    """A stage's inputs and outputs."""

    seed = 13

    def __init__(self, inputs: dict[str, list[Path]], folder: Path, params: dict | None = None) -> None:
        self.inputs, self.folder, self.params = inputs, folder, params
        self.spec = SimpleNamespace(name=lambda: "build_item test", inputs=inputs)

    def paths(self, name: str) -> list[Path]:
        return self.inputs[name]

    def path(self, name: str) -> Path:
        (path,) = self.inputs[name]
        return path

    def output(self, name: str) -> Path:
        return self.folder / name


def scores(
    folder: Path,
    method: str,
    collection: str,
    values: list[float],
    queries: list[str] | None = None,
    more: tuple[str, ...] = (),
) -> Path:
    path = folder / f"{method}.{collection}.parquet".replace("/", "-")
    names = queries or [f"q{number}" for number in range(len(values))]
    pq.write_table(
        pa.table(
            {
                "model": [method] * len(values),
                "collection": [collection] * len(values),
                "query": names,
                METRIC: values,
                **{key: values for key in more},
            }
        ),
        path,
    )
    return path


def params(
    item: dict,
    collections: tuple[str, ...] = ("a",),
    methods: tuple[str, ...] = ("ours", "bm25"),
    points: dict | None = None,
    stages: dict | None = None,
    values: tuple[dict, ...] = (),
) -> dict:
    """As the plan writes them: mappings whose order counts are lists."""
    return {
        "paper": "Paper",
        "name": "table1",
        "item": {"title": "A title", "collections": None} | item,
        "collections": [(name, name.upper()) for name in collections],
        "source": "s",
        "splits": {name: "test" for name in (*collections, "s")},
        "methods": [(name, name.title()) for name in methods],
        "scale": "mini",
        "protocol": "standard",
        "points": [(line, list(models.items())) for line, models in (points or {}).items()],
        "stages": list((stages or {}).items()),
        "values": list(values),
        "bootstrap_samples": 200,
    }


def told(item: dict, inputs: dict, folder: Path, **more: object) -> tuple[Told, ItemParams]:
    """A stage and its settings after their way through canonical JSON, which sorts the keys of mappings."""
    written = json.loads(canonical_json(params(item, **more)))
    return Told(inputs, folder, written), ItemParams.model_validate(written)


def drawn(folder: Path, inputs: dict, item: dict, **more: object) -> None:
    """The item's files, and its figure, twice the same."""
    stage, _ = told(item, inputs, folder, **more)
    items.build_item(stage)
    stage.inputs["table"] = [folder / "table"]
    pictures = []
    for _ in range(2):
        item_tables.plot_item(stage)
        pictures.append((folder / "svg").read_bytes())
    assert pictures[0] == pictures[1] and (folder / "png").stat().st_size > 5000
