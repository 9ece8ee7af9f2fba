"""Build and draw claims: what methods gain over their control, averaged over seeds (`results/lab/*.html`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.config.measures import label_of
from zerodr.config.papers import ClaimItem
from zerodr.errors import ArtifactError
from zerodr.evaluation.numbers import fixed, interval, signed
from zerodr.evaluation.significance import drawn_means, few_queries, holm, mean_interval, t_test
from zerodr.reporting.item_inputs import METRIC, ItemParams, ItemTable, mean_note, mean_over_collections, read_scores
from zerodr.reporting.panels import ACROSS, COLORS, bars, interval_rows, panels, wrapped
from zerodr.reporting.render import LEVEL, mark_of, marks_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENOUGH = 3  # seeds before a sentence about a method
TITLE = 13  # of a panel, whose labels take a third of its width: points, as if of 9
POOLED = "mean of these methods"
MEAN = "mean"  # of all collections, in the column of collections
Scores = dict[str, np.ndarray]  # collection -> (seeds, queries)


def claim(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare methods with their control: a row a method and collection, then the mean over collections."""
    assert isinstance(item, ClaimItem)
    scores, seeds = read_scores(stage.paths("per_query"), item.measure), [one["seed"] for one in settings.values]
    names = [one["names"] for one in settings.values]

    def of(method: str) -> Scores:
        every = [names[0][item.baseline], *(name[method] for name in names)]  # first: its queries are those of all
        return {c: _over_seeds(scores, every, c)[1:] for c in settings.collections}

    rows = list[dict[str, object]]()
    compared = {method: of(method) for method in item.methods}
    if item.pooled:
        every_method = list(compared.values())
        compared[POOLED] = {c: np.mean([values[c] for values in every_method], axis=0) for c in settings.collections}
    for method, values in compared.items():
        control = of(item.control(method))
        resampled = []
        for number, name in enumerate(settings.collections):
            difference = values[name] - control[name]
            drawing = difference.mean(0)[:, None], settings.bootstrap_samples, stage.seed + number, -1.0
            resampled.append(drawn_means(*drawing)[:, 0])
            low, high = mean_interval(*drawing)
            p_value = float(t_test(drawing[0])[0])
            about = {"queries": difference.shape[1], "control": control[name].mean(), "value": values[name].mean()}
            rows.append(
                {"method": method, "collection": name, **about, **_gain(difference, (low, high), seeds, p_value)}
            )
        every = [values[name].mean(1) - control[name].mean(1) for name in settings.collections]
        difference = mean_over_collections(every, settings)[:, None]
        means = mean_over_collections(resampled, settings)
        span = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
        about = {"queries": 0, "control": _mean(control, settings), "value": _mean(values, settings)}
        rows.append({"method": method, "collection": MEAN, **about, **_gain(difference, span, seeds, float("nan"))})
    frame = pd.DataFrame(rows)
    tested = frame["collection"] != MEAN
    frame.loc[tested, "p_t_holm"] = holm(frame.loc[tested, "p_t"].to_numpy(float))
    return ItemTable(
        frame,
        _notes(settings, item, frame.loc[tested, "queries"].tolist(), seeds),
        _shown(frame, settings, item, seeds),
    )


def _over_seeds(scores: dict[tuple[str, str], pd.Series], names: Iterable[str], collection: str) -> np.ndarray:
    """Stack a measure by query of several rankings, (rankings, queries), which must have the same queries."""
    series = [scores[name, collection] for name in names]
    if any(not one.index.equals(series[0].index) for one in series):
        raise ArtifactError("per-query metrics", f"on {collection} are of other queries", "evaluate all again")
    return np.stack([one.to_numpy(float) for one in series])


def _mean(scores: Scores, settings: ItemParams) -> float:
    return float(mean_over_collections((scores[name].mean() for name in settings.collections), settings))


def _gain(
    difference: np.ndarray, span: Sequence[np.ndarray] | np.ndarray, seeds: list[int], p_value: float
) -> dict[str, float]:
    low, high = np.ravel(span)
    by_seed = {f"difference_seed{s}": float(mean) for s, mean in zip(seeds, difference.mean(1), strict=True)}
    return {
        "difference": float(difference.mean()),
        "difference_low": float(low),
        "difference_high": float(high),
        **by_seed,
        "seeds_sd": float(difference.mean(1).std(ddof=1)) if len(seeds) > 1 else float("nan"),
        "p_t": p_value,
    }


def _notes(settings: ItemParams, item: ClaimItem, queries: Sequence[int], seeds: list[int]) -> list[str]:
    control = "the control above it" if item.controls else settings.methods[item.baseline]
    counted = f"{len(seeds)} seeds ({', '.join(map(str, seeds))})" if len(seeds) > 1 else f"one seed ({seeds[0]})"
    drawing = settings.values[0]["drawing"]
    alike = [settings.methods[name] for name in settings.methods if name not in drawing]
    notes = [
        f"{label_of(item.measure)}, {counted}; each query's measure is averaged over seeds, then "
        f"compared: {marks_note(control, len(queries), ', ')}; 95 % intervals over queries, of these seeds "
        "and collections"
    ]
    if alike:
        notes.append(f"{'; '.join(alike)}: the same with every seed, no random number is drawn")
    return notes + mean_note(settings) + few_queries(queries) + (few_seeds(seeds) if drawing else [])


def few_seeds(seeds: list[int]) -> list[str]:
    """Return the note of a page whose seeds are too few for a sentence about a method."""
    if len(seeds) >= ENOUGH:
        return []
    return [f"fewer than {ENOUGH} seeds: a first look, no claim; more by --config seeds=14,15"]


def _shown(
    frame: pd.DataFrame, settings: ItemParams, item: ClaimItem, seeds: list[int]
) -> tuple[list[str], list[list[str]]]:
    header = ["", *settings.collections.values(), "mean"]
    rows, above = list[list[str]](), ""
    for method in frame["method"].unique():
        of_method, control = frame[frame["method"] == method], item.control(method)
        if control != above:
            rows.append([settings.methods[control], *map(fixed, of_method["control"])])
            above = control
        rows.append([settings.methods.get(method, method), *map(fixed, of_method["value"])])
        gains = [
            f"{signed(row.difference)} {mark_of(row.difference, row.p_t_holm)}".rstrip()
            for row in of_method.itertuples()
        ]
        spans = [interval(row.difference_low, row.difference_high) for row in of_method.itertuples()]
        rows += [["difference", *gains], ["95 %", *spans]]
        if len(seeds) > 1 and {method, control} & set(settings.values[0]["drawing"]):
            for seed in seeds:
                rows.append([f"seed {seed}", *map(signed, of_method[f"difference_seed{seed}"])])
            rows.append(["deviation of seeds", *map(fixed, of_method["seeds_sd"])])
    return header, rows


def draw_claim(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw differences from the control, a panel a method, on one scale: intervals over queries, a small dot a seed."""
    methods, labels = list(frame["method"].unique()), [*settings.collections.values(), "mean"]
    figure, every = panels(len(methods), height=1.1 + 0.28 * len(labels))
    for axes in every[1:]:
        axes.sharex(every[0])
    seeds = [column for column in frame.columns if column.startswith("difference_seed")]
    for axes, method in zip(every, methods, strict=True):
        rows = frame[frame["method"] == method]
        axes.axvline(0, color="#888888", linewidth=0.8)
        interval_rows(axes, rows["difference"], bars(rows, "difference"), labels)
        for seed in seeds if len(seeds) > 1 else ():
            axes.plot(rows[seed], range(len(labels)), linestyle="", marker="o", markersize=2.5, color=COLORS[1])
        axes.set_title(
            wrapped(figure, settings.methods.get(method, method), TITLE * min(len(methods), ACROSS)), fontsize=9
        )
    measure = label_of(settings.item.get("measure", METRIC))
    control = "its control" if settings.item.get("controls") else settings.methods[settings.item["baseline"]]
    many = f"mean of {len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    what = f"{measure} minus that of {control}: {many}, with 95 % interval"
    figure.supxlabel(wrapped(figure, what + ("; small dots: seeds" if len(seeds) > 1 else ""), 9), fontsize=9)
    return figure
