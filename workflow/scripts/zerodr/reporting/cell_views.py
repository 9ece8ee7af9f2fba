"""Write compared cells: as tsv, and as Markdown tables with a row a row of the paper's and a column a column."""

import io
from collections.abc import Iterable

import pandas as pd

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
    return [f"{word}, {counts[word]} values: {meaning}" for word, meaning in LEGEND.items() if word in counts]


def cells_section(compared: pd.DataFrame) -> str:
    """Write a Markdown section: printed values in brackets, ours before them, then the verdict."""
    sections = [f"### Published: {compared['source'].iloc[0]}\n"]
    for metric, cells in compared.groupby("metric", sort=False):
        columns = list(dict.fromkeys(cells["column"]))
        rows = []
        for (row, method), line in cells.groupby(["row", "method"], sort=False):
            texts = {cell["column"]: _cell(cell) for cell in line.to_dict("records")}
            rows.append([f"{row} = {method}" if method else str(row), *(texts.get(name, "") for name in columns)])
        sections.append(markdown_table([str(metric), *columns], rows))
    notes = ["ours, the published value in brackets, verdict; a value alone: ours is not there", *legend(compared)]
    notes += _tolerances(compared)
    notes += dict.fromkeys(f"open: {note}" for note in compared.loc[compared["verdict"] == "open", "note"])
    return "\n".join([*sections, "".join(f"- {note}\n" for note in notes)])


def _cell(cell: dict) -> str:
    ours = cell["ours"]
    if ours is None or ours != ours:
        return f"({cell['published']})"
    shown = f"{ours:.4g}" if isinstance(ours, float) else str(ours)
    return f"{shown} ({cell['published']}) {cell['verdict']}"


def _tolerances(compared: pd.DataFrame) -> Iterable[str]:
    judged = compared[compared["verdict"].isin(["OK", "OKish", "DRIFT"])].dropna(subset=["tolerance"])
    for metric, values in judged.groupby("metric", sort=False)["tolerance"]:
        listed = ", ".join(f"{value:g}" for value in sorted(set(values))[:4])
        yield f"tolerance of {metric}: {listed}"
