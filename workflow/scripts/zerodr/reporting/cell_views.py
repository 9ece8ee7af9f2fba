"""Write the comparison of a paper's printed values with ours: as tsv, and as Markdown tables like the paper's."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import pandas as pd

from zerodr.config.measures import MEASURES, label_of
from zerodr.evaluation.numbers import fixed, plural, signed, tsv
from zerodr.reporting.cells import FRACTIONS, LEGEND
from zerodr.reporting.render import markdown_table

NO_LABELS: Mapping[str, str] = MappingProxyType({})


def cells_tsv(compared: pd.DataFrame) -> str:
    """Write a comparison (columns COMPARED), a line for each printed value, then the meaning of the verdicts."""
    return tsv(compared, ["difference: ours minus published", *legend(compared)])


def legend(compared: pd.DataFrame) -> list[str]:
    """Count the verdicts and explain them."""
    counts = compared["verdict"].value_counts()
    words = [(word, meaning, int(counts[word])) for word, meaning in LEGEND.items() if word in counts]
    return [f"{word}, {plural(count, 'value')}: {meaning}" for word, meaning, count in words]


def cells_section(compared: pd.DataFrame, labels: Mapping[str, str] = NO_LABELS) -> str:
    """Write a Markdown section: printed values in brackets, ours before them, then the verdict.

    Args:
        compared: columns COMPARED.
        labels: column -> its name for a reader.
    """
    compared = compared.assign(column=[labels.get(name, name) for name in compared["column"]])
    sections = [f"### Published: {compared['source'].iloc[0]}\n"]
    rule = ["ours, the published value in brackets, verdict; a value alone: ours is not there"]
    if (compared.groupby("row")["column"].nunique() == 1).mean() > 0.5 and compared["column"].nunique() > 2:
        pairs = zip(compared["row"], compared["column"], strict=True)
        names = [row if _alike(row, column) else f"{row} ({column})" for row, column in pairs]
        sections.append(_pivoted("", compared.assign(line=names), "metric"))
    else:
        names = [f"{r} = {m}" if m else str(r) for r, m in zip(compared["row"], compared["method"], strict=True)]
        for metric, cells in compared.assign(line=names).groupby("metric", sort=False):
            title = title_of(str(metric))
            if not title.endswith("%") and cells["note"].str.startswith("percent").all():
                title += ", in %"
            sections.append(_pivoted(title, cells, "column"))
        if compared["method"].any():
            rule.append("a row: the paper's name = the recipe here")
    notes = [*rule, *legend(compared)]
    notes += _tolerances(compared)
    notes += dict.fromkeys(f"open: {note}" for note in compared.loc[compared["verdict"] == "open", "note"])
    return "\n".join([*sections, "".join(f"- {note}\n" for note in notes)])


def _pivoted(corner: str, cells: pd.DataFrame, key: str) -> str:
    """Write a table: a row for each value of column `line`, a column for each value of column `key`."""
    columns = list(dict.fromkeys(cells[key]))
    rows = []
    for line, group in cells.groupby("line", sort=False):
        texts = {cell[key]: _cell(cell) for cell in group.to_dict("records")}
        rows.append([str(line), *(texts.get(name, "") for name in columns)])
    return markdown_table([corner, *(title_of(name) if key == "metric" else name for name in columns)], rows)


def title_of(metric: str) -> str:
    """Write a measure as tables head it: `ndcg_cut_10_gain` is `nDCG@10, gain in %`."""
    name = metric.removesuffix("_gain")
    if name in MEASURES:
        words = label_of(name)
    else:
        begins = next((key for key in MEASURES if name.startswith(f"{key}_")), "")
        words = name.replace(begins, label_of(begins)).replace("_", " ")
    return words if name == metric else f"{words}, gain in %"


def _alike(one: str, other: str) -> bool:
    """Test whether two names are equal but for case, blanks and punctuation."""
    return re.sub(r"\W", "", one).lower() == re.sub(r"\W", "", other).lower()


def _cell(cell: dict) -> str:
    ours = cell["ours"]
    if ours is None or ours != ours:
        return f"({cell['published']})"
    return f"{_shown(ours, cell)} ({cell['published']}) {cell['verdict']}"


def _shown(ours: float | str, cell: dict) -> str:
    """Write our value with the digits of its kind: a gain with its sign, a share in percent with one decimal."""
    if not isinstance(ours, float):
        return str(ours)
    if cell["metric"].endswith("_gain"):
        return f"{ours:+.1f}"
    if "_over_" in cell["metric"]:
        return signed(ours)
    if cell["metric"].startswith(FRACTIONS):
        return f"{ours:.1f}" if cell["note"].startswith("percent") else fixed(ours)
    return f"{ours:,.0f}" if ours.is_integer() else f"{ours:.4g}"


def _tolerances(compared: pd.DataFrame) -> Iterable[str]:
    judged = compared[compared["verdict"].isin(["OK", "OKish", "DRIFT"])].dropna(subset=["tolerance"])
    for metric, values in judged.groupby("metric", sort=False)["tolerance"]:
        listed = ", ".join(f"{value:g}" for value in sorted(set(values))[:4])
        yield f"tolerance of {title_of(str(metric))}: {listed}"
