"""Compare our numbers with published ones.

A reference file is a tsv with `method`, `collection`, measures (`ndcg_at_10`, `recall_at_100`, ...; empty cell: not
published) and optionally `source`. `method` is the full name of one of our methods, in upper or lower case.
Only complete collections are compared.
"""

import re
from pathlib import Path

import pandas as pd

from zerodr.config.settings import Reference
from zerodr.errors import ArtifactError, nearest
from zerodr.reporting.grid import fill
from zerodr.reporting.render import markdown_table
from zerodr.reporting.settings import TableSettings

MEASURES = {
    "ndcg_at_10": "ndcg_cut_10",
    "recall_at_100": "recall_100",
    "recall_at_1000": "recall_1000",
    "mrr_at_10": "recip_rank_cut_10",
}
TEXT = ["method", "collection", "source"]
COLUMNS = "method collection metric ours published difference verdict tolerance protocol source".split()
OKISH = 4


def verdict(difference: float, tolerance: float) -> str:
    """Return `OK` within the source's tolerance, `OKish` within OKISH times it, else `DRIFT`."""
    size = abs(difference) - 1e-9
    return "OK" if size <= tolerance else "OKish" if size <= OKISH * tolerance else "DRIFT"


def read_reference(path: Path, reference: Reference) -> pd.DataFrame:
    """Read published numbers: `method` (lower case), `collection`, `metric`, `published`, `source`, `tolerance`.

    Raises:
        ArtifactError: the file lacks a column, has an unknown one, or a number twice.
    """
    frame = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    for name in frame.columns:
        if name not in MEASURES and name not in TEXT:
            raise ArtifactError(path, f"unknown column {name!r}", nearest(name, [*MEASURES, *TEXT]))
    if not {"method", "collection"} <= set(frame.columns):
        raise ArtifactError(path, "columns method and collection are needed", "see zerodr.reporting.published")
    measures = [name for name in frame.columns if name in MEASURES]
    frame = frame if "source" in frame else frame.assign(source=reference.source)
    long = frame.melt(id_vars=TEXT, value_vars=measures, var_name="metric", value_name="published")
    long = long[long["published"] != ""].reset_index(drop=True)
    long = long.assign(method=long["method"].str.lower())
    if long.duplicated(["method", "collection", "metric"]).any():
        raise ArtifactError(path, "a method has two numbers for one collection and measure", "keep one of them")
    numbers = pd.to_numeric(long["published"], errors="coerce")
    if numbers.isna().any():
        raise ArtifactError(path, f"{long['published'][numbers.isna()].iloc[0]!r} is no number", "correct the cell")
    long = long.assign(metric=long["metric"].map(MEASURES), published=numbers, tolerance=reference.tolerance)
    return long[["method", "collection", "metric", "published", "source", "tolerance"]]


def compare(frame: pd.DataFrame, published: pd.DataFrame, settings: TableSettings) -> pd.DataFrame:
    """Return COLUMNS, a row a number that is published and measured; rows in the table's order.

    Measures that the protocol's depth can't give are left out.
    """
    ours = measured(frame, settings)
    both = ours.assign(method=ours["model"].str.lower()).merge(published, on=["method", "collection", "metric"])
    both = both[both["metric"].map(cutoff) <= settings.protocol.depth]
    both = both.assign(method=both["model"], protocol=settings.protocol.name)
    both["difference"] = (both["ours"] - both["published"]).round(6)
    both["verdict"] = [verdict(d, t) for d, t in zip(both["difference"], both["tolerance"], strict=True)]
    return both[COLUMNS].reset_index(drop=True)


def measured(frame: pd.DataFrame, settings: TableSettings) -> pd.DataFrame:
    """Return our numbers as `model`, `collection`, `metric`, `ours`; complete collections and aggregates only."""
    tables = []
    for metric in dict.fromkeys(MEASURES.values()):
        grid = fill(frame, settings, metric)
        complete = [column.name for column in grid.data_columns if not column.mark]
        values = grid.values[complete].rename_axis("model").reset_index()
        tables.append(values.melt(id_vars="model", var_name="collection", value_name="ours").assign(metric=metric))
    members = [row.name for row in settings.collections if row.aggregate and row.kind == "complete"]
    rows = frame[frame["collection"].isin(members) & frame["metric"].isin(MEASURES.values())]
    rows = rows.rename(columns={"value": "ours"})[["model", "collection", "metric", "ours"]].astype({"ours": float})
    return pd.concat([*tables, rows], ignore_index=True).dropna(subset="ours")


def cutoff(metric: str) -> int:
    """Return the rank at which a measure ends: `recall_1000` -> 1000."""
    return int(re.findall(r"\d+", metric)[-1])


def published_tsv(table: pd.DataFrame, settings: TableSettings) -> str:
    """Write the comparison, then its explanation and the numbers that drifted as lines that start with `# `."""
    notes = [
        f"verdict: OK within the tolerance of the source, OKish within {OKISH} times it, else DRIFT",
        "only complete collections are compared; difference: ours minus published",
    ]
    notes += [f"{file.path}: {file.source}, tolerance {file.tolerance}" for file in settings.references]
    drifted = table[table["verdict"] == "DRIFT"].itertuples()
    notes += [f"DRIFT: {row.method} {row.collection} {row.metric} {row.difference:+.4f}" for row in drifted]
    body = table.to_csv(sep="\t", index=False, float_format="%.6g", lineterminator="\n")
    return body + "".join(f"# {note}\n" for note in notes)


def published_section(table: pd.DataFrame, settings: TableSettings) -> list[str]:
    """Write a Markdown section with the comparison of the table's measure."""
    shown = table[table["metric"] == settings.metric]
    if shown.empty:
        return ["No published number of these methods and collections is known.\n"]
    labels = {method.name: method.label for method in settings.methods}
    rows = []
    for row in shown.itertuples():
        numbers = f"{row.ours:.4f}", f"{row.published:.4f}", f"{row.difference:+.4f}"
        rows.append([labels[row.method], row.collection, *numbers, row.verdict, f"{row.tolerance:g}"])
    header = ["method", "collection", "ours", "published", "difference", "verdict", "tolerance"]
    return ["## Against published numbers\n\n" + markdown_table(header, rows)]
