"""Build items about models: units (BERM tables 5 and 6), adaptation and parameters (DDR figure 4, table 5)."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import pandas as pd

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.config.model_items import AdaptationItem, ParametersItem, UnitsItem
from zerodr.errors import ArtifactError
from zerodr.reporting.item_inputs import METRIC, Gain, ItemParams, ItemTable, gain, read_scores

WEIGHTS = "model.safetensors"
UNIT_LABELS = {
    "balance_variance": "Var (balance)",
    "relative_balance_variance": "Var / mean square",
    "extractability_accuracy": "Acc (essential unit)",
    "random_accuracy": "Acc of a random unit",
    "dispersion_x": "dispersion, first axis",
    "dispersion_y": "dispersion, second axis",
    "absolute_cosine": "mean |cosine| of two units",
    "passage_norm": "length of passage vectors",
    "unit_norm": "length of unit vectors",
}


def units(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Measure models over the units of passages, with intervals.

    Raises:
        ArtifactError: a file lacks a measure.
    """
    assert isinstance(item, UnitsItem)
    rows = []
    for method, path in zip(item.methods, stage.paths("measures"), strict=True):
        measures = pd.read_csv(path, sep="\t", index_col="measure")
        missing = [name for name in item.measures if name not in measures.index]
        if missing:
            problem = f"has no measure {missing[0]}, only {', '.join(measures.index)}"
            raise ArtifactError(path, problem, "correct the item's measures")
        for name in item.measures:
            row = {"method": method, "measure": name, **measures.loc[name, ["mean", "low", "high"]]}
            rows.append(row | {"pairs": int(measures.loc[name, "count"])})
    frame = pd.DataFrame(rows)
    cells = {(row["method"], row["measure"]): _cell(row) for _, row in frame.iterrows()}
    shown = [[settings.methods[method], *(cells[method, name] for name in item.measures)] for method in item.methods]
    notes = [
        f"units and labels of {item.units_of}, at most {frame['pairs'].max()} training pairs of {settings.source} with "
        "an essential unit; means over pairs with 95 % intervals (normal approximation); Var: population variance of "
        "the similarity of a passage with its units (smaller: more balanced); Acc: share of pairs whose matching "
        "vector is nearest to the essential unit"
    ]
    return ItemTable(frame, notes, (["", *(UNIT_LABELS.get(name, name) for name in item.measures)], shown))


def _cell(row: pd.Series) -> str:
    return f"{row['mean']:.4g} [{row['low']:.4g}, {row['high']:.4g}]"


def adaptation(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare nDCG@10 over the steps on the target, and that of references, which have none."""
    assert isinstance(item, AdaptationItem)
    scores, rows = read_scores(stage.paths("per_query")), []
    for name in settings.collections:
        for line, models in settings.points.items():
            for model, steps in models.items():
                values, first = scores[model, name], scores[next(iter(models)), name]
                level = gain(values, values * 0, settings.bootstrap_samples, stage.seed).columns(METRIC)
                over_first = gain(values, first, settings.bootstrap_samples, stage.seed).columns("gain")
                row = {"collection": name, "line": line, "method": model, "steps": steps}
                rows.append(row | {"reference": line in item.references} | level | over_first)
    frame = pd.DataFrame(rows)
    shown: list[list[str]] = []
    for _, row in frame.iterrows():
        names = settings.collections[row["collection"]], settings.methods[row["method"]]
        duration = "-" if row["reference"] else str(row["steps"])
        shown.append([*names, duration, f"{row[METRIC]:.4f}", str(Gain.of(row, "gain"))])
    notes = [
        "steps: optimiser steps on the target's texts; gain: over the line's first model; 95 % bootstrap "
        "intervals over queries"
    ]
    return ItemTable(frame, notes, (["", "method", "steps", "nDCG@10", "gain in nDCG@10"], shown))


def parameters(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Count the parameters that supervised learning trains, and those at inference, as shares of the backbone's.

    Raises:
        ArtifactError: a model has no lineage record, or no weights in the plain form.
    """
    assert isinstance(item, ParametersItem)
    rows = []
    for method, path in zip(item.methods, stage.paths("models"), strict=True):
        written, record = _written(path.parent / WEIGHTS), read_record(path)
        if record is None:
            raise ArtifactError(path, "has no lineage record, so its modules aren't known", "run its target again")
        plain = {"backbone": written, "lora": 0, "parallel_adapter": 0, "trained": written}
        facts = {key: int((record["notes"].get("rem") or plain)[key]) for key in plain}
        shares = {"trained_share": facts["trained"] / facts["backbone"], "inference": written}
        rows.append({"method": method} | facts | shares | {"inference_extra": written / facts["backbone"] - 1})
    frame = pd.DataFrame(rows)
    shown: list[list[str]] = []
    for _, row in frame.iterrows():
        counts = [f"{row[key]:,}" for key in ("backbone", "lora", "parallel_adapter", "trained")]
        inference = f"{row['inference']:,}", f"{row['inference_extra']:+.2%}"
        shown.append([settings.methods[row["method"]], *counts, f"{row['trained_share']:.2%}", *inference])
    header = ["", "backbone", "LoRA", "parallel adapter", "trained", "share", "at inference", "more"]
    notes = [
        "trained: by supervised learning; at inference: numbers in the plain model's weights file, modules folded "
        "in; shares are of the backbone with its embeddings"
    ]
    return ItemTable(frame, notes, (header, shown))


def _written(path: Path) -> int:
    """Count the numbers in a safetensors file by its header: 8 bytes with the length of the JSON that follows."""
    if not path.exists():
        raise ArtifactError(path, "is missing, so the model's numbers can't be counted", "assemble with fold: true")
    with open(path, "rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
