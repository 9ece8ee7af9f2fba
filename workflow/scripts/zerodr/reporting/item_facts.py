"""Build items about what is there before any ranking: settings, sizes of collections, sizes of models."""

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_size, qrels_files, read_qrels
from zerodr.config.item import Item
from zerodr.config.papers import SettingsItem, SizesItem, StatisticsItem
from zerodr.errors import ArtifactError
from zerodr.evaluation.numbers import fixed, plural
from zerodr.reporting.cells import Key
from zerodr.reporting.item_inputs import METRIC, ItemParams, ItemTable, mean_note, mean_over_collections, read_scores
from zerodr.reporting.published import title_of

WEIGHTS = "model.safetensors"
SUMS = ("documents", "queries", "train_pairs", "dev_queries")
STATISTICS = {
    "documents": "documents",
    "queries": "queries",
    "relevant": "relevant",
    "train_pairs": "training pairs",
    "dev_queries": "dev queries",
    "query_words": "words of a query",
    "document_words": "words of a document",
}
LENGTHS = {"query_words": "queries", "document_words": "documents"}


def settings_of_recipe(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Show settings of a recipe at the chosen scale."""
    assert isinstance(item, SettingsItem)
    frame = pd.DataFrame([{key: fact[key] for key in ("row", "metric", "value", "path")} for fact in settings.values])
    frame = frame.assign(value=[_text(value) for value in frame["value"]])
    notes = [f"settings of {settings.methods[item.method]} at scale {settings.scale}, by their place in the recipe"]
    named = frame["metric"].nunique() > 1
    names = frame["row"] + (", " + frame["metric"].map(title_of) if named else "")
    shown = [list(row) for row in zip(names, frame["value"], frame["path"], strict=True)]
    header = ["setting", "value", "place in the recipe"]
    return ItemTable(frame, notes, (header, shown), measured=measured_settings(settings.values))


def measured_settings(values: Sequence[Mapping[str, Any]]) -> dict[Key, float | str]:
    """Key settings by row of the paper's table and measure."""
    measured: dict[Key, float | str] = {}
    for fact in values:
        value = fact["value"]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        measured[fact["row"], "", fact["metric"]] = float(value) if is_number else _text(value)
    return measured


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def statistics(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Count documents, evaluated queries, training pairs; average lengths in words between blanks.

    A column of several collections has their sums, and their lengths weighted by counts.
    """
    assert isinstance(item, StatisticsItem)
    rows = []
    for path, manifest in zip(stage.paths("statistics"), stage.paths("collections"), strict=True):
        facts, folder = json.loads(path.read_text(encoding="utf-8")), manifest.parent
        split = settings.splits[facts["collection"]]
        judged = read_qrels(folder, split)
        counts = {"documents": corpus_size(folder), "queries": int(judged["query"].nunique())}
        counts["relevant"] = int((judged["grade"] > 0).sum())
        splits = qrels_files(folder)
        if "train" in splits:
            counts["train_pairs"] = len(read_qrels(folder, "train"))
        if split != "dev" and "dev" in splits:
            counts["dev_queries"] = int(read_qrels(folder, "dev")["query"].nunique())
        words = {key: facts[kind]["mean"] for key, kind in LENGTHS.items()}
        rows.append({"collection": facts["collection"]} | counts | words)
    frame = pd.DataFrame(rows)
    notes = [
        "words: between blanks (Chinese: characters); documents with their titles, at most as many as the scale reads; "
        "queries: of the evaluated split; relevant: judged pairs of these; training pairs, dev queries: of splits in "
        "the archive"
    ]
    keys = [key for key in STATISTICS if key in frame]
    shown = [
        [settings.collections[row["collection"]], *(_count(row[key], key in LENGTHS) for key in keys)]
        for row in frame.to_dict("records")
    ]
    return ItemTable(frame, notes, (["", *(STATISTICS[key] for key in keys)], shown), _by_column(frame, settings))


def _count(value: float, is_mean: bool) -> str:
    return "-" if pd.isna(value) else f"{value:.2f}" if is_mean else f"{value:,.0f}"


def _by_column(frame: pd.DataFrame, settings: ItemParams) -> dict[Key, float | str]:
    members = settings.published.members if settings.published else {}
    columns = {name: column for column, names in members.items() for name in names}
    measured: dict[Key, float | str] = {}
    for column, rows in frame.groupby(frame["collection"].map(lambda name: columns.get(name, name))):
        if len(rows) < len(members.get(str(column), (column,))):
            continue
        for key in SUMS:
            if key in rows and rows[key].notna().all():
                measured["", str(column), key] = float(rows[key].sum())
        for key, of in LENGTHS.items():
            measured["", str(column), key] = float((rows[key] * rows[of]).sum() / rows[of].sum())
        measured["", str(column), "documents_per_query"] = float(rows["relevant"].sum() / rows["queries"].sum())
    return measured


def sizes(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare the number of parameters with the mean over collections (COCO-DR figure 1)."""
    assert isinstance(item, SizesItem)
    scores = read_scores(stage.paths("per_query"))
    rows: list[dict[str, Any]] = []
    measured: dict[Key, float | str] = {}
    for method, manifest in zip(item.methods, stage.paths("models"), strict=True):
        means = {name: float(scores[method, name].mean()) for name in settings.collections}
        measured |= {(method, name, METRIC): mean for name, mean in means.items()}
        parameters = written_parameters(manifest.parent / WEIGHTS)
        measured[method, "parameters", "params"] = float(parameters)
        rows.append(
            {"method": method, "parameters": parameters, METRIC: float(mean_over_collections(means.values(), settings))}
        )
    count = len(settings.collections)
    notes = [f"parameters: numbers in the model's weights file; nDCG@10: mean over {plural(count, 'collection')}"]
    notes += mean_note(settings)
    shown = [[settings.methods[row["method"]], f"{row['parameters']:,}", fixed(row[METRIC])] for row in rows]
    return ItemTable(pd.DataFrame(rows), notes, (["", "parameters", "nDCG@10"], shown), measured)


def written_parameters(path: Path) -> int:
    """Count the numbers in a safetensors file by its header: 8 bytes with the length of the JSON that follows.

    Raises:
        ArtifactError: there is no such file.
    """
    if not path.exists():
        raise ArtifactError(path, "is missing, so the model's numbers can't be counted", "assemble with fold: true")
    with open(path, "rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
