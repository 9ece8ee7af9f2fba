"""Build and draw losses on judged queries by cluster or given group: what weights gain where the model is worst."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.errors import ArtifactError
from zerodr.papers.coco_dr.items import WorstClusterItem
from zerodr.reporting.claims import LEVEL, few_seeds
from zerodr.reporting.item_inputs import ItemParams, ItemTable
from zerodr.reporting.panels import difference_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


import json
from pathlib import Path
from typing import TYPE_CHECKING

from zerodr.evaluation.numbers import fixed, interval, signed
from zerodr.evaluation.significance import DECIDING, drawn_means, holm, t_test
from zerodr.papers.coco_dr.cluster_queries import STATISTICS
from zerodr.papers.coco_dr.items import GroupLossesItem
from zerodr.papers.coco_dr.training import TRACE
from zerodr.reporting.render import mark_of, marks_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure


BLOCK = 256  # resamples at a time
NAME = 28  # letters of a method's name in a line of the figure
MEASURES = {"all": "all queries", "worst": "worst cluster"}


def worst_cluster(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare losses of methods with their control's: of all queries, of each one's worst cluster."""
    assert isinstance(item, WorstClusterItem)
    seeds, named = [one["seed"] for one in settings.values], [item.baseline, *item.methods]
    frames = read_losses(stage, len(seeds), len(named))
    for of_seed in frames:
        if of_seed[0].groupby("cluster").size().max() < 2:
            what = f"have no cluster with two of {len(of_seed[0])} queries"
            raise ArtifactError("losses by cluster", what, "take a source with more judged queries, or fewer clusters")
    values = np.stack([_measures(of_seed) for of_seed in frames])  # (seeds, methods, measures)
    means = _resample(frames, settings.bootstrap_samples, stage.seed)  # (samples, methods, measures)
    rows: list[dict[str, Any]] = []
    for number, method in enumerate(named):
        for column, measure in enumerate(MEASURES):
            by_seed = values[:, number, column] - values[:, 0, column]
            spread = means[:, number, column] - means[:, 0, column]
            low, high = np.nanquantile(spread, [LEVEL / 2, 1 - LEVEL / 2])
            rows.append(
                {
                    "method": method,
                    "measure": measure,
                    "loss": values[:, number, column].mean(),
                    "difference": by_seed.mean(),
                    "difference_low": low,
                    "difference_high": high,
                    **{f"difference_seed{seed}": gap for seed, gap in zip(seeds, by_seed, strict=True)},
                }
            )
    frame = pd.DataFrame(rows)
    return ItemTable(frame, _notes(settings, item, frames, seeds), _shown(frame, settings, named, seeds))


def read_losses(stage: Stage, seeds: int, methods: int) -> list[list[pd.DataFrame]]:
    """Read input `losses`: for each seed a frame (query, cluster, loss) of each method, all of the same queries.

    Raises:
        ArtifactError: they are of other queries, or of other clusters with one seed.
    """
    files = iter(stage.paths("losses"))
    frames = [[pq.read_table(next(files)).to_pandas() for _ in range(methods)] for _ in range(seeds)]
    for of_seed in frames:
        if any(not frame[["query", "cluster"]].equals(of_seed[0][["query", "cluster"]]) for frame in of_seed):
            raise ArtifactError("losses by cluster", "are of other queries or clusters", "measure all again")
        if not of_seed[0]["query"].equals(frames[0][0]["query"]):
            raise ArtifactError("losses by cluster", "are of other queries for another seed", "measure all again")
    return frames


def _measures(frames: list[pd.DataFrame]) -> np.ndarray:
    """Compute the mean loss and the loss of the worst cluster of each method, (methods, 2)."""
    return _weighted(frames, np.ones((1, len(frames[0]))))[0]


def _weighted(frames: list[pd.DataFrame], counts: np.ndarray) -> np.ndarray:
    """Compute the same with queries counted `counts` times, (samples, Q): (samples, methods, 2).

    A method's worst cluster is found on one half of the queries and its loss taken from the other half, both ways:
    the largest of several noisy means would be too large, and more so where clusters are alike.
    """
    clusters = pd.get_dummies(frames[0]["cluster"]).to_numpy(float)  # (Q, K)
    turns = frames[0].groupby("cluster").cumcount().to_numpy() % 2  # queries of a cluster by turns, (Q,) of 0 and 1
    halves = [clusters * (turns == half)[:, None] for half in (0, 1)]
    sizes = [counts @ half for half in halves]  # (samples, K)
    shared, every = (sizes[0] > 0) & (sizes[1] > 0), []  # clusters with queries in both halves, (samples, K)
    for frame in frames:
        losses = frame["loss"].to_numpy(float)
        sums = [counts @ (half * losses[:, None]) for half in halves]
        means = [np.divide(a, b, out=np.full_like(b, -np.inf), where=shared) for a, b in zip(sums, sizes, strict=True)]
        chosen = [np.take_along_axis(means[1 - half], means[half].argmax(1)[:, None], axis=1)[:, 0] for half in (0, 1)]
        worst = np.where(shared.any(1), np.mean(chosen, axis=0), np.nan)
        every.append(np.stack([counts @ losses / counts.sum(1), worst], axis=1))
    return np.stack(every, axis=1)


def _resample(frames: list[list[pd.DataFrame]], samples: int, seed: int) -> np.ndarray:
    """Compute the measures of resamples of the queries, with replacement, means of seeds: (samples, methods, 2).

    All seeds are judged on the same queries, so each resample is drawn once for all: what queries differ by is no
    smaller with more seeds.
    """
    generator, queries = np.random.default_rng(seed), len(frames[0][0])
    every = []
    for start in range(0, samples, BLOCK):
        size = min(BLOCK, samples - start)
        counts = generator.multinomial(queries, np.full(queries, 1 / queries), size=size).astype(float)
        every.append(np.mean([_weighted(of_seed, counts) for of_seed in frames], axis=0))
    return np.concatenate(every)


def _notes(
    settings: ItemParams, item: WorstClusterItem, frames: list[list[pd.DataFrame]], seeds: list[int]
) -> list[str]:
    sizes = [of_seed[0].groupby("cluster").size() for of_seed in frames]
    queries, clusters = _range(map(sum, sizes)), _range(map(len, sizes))
    return [
        f"loss in nats of a relevant document among those of all queries, on {queries} judged queries of "
        f"{settings.source} that no stage of these recipes learned from, in {clusters} clusters of "
        f"{_range(n for size in sizes for n in size)} queries; "
        f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}; 95 % bootstrap intervals over queries; below 0 is "
        f"better than {settings.methods[item.baseline]}",
        "a method's worst cluster is found on half of the queries and its loss taken from the other half, both ways: "
        "where that loss is no larger than that of all queries, they are too few to say which cluster is worst",
        *few_seeds(seeds),
    ]


def _range(numbers: Iterable[int]) -> str:
    low, high = min(every := list(numbers)), max(every)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _shown(
    frame: pd.DataFrame, settings: ItemParams, named: list[str], seeds: list[int]
) -> tuple[list[str], list[list[str]]]:
    header, rows = ["", *MEASURES.values()], []
    for number, method in enumerate(named):
        of_method = frame[frame["method"] == method]
        rows.append([settings.methods[method], *map(fixed, of_method["loss"])])
        if number == 0:
            continue
        rows.append(["difference", *map(signed, of_method["difference"])])
        spans = zip(of_method["difference_low"], of_method["difference_high"], strict=True)
        rows.append(["95 %", *(interval(low, high) for low, high in spans)])
        for seed in seeds if len(seeds) > 1 else ():
            rows.append([f"seed {seed}", *map(signed, of_method[f"difference_seed{seed}"])])
    return header, rows


def draw_worst_cluster(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw differences of losses from the control's, a panel a measure, small dots for seeds."""
    methods = list(settings.item["methods"])
    labels = [textwrap.fill(settings.methods[method], NAME) for method in methods]
    of_methods = frame[frame["method"].isin(methods)]
    shown = {title: of_methods[of_methods["measure"] == measure] for measure, title in MEASURES.items()}
    control = settings.methods[settings.item["baseline"]]
    what = f"loss on queries of the source minus that of {control}, with 95 % interval; lower is better"
    figure = difference_panels(shown, labels, 0.5, what)
    for axes in figure.axes[1:]:
        axes.tick_params(labelleft=False)
    return figure


ALL = "all queries"
WIDE = 8  # groups that fit beside each other


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
            low = high = np.nan  # a loss has no range, which the interval of a few queries could be
            if len(mean) >= DECIDING:
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
        *(["intervals, and each seed's numbers: in the tsv"] if len(members) > WIDE else []),
        *([f"groups of fewer than {DECIDING} queries have no interval"] if frame["queries"].min() < DECIDING else []),
        *few_seeds(seeds),
    ]
    return ItemTable(frame, notes, _shown_groups(frame, settings, named, seeds))


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


def _shown_groups(
    frame: pd.DataFrame, settings: ItemParams, named: list[str], seeds: list[int]
) -> tuple[list[str], list[list[str]]]:
    """A column a group with intervals and seeds; more than `WIDE` groups are rows, without these."""
    groups = list(dict.fromkeys(frame["group"]))
    wide, several = len(groups) > WIDE, len(seeds) > 1
    rows = [["queries", *(f"{count:,}" for count in frame["queries"][: len(groups)])]]
    for number, method in enumerate(named):
        of_method, label = frame[frame["method"] == method], settings.methods[method]
        if not wide or not number:
            rows.append([label, *map(fixed, of_method["loss"])])
        if number:
            marks = (mark_of(-row.difference, row.p_t_holm) for row in of_method.itertuples())
            gaps = zip(of_method["difference"], marks, strict=True)
            name = f"{label}: difference" if wide else "difference"
            rows.append([name, *(f"{signed(value)} {mark}".rstrip() for value, mark in gaps)])
            if not wide:
                spans = zip(of_method["difference_low"], of_method["difference_high"], strict=True)
                rows.append(["95 %", *("" if low != low else interval(low, high) for low, high in spans)])
            for seed in seeds if several and not wide else ():
                rows.append([f"seed {seed}", *map(signed, of_method[f"difference_seed{seed}"])])
        if of_method["weight"].notna().any():
            rows.append(["weight", *map(_weight, of_method["weight"])])
            for seed in seeds if several and not wide else ():
                rows.append([f"weight, seed {seed}", *map(_weight, of_method[f"weight_seed{seed}"])])
    if not wide:
        return ["", *groups], rows
    return ["", *(row[0] for row in rows)], [
        list(line) for line in zip(groups, *(row[1:] for row in rows), strict=True)
    ]


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
