"""Write compared cells: as tsv, and as Markdown tables with a row a row of the paper's and a column a column."""

import io
from collections.abc import Iterable

import pandas as pd

from zerodr.evaluation.metrics import LABELS, METRICS
from zerodr.reporting.render import markdown_table
from zerodr.reporting.verdicts import LEGEND


def cells_tsv(compared: pd.DataFrame) -> str:
    """Write COMPARED, a line a cell, then what the verdicts mean as lines that start with `# `."""
    buffer = io.StringIO()
    compared.to_csv(buffer, sep="\t", index=False, float_format="%.6g", lineterminator="\n")
    return buffer.getvalue() + "".join(
        f"# {note}\n" for note in ("difference: ours minus published", *legend(compared))
    )


def legend(compared: pd.DataFrame) -> list[str]:
    """Count the verdicts and explain them."""
    counts = compared["verdict"].value_counts()
    words = [(word, meaning, int(counts[word])) for word, meaning in LEGEND.items() if word in counts]
    return [f"{word}, {count} value{'s' * (count != 1)}: {meaning}" for word, meaning, count in words]


def cells_section(compared: pd.DataFrame) -> str:
    """Write a Markdown section: printed values in brackets, ours before them, then the verdict."""
    sections = [f"### Published: {compared['source'].iloc[0]}\n"]
    if (compared.groupby("row")["column"].nunique() == 1).mean() > 0.5 and compared["column"].nunique() > 2:
        names = [f"{row} ({column})" for row, column in zip(compared["row"], compared["column"], strict=True)]
        sections.append(_pivoted("", compared.assign(line=names), "metric"))
    else:
        names = [f"{r} = {m}" if m else str(r) for r, m in zip(compared["row"], compared["method"], strict=True)]
        for metric, cells in compared.assign(line=names).groupby("metric", sort=False):
            sections.append(_pivoted(title_of(str(metric)), cells, "column"))
    notes = ["ours, the published value in brackets, verdict; a value alone: ours is not there", *legend(compared)]
    notes += _tolerances(compared)
    notes += dict.fromkeys(f"open: {note}" for note in compared.loc[compared["verdict"] == "open", "note"])
    return "\n".join([*sections, "".join(f"- {note}\n" for note in notes)])


def _pivoted(corner: str, cells: pd.DataFrame, key: str) -> str:
    """A table with a row a `line`, and a column a value of `key`."""
    columns = list(dict.fromkeys(cells[key]))
    rows = []
    for line, group in cells.groupby("line", sort=False):
        texts = {cell[key]: _cell(cell) for cell in group.to_dict("records")}
        rows.append([str(line), *(texts.get(name, "") for name in columns)])
    return markdown_table([corner, *(title_of(name) if key == "metric" else name for name in columns)], rows)


def title_of(metric: str) -> str:
    """Write a measure as tables head it: `ndcg_cut_10_gain` is `nDCG@10, gain in %`."""
    name = metric.removesuffix("_gain")
    words = LABELS.get(name, name.replace("_", " ") if name not in METRICS else name)
    return words if name == metric else f"{words}, gain in %"


def _cell(cell: dict) -> str:
    ours = cell["ours"]
    if ours is None or ours != ours:
        return f"({cell['published']})"
    shown = str(ours) if not isinstance(ours, float) else f"{ours:.0f}" if ours.is_integer() else f"{ours:.4g}"
    return f"{shown} ({cell['published']}) {cell['verdict']}"


def _tolerances(compared: pd.DataFrame) -> Iterable[str]:
    judged = compared[compared["verdict"].isin(["OK", "OKish", "DRIFT"])].dropna(subset=["tolerance"])
    for metric, values in judged.groupby("metric", sort=False)["tolerance"]:
        listed = ", ".join(f"{value:g}" for value in sorted(set(values))[:4])
        yield f"tolerance of {title_of(str(metric))}: {listed}"
