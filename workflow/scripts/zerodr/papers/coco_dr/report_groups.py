"""Build and draw losses on judged queries by given group, and the groups' weights: what weights do to each group."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.evaluation.numbers import fixed, interval, signed
from zerodr.evaluation.significance import drawn_means, holm, t_test
from zerodr.papers.coco_dr.cluster_queries import STATISTICS
from zerodr.papers.coco_dr.items import GroupLossesItem
from zerodr.papers.coco_dr.report_clusters import NAME, read_losses
from zerodr.papers.coco_dr.training import TRACE
from zerodr.reporting.claims import LEVEL, few_seeds
from zerodr.reporting.item_inputs import ItemParams, ItemTable
from zerodr.reporting.panels import difference_panels
from zerodr.reporting.render import mark_of, marks_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "all queries"


def group_losses(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare losses of methods with their control's: a row a method and group, first that of all queries."""
    assert isinstance(item, GroupLossesItem)
    seeds, named = [one["seed"] for one in settings.values], [item.baseline, *item.methods]
    frames = read_losses(stage, len(seeds), len(named))
    names = json.loads((stage.path("clusters") / STATISTICS).read_text(encoding="utf-8"))["groups"]
    weights = _weights(stage.paths("models"), len(seeds), len(named), len(names))
    losses = np.stack([[frame["loss"].to_numpy(float) for frame in of_seed] for of_seed in frames])
    cluster = frames[0][0]["cluster"].to_numpy()
    members = {ALL: np.ones(len(cluster), bool)} | {name: cluster == number for number, name in enumerate(names)}
    rows = []
    for number, method in enumerate(named):
        for column, (group, chosen) in enumerate(members.items()):
            if not chosen.any():
                continue
            of_group = losses[:, :, chosen]
            difference = of_group[:, number] - of_group[:, 0]  # (seeds, queries)
            mean = difference.mean(0)[:, None]
            drawing = drawn_means(mean, settings.bootstrap_samples, stage.seed + column, 0.0)[:, 0]
            low, high = np.quantile(drawing, [LEVEL / 2, 1 - LEVEL / 2])
            rows.append(
                {
                    "method": method,
                    "group": group,
                    "queries": int(chosen.sum()),
                    "loss": of_group[:, number].mean(),
                    "difference": difference.mean(),
                    "difference_low": low,
                    "difference_high": high,
                    **{f"difference_seed{s}": gap for s, gap in zip(seeds, difference.mean(1), strict=True)},
                    "p_t": float(t_test(mean)[0]) if number else float("nan"),
                    **_weight_columns(weights[:, number, column - 1] if column else None, seeds),
                }
            )
    frame = pd.DataFrame(rows)
    tested = frame["method"] != item.baseline
    frame.loc[tested, "p_t_holm"] = holm(frame.loc[tested, "p_t"].to_numpy(float))
    notes = [
        f"loss in nats of a relevant document among those of all {len(cluster):,} judged queries of {settings.source} "
        f"that no stage of these recipes learned from; seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}, each "
        f"query's loss averaged over them; {marks_note(settings.methods[item.baseline], int(tested.sum()), ', ')}; "
        "95 % bootstrap intervals over queries; below 0 is better",
        f"weight: a group's weight times the number of groups, {len(names)}, mean over the written steps of training: "
        "1 is as much as every other group; methods whose weights do not build up have none",
        *few_seeds(seeds),
    ]
    return ItemTable(frame, notes, _shown(frame, settings, named, seeds))


def _weights(models: list[Path], seeds: int, methods: int, groups: int) -> np.ndarray:
    """Read the groups' weights times their number, means over written steps: (seeds, methods, groups); NaN: none."""
    weights = np.full((len(models), groups), np.nan)
    for row, model in zip(weights, models, strict=True):
        file = model.parent / TRACE
        if file.exists():
            trace = pq.read_table(file).to_pandas().groupby("cluster")["weight"].mean()
            row[trace.index] = trace / trace.sum() * groups
    return weights.reshape(seeds, methods, groups)


def _weight_columns(by_seed: np.ndarray | None, seeds: list[int]) -> dict[str, float]:
    values = np.full(len(seeds), np.nan) if by_seed is None else by_seed
    return {"weight": values.mean(), **{f"weight_seed{s}": one for s, one in zip(seeds, values, strict=True)}}


def _shown(
    frame: pd.DataFrame, settings: ItemParams, named: list[str], seeds: list[int]
) -> tuple[list[str], list[list[str]]]:
    first = frame[frame["method"] == named[0]]
    header = ["", *first["group"]]
    rows = [["queries", *(f"{count:,}" for count in first["queries"])]]
    for number, method in enumerate(named):
        of_method = frame[frame["method"] == method]
        rows.append([settings.methods[method], *map(fixed, of_method["loss"])])
        if number:
            marks = (mark_of(-row.difference, row.p_t_holm) for row in of_method.itertuples())
            gaps = zip(of_method["difference"], marks, strict=True)
            rows.append(["difference", *(f"{signed(value)} {mark}".rstrip() for value, mark in gaps)])
            spans = zip(of_method["difference_low"], of_method["difference_high"], strict=True)
            rows.append(["95 %", *(interval(low, high) for low, high in spans)])
            for seed in seeds if len(seeds) > 1 else ():
                rows.append([f"seed {seed}", *map(signed, of_method[f"difference_seed{seed}"])])
        if of_method["weight"].notna().any():
            rows.append(["weight", *map(_weight, of_method["weight"])])
            for seed in seeds if len(seeds) > 1 else ():
                rows.append([f"weight, seed {seed}", *map(_weight, of_method[f"weight_seed{seed}"])])
    return header, rows


def _weight(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def draw_group_losses(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw differences of losses from the control's, a panel a group, small dots for seeds."""
    methods, groups = list(settings.item["methods"]), list(dict.fromkeys(frame["group"]))
    labels = [textwrap.fill(settings.methods[method], NAME) for method in methods]
    shown = {group: frame[(frame["group"] == group) & frame["method"].isin(methods)] for group in groups}
    control = settings.methods[settings.item["baseline"]]
    what = f"loss on queries of a group minus that of {control}, with 95 % interval; lower is better"
    return difference_panels(shown, labels, 0.4, what)
