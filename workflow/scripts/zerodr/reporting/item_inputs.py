"""Read the inputs of papers' items, and compute gains over queries with their intervals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, Field
from scipy import stats

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings
from zerodr.config.item import Item
from zerodr.errors import ArtifactError
from zerodr.evaluation.evaluate import read_measures
from zerodr.evaluation.numbers import interval, signed
from zerodr.evaluation.significance import mean_interval
from zerodr.reporting.cells import CellParams, Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "ndcg_cut_10"
PERMUTED = 7  # points up to which a p value is exact; its approximation says 0 for a perfect order of any number
Pairs = Annotated[dict[str, str], BeforeValidator(dict)]  # written as a list: its order is the table's
Steps = Annotated[dict[str, int], BeforeValidator(dict)]


class ItemParams(Settings):
    """Settings of rules build_item and plot_item."""

    paper: str
    """Name of the paper."""
    name: str
    """Name of the item."""
    item: dict[str, Any]
    """The item, as in config/papers."""
    collections: Pairs
    """Collection -> label, in the table's order."""
    aggregates: dict[str, str] = {}
    """Collection -> the column whose macro mean it enters, where several do, as the forums of CQADupStack."""
    splits: dict[str, str]
    """Collection -> evaluated split; the source's, too."""
    methods: Pairs
    """Method -> label, in the item's order."""
    remarks: tuple[str, ...] = ()
    """Notes on these methods."""
    source: str
    """The collection with supervision."""
    scale: str
    """The preset of the run."""
    protocol: str
    """The protocol of every number."""
    points: Annotated[dict[str, Steps], BeforeValidator(dict)] = {}
    """Line of a figure -> model -> steps of its training on the target, in order."""
    stages: Annotated[dict[str, tuple[str, ...]], BeforeValidator(dict)] = {}
    """Method -> stages whose models are inputs, in order."""
    values: tuple[dict[str, Any], ...] = ()
    """Facts of the configuration itself."""
    published: CellParams | None = None
    """Printed values that are shown next to ours. None: none."""
    bootstrap_samples: int = Field(ge=1)
    """Resamples of intervals."""


@dataclass(frozen=True)
class ItemTable:
    """An item's numbers.

    Attributes:
        frame: the rows of the tsv.
        notes: explanations for a reader.
        shown: header and rows of the printed table, with labels instead of names.
        measured: ours of the values that the paper prints.
    """

    frame: pd.DataFrame
    notes: list[str]
    shown: tuple[list[str], list[list[str]]]
    measured: Measured = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What a paper adds to the report, as `REPORT` of its module `report`.

    Attributes:
        tables: functions that build the table of an item, by the item's kind.
        figures: functions that draw the table of an item, by the item's kind.
    """

    tables: Mapping[str, Callable[[Stage, ItemParams, Item], ItemTable]]
    figures: Mapping[str, Callable[[pd.DataFrame, ItemParams], Figure]]


def read_scores(paths: Sequence[Path], metric: str = METRIC) -> dict[tuple[str, str], pd.Series]:
    """Read a measure by query of each (method, collection), in the order of queries.

    Raises:
        ArtifactError: a file is given twice.
    """
    scores: dict[tuple[str, str], pd.Series] = {}
    for path in paths:
        frame = read_measures(path, metric)
        key = (str(frame["model"].iloc[0]), str(frame["collection"].iloc[0]))
        if key in scores:
            raise ArtifactError(path, f"is a second file of {key[0]} on {key[1]}", "give each once")
        scores[key] = frame.set_index("query")[metric]
    return scores


@dataclass(frozen=True)
class Gain:
    """Mean over queries, of a difference or a measure, with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{signed(self.value)} {interval(self.low, self.high)}"

    @classmethod
    def of(cls, row: pd.Series | Mapping[str, Any], name: str) -> Gain:
        """Read a gain from a row with the columns of `columns`."""
        return cls(row[name], row[f"{name}_low"], row[f"{name}_high"])

    def columns(self, name: str) -> dict[str, float]:
        """Return the gain as columns of a table."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def gain(method: pd.Series, baseline: pd.Series, samples: int, seed: int) -> Gain:
    """Compute the gain of a method over a baseline on the same queries.

    Raises:
        ArtifactError: they have different queries.
    """
    if not method.index.equals(baseline.index):
        raise ArtifactError("per-query metrics", "of two methods are on different queries", "evaluate both again")
    differences = (method - baseline).to_numpy()[:, None]
    low, high = mean_interval(differences, samples, seed, -1.0)
    return Gain(float(differences.mean()), float(low[0]), float(high[0]))


def level(values: pd.Series, samples: int, seed: int) -> Gain:
    """Compute the mean of a measure with the interval that its evaluation has."""
    low, high = mean_interval(values.to_numpy()[:, None], samples, seed, 0.0)
    return Gain(float(values.mean()), float(low[0]), float(high[0]))


def mean_over_collections(values: Iterable[np.ndarray | float], settings: ItemParams) -> np.ndarray:
    """Average numbers of an item's collections, in their order; those of one column count as one, by their mean."""
    columns: dict[str, list[np.ndarray]] = {}
    for name, value in zip(settings.collections, values, strict=True):
        columns.setdefault(settings.aggregates.get(name, name), []).append(np.asarray(value))
    return np.mean([np.mean(members, axis=0) for members in columns.values()], axis=0)


def by_column(frame: pd.DataFrame, settings: ItemParams) -> pd.DataFrame:
    """Average the numbers of the collections of one column; other rows stay as they are."""
    columns = frame["collection"].map(lambda name: settings.aggregates.get(name, name))
    return frame.groupby(columns, sort=False).mean(numeric_only=True)


def mean_note(settings: ItemParams, of: str = "mean") -> list[str]:
    """Return the note of an item some of whose collections are one column of the mean."""
    columns = dict.fromkeys(settings.aggregates.values())
    counts = {column: list(settings.aggregates.values()).count(column) for column in columns}
    return [
        f"{of}: the {count} collections of {column} count as one, by their mean" for column, count in counts.items()
    ]


def printed(
    rows: Iterable[Mapping[str, Any]], settings: ItemParams, columns: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Format rows for the printed table, with labels of collections and methods; what is no number is a dash.

    Args:
        columns: heading -> format of a row's values, of which `<gain>_interval` is a gain with its interval.
    """
    labels, lines = {"collection": settings.collections, "method": settings.methods}, []
    for row in rows:
        known = {key: labels[key].get(value, value) if key in labels else value for key, value in row.items()}
        known |= {f"{key}_interval": Gain.of(row, key) for key in row if f"{key}_low" in row}
        cells = (form.format_map(known) for form in columns.values())
        lines.append(["-" if cell.strip("+%") == "nan" else cell for cell in cells])
    return list(columns), lines


def extremes(gains: Sequence[float] | np.ndarray, count: int) -> list[int]:
    """Positions of the `count` largest gains, then of as many of the largest losses, each once."""
    order = np.argsort(-np.asarray(gains), kind="stable").tolist()
    return list(dict.fromkeys([*order[:count], *order[-count:]]))


def case_gains(
    cases: Iterable[str], texts: pd.Series, gains: pd.Series, row: tuple[str, str]
) -> dict[tuple[str, str, str], float]:
    """Key gains of a paper's single queries, `ndcg_cut_10_gain_case1` and so on; a query that is not there has none.

    Args:
        cases: texts, in the paper's order.
        texts: of a collection's queries, by id.
        gains: by id.
        row: method and collection.
    """
    known = dict(zip(map(_bare, texts), texts.index, strict=True))
    named = {f"{METRIC}_gain_case{number}": known.get(_bare(text)) for number, text in enumerate(cases, 1)}
    return {(*row, name): float(gains[at]) for name, at in named.items() if at is not None and at in gains.index}


def _bare(text: str) -> str:
    """Return a query's words, without case and marks."""
    return " ".join(re.findall(r"\w+", text.lower()))


def correlation(x: Sequence[float], y: Sequence[float], what: str, of: str = "collections") -> str:
    """Describe Spearman's correlation in words, with the number of points, since few points prove little."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return f"{what}: no correlation, of fewer than 3 {of} or of equal values"
    result = stats.spearmanr(x, y)
    p_value = float(result.pvalue) if len(x) > PERMUTED else _permuted(x, y)
    return f"{what}: Spearman {result.statistic:+.2f} over {len(x)} {of} (p {p_value:.2g})"


def _permuted(x: Sequence[float], y: Sequence[float]) -> float:
    """Compute the p value of a rank correlation from every order of x: exact, and possible for few points."""
    others = stats.rankdata(y) - (len(y) + 1) / 2
    sums = np.abs([np.dot(order, others) for order in permutations(stats.rankdata(x))])
    return float((sums >= sums[0] - 1e-9).mean())
