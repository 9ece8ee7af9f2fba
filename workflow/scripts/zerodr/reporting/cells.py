"""Compare values that papers print with ours, cell by cell.

resources/reference/papers/README.md describes the files with printed values. Our numbers have a key of three names: a
method (or the label of a row, or nothing for a fact of the data), a column, and a measure.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BeforeValidator

from zerodr.config.base import Settings
from zerodr.config.papers import Doubt
from zerodr.errors import ArtifactError

Key = tuple[str, str, str]
Measured = Mapping[Key, float | str]
READ = ("item", "row", "column", "metric", "value", "note")
COMPARED = "row method column metric ours published difference verdict tolerance protocol note source".split()
NAMES = {"hole@10": "hole_pair_10"}  # measure as printed -> measure here
MULTIPLES = {"k": 1e3, "M": 1e6, "B": 1e9}
OKISH = 4
BY_KIND = {"lexical": 0.002, "encoder": 0.002, "fusion": 0.005, "feedback": 0.005, "mixture": 0.005, "trained": 0.01}
"""Largest absolute difference of a measure in [0, 1] that is OK, by kind of row: a choice. Printed values have three
decimals; trained rows differ by their random numbers too."""
RELATIVE = 0.1
"""The same for other measures, as a share of the printed value."""
WORDS = 0.02
"""The same for mean lengths of texts, whose splitting into words the papers leave open."""
FRACTIONS = ("ndcg_cut", "recall", "recip_rank", "success", "hole", "map", "P_")
COUNTS = ("documents", "queries", "train_pairs", "dev_queries")
LIKENESS = ("jaccard_unigrams", "query_intent_similarity", "document_lexical_similarity")
"""Measures of a collection and the source."""
DATA = (*COUNTS, *LIKENESS, "documents_per_query", "query_words", "document_words")
"""Measures of collections, which need no method."""
UNMEASURED = ("finetuning_times", "adaptation_steps", "hours", "count", "seconds")
"""Beginnings of what papers print and no item measures."""
OK, OKISH_WORD, DRIFT = "OK", "OKish", "DRIFT"
NOT_RUN, ALONE, NO_MEASURE, OPEN = "not run", "no method here", "no measure here", "open"
BUDGET, PROTOCOL, MACHINE, SOURCE = "other budget", "other protocol", "other machine", "other source"
TIMES = ("milliseconds", "seconds", "hours")
LEGEND = {
    OK: "within the tolerance",
    OKISH_WORD: f"within {OKISH} times the tolerance",
    DRIFT: f"beyond {OKISH} times the tolerance",
    BUDGET: "ours was trained with less than the paper",
    SOURCE: "ours is the likeness to another source",
    MACHINE: "ours was timed on another machine",
    PROTOCOL: "ours was ranked under another protocol than the paper's",
    OPEN: "the paper leaves open what the value is of",
    NOT_RUN: "ours is not among the inputs",
    ALONE: "the value is shown alone",
    NO_MEASURE: "the value is shown alone",
}


class CellParams(Settings):
    """Select the values of a table to show, and name our value of each."""

    table: str
    """Table of the reference file."""
    rows: Annotated[dict[str, str], BeforeValidator(dict)] = {}
    """Row -> method, or `<method>, step <n>`."""
    whole: bool
    """Shows every value of the table that is not in `claims`. False: those in `claims` alone."""
    claims: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = ()
    """What other items of the table show, or this one: rows, collections, and rows whose other columns count too."""
    columns: tuple[str, ...] = ()
    """Collections of all items of the table."""
    cells: tuple[str, ...] | None = None
    """Columns or measures that are shown. None: all."""
    members: dict[str, tuple[str, ...]] = {}
    """Column -> the collections whose mean it is."""
    averages: dict[str, tuple[str, ...]] = {}
    """Mean of the paper's -> columns that it averages."""
    doubts: dict[str, Doubt] = {}
    """Columns or measures whose meaning is open."""
    kinds: dict[str, str] = {}
    """Method -> kind of recipe."""
    baseline: str = ""
    """The method that printed gains are over."""
    protocol: str
    """Protocol that the paper ranks with."""
    as_published: bool
    """Ours is trained at the paper's size."""
    labels: dict[str, str] = {}
    """Column -> its name in printed tables."""


def read_cells(path: Path) -> pd.DataFrame:
    """Read a reference file, all columns as text.

    Raises:
        ArtifactError: it has other columns, or a cell twice.
    """
    frame = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False, quoting=csv.QUOTE_NONE)
    if tuple(frame.columns) != READ:
        raise ArtifactError(path, f"has columns {', '.join(frame.columns)}", f"expected {', '.join(READ)}")
    twice = frame[frame.duplicated(list(READ[:4]))]
    if len(twice):
        raise ArtifactError(path, f"has {' / '.join(twice.iloc[0][:4])} twice", "keep one of them")
    return frame


def shown_cells(cells: pd.DataFrame, settings: CellParams) -> pd.DataFrame:
    """Select the printed values of an item: those of its rows, or all that no other item of the table shows."""
    cells = cells[cells["item"] == settings.table]
    if settings.cells is not None:
        cells = cells[cells["column"].isin(settings.cells) | cells["metric"].isin(settings.cells)]
    claimed = pd.Series(False, index=cells.index)
    for rows, columns, rows_of_means in settings.claims:
        claimed |= cells["row"].isin(rows) & cells["column"].isin(columns)
        claimed |= cells["row"].isin(rows_of_means) & ~cells["column"].isin(settings.columns)
    return cells[~claimed if settings.whole else claimed]


def compare_cells(
    cells: pd.DataFrame, measured: Measured, settings: CellParams, protocol: str, source: str
) -> pd.DataFrame:
    """Compare cells with ours.

    Args:
        cells: printed values, of `shown_cells`.
        measured: our values; shares are fractions, not percent.
        settings: name our value of each printed one.
        protocol: of our rankings.
        source: name of the paper.

    Returns:
        The columns COMPARED. A printed value has one row, or one for each meaning that the paper leaves open.
    """
    ours = dict(measured) | dict(_means(measured, settings))
    ours |= dict(_gains(ours, settings.baseline))
    rows = []
    for cell in cells.to_dict("records"):
        doubt = settings.doubts.get(cell["column"]) or settings.doubts.get(cell["metric"])
        columns, metrics = [cell["column"]], [NAMES.get(cell["metric"], cell["metric"])]
        if doubt is not None and cell["metric"] in settings.doubts:
            metrics = list(doubt.read_as)
        elif doubt is not None:
            columns = list(doubt.read_as)
        for column, metric in product(columns, metrics):
            rows.append(_compared(cell, column, metric, ours, settings, protocol, source))
    return pd.DataFrame(rows, columns=COMPARED)


def _compared(
    cell: Mapping[str, str], column: str, metric: str, ours: Measured, settings: CellParams, protocol: str, source: str
) -> dict[str, Any]:
    method = settings.rows.get(cell["row"], "")
    keys = [*([method] if method else []), cell["row"], ""]
    base = re.search(r"percent of ([^;]+)", cell["note"])
    if base is not None and settings.rows.get(base.group(1)) != settings.baseline:
        keys = []  # ours are gains over another row
    match = next((key for key in product(keys, (column, ""), (metric,)) if key in ours), None)
    kind = settings.kinds.get(method, "")
    if match is not None and match[0] != (method or None):
        kind = "settings" if match[0] else "data"
    percent, printed = cell["note"].startswith("percent"), number(cell["value"])
    value = None if match is None else ours[match]
    if isinstance(value, float | int) and percent:
        value = 100 * value
    tolerance = tolerance_of(metric, kind, printed, percent)
    difference = value - printed if isinstance(value, float | int) and printed is not None else None
    if difference is not None and "upper bound" in cell["note"]:
        difference = max(difference, 0.0)
    equal = value is not None and str(value).lower() == cell["value"].lower()
    doubts = settings.doubts.get(cell["column"]) or settings.doubts.get(cell["metric"])
    absent, no_row = value is None, not method and metric not in DATA
    obstacles = {
        ALONE: absent and no_row,
        NO_MEASURE: absent and metric.startswith(UNMEASURED),
        NOT_RUN: absent,
        OPEN: doubts is not None,
        MACHINE: metric in TIMES,
        SOURCE: metric in LIKENESS and not settings.as_published,
        BUDGET: kind in ("trained", "settings") and not settings.as_published,
        PROTOCOL: kind in ("trained", "encoder", "fusion", "feedback", "mixture") and protocol != settings.protocol,
    }
    named = {"row": cell["row"], "method": method, "column": column, "metric": metric}
    return named | {
        "ours": value,
        "published": cell["value"],
        "difference": difference,
        "verdict": judge(obstacles, difference, equal, tolerance),
        "tolerance": tolerance,
        "protocol": protocol,
        "note": "; ".join(filter(None, [cell["note"], doubts.remark if doubts else ""])),
        "source": f"{source}, {cell['item']}",
    }


def _means(measured: Measured, settings: CellParams) -> Iterator[tuple[Key, float]]:
    """Average the collections of a column, and columns, where we have a number of every member."""
    numbers = {key: value for key, value in measured.items() if isinstance(value, float | int)}
    pairs = {(who, metric) for who, _, metric in numbers}
    for who, metric in pairs:
        columns: dict[str, float] = {}
        for column, members in settings.members.items():
            values = [numbers[who, name, metric] for name in members if (who, name, metric) in numbers]
            if len(values) == len(members):
                columns[column] = sum(values) / len(values)
        yield from (((who, column, metric), value) for column, value in columns.items())
        for average, names in settings.averages.items():
            if names and all(name in columns for name in names):
                yield (who, average, metric), sum(columns[name] for name in names) / len(names)


def _gains(ours: Measured, baseline: str) -> Iterator[tuple[Key, float]]:
    """Compute gains over the baseline, as shares of its value."""
    for (who, column, metric), value in ours.items():
        base = ours.get((baseline, column, metric))
        if who != baseline and base and isinstance(base, float) and isinstance(value, float):
            yield (who, column, f"{metric}_gain"), value / base - 1


def number(text: str) -> float | None:
    """Read a printed number: `0.654`, `+5.3`, `10k`, `110M`, `5e-6`; None where it is none."""
    match = re.fullmatch(r"([+-]?[\d.]+(?:e[+-]?\d+)?)([kMB]?)", text.strip())
    try:
        return float(match.group(1)) * MULTIPLES.get(match.group(2), 1.0) if match else None
    except ValueError:
        return None


def verdict(difference: float, tolerance: float) -> str:
    """Return `OK` within the tolerance, `OKish` within OKISH times it, else `DRIFT`."""
    size = abs(difference) - 1e-9
    return OK if size <= tolerance else OKISH_WORD if size <= OKISH * tolerance else DRIFT


def tolerance_of(metric: str, kind: str, printed: float | None, percent: bool) -> float | None:
    """Return the largest difference that is OK, in the unit of the printed value; None where it is no number.

    Args:
        metric: measure here.
        kind: of the row's recipe, `settings`, or `data`.
        printed: the printed value.
        percent: it is printed as a percentage.
    """
    if printed is None:
        return None
    if kind == "settings" or metric in COUNTS:
        return 0.0
    if kind == "data":
        return (WORDS if metric.endswith("_words") else RELATIVE) * abs(printed)
    if metric.startswith(FRACTIONS) and not metric.endswith("_gain"):
        return BY_KIND.get(kind, BY_KIND["encoder"]) * (100 if percent else 1)
    return RELATIVE * abs(printed)


def judge(obstacles: Mapping[str, bool], difference: float | None, equal: bool, tolerance: float | None) -> str:
    """Choose the verdict of a cell: the first obstacle to a comparison, else that of the difference.

    Args:
        obstacles: verdicts of LEGEND, and whether each holds, in order.
        difference: ours minus printed; None where one of them is text.
        equal: both are the same text.
        tolerance: largest difference that is OK.
    """
    for reason, holds in obstacles.items():
        if holds:
            return reason
    if difference is None or tolerance is None:
        return OK if equal else DRIFT
    return verdict(difference, tolerance)
