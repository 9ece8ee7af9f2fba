"""Compare our numbers with published ones, and with independent ones that nobody published.

A reference file is a tsv with `method`, `collection`, measures (`ndcg_at_10`, `recall_at_100`, ...; empty cell: none)
and optionally `source` and `kind` (`published`, the default, or `independent`: of a script that is not ours). `method`
is the full name of one of our methods, in upper or lower case. Only complete collections are compared.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.settings import Reference
from zerodr.errors import ArtifactError, nearest
from zerodr.evaluation.numbers import fixed, signed, tsv
from zerodr.reporting.cell_views import legend
from zerodr.reporting.cells import verdict
from zerodr.reporting.grid import TableSettings, fill, table_columns
from zerodr.reporting.render import markdown_table

MEASURE_OF = {
    "ndcg_at_10": "ndcg_cut_10",
    "recall_at_100": "recall_100",
    "recall_at_1000": "recall_1000",
    "mrr_at_10": "recip_rank_cut_10",
}
SHOWN = 60  # characters of a source in the printed table; the tsv has all
TEXT = ["method", "collection", "source", "kind"]
COLUMNS = "method collection metric ours reference kind difference verdict tolerance protocol source".split()
REFERENCE = ["method", "collection", "metric", "reference", "source", "kind", "tolerance"]
KINDS = {"published": "published numbers", "independent": "numbers of an independent script, which nobody published"}
SCORES = ["model", "collection", "metric", "value"]


def read_reference(path: Path, reference: Reference) -> pd.DataFrame:
    """Read a reference file: `method` (lower case), `collection`, `metric`, `reference`, `source`, `kind`, `tolerance`.

    Raises:
        ArtifactError: the file lacks a column, has an unknown one, or a number twice.
    """
    frame = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    for name in frame.columns:
        if name not in MEASURE_OF and name not in TEXT:
            raise ArtifactError(path, f"unknown column {name!r}", nearest(name, [*MEASURE_OF, *TEXT]))
    if not {"method", "collection"} <= set(frame.columns):
        raise ArtifactError(path, "columns method and collection are needed", "see zerodr.reporting.published")
    measures = [name for name in frame.columns if name in MEASURE_OF]
    frame = pd.DataFrame({"source": reference.source, "kind": "published"}, index=frame.index).assign(**frame)
    for kind in set(frame["kind"]) - set(KINDS):
        raise ArtifactError(path, f"unknown kind {kind!r}", nearest(kind, KINDS))
    long = frame.melt(id_vars=TEXT, value_vars=measures, var_name="metric", value_name="reference")
    long = long[long["reference"] != ""].reset_index(drop=True)
    long = long.assign(method=long["method"].str.lower())
    if long.duplicated(["method", "collection", "metric"]).any():
        raise ArtifactError(path, "a method has two numbers for one collection and measure", "keep one of them")
    numbers = pd.to_numeric(long["reference"], errors="coerce")
    if numbers.isna().any():
        raise ArtifactError(path, f"{long['reference'][numbers.isna()].iloc[0]!r} is no number", "correct the cell")
    long = long.assign(metric=long["metric"].map(MEASURE_OF), reference=numbers, tolerance=reference.tolerance)
    return long[REFERENCE]


def read_papers(paths: Sequence[Path], settings: TableSettings) -> pd.DataFrame:
    """Read the cells of `build_published` that have a number of ours, as COLUMNS; equal ones of several tables once.

    Args:
        paths: `results/<paper>/published.tsv`.
        settings: of the table, whose complete columns are taken.
    """
    columns = {column.name for column in table_columns(settings) if not column.mark}
    frames = [pd.DataFrame(columns=COLUMNS)]
    for path in paths:
        cells = pd.read_csv(
            path, sep="\t", comment="#", dtype={"published": str}, keep_default_na=False, na_values=[""]
        )
        cells = cells[cells["column"].isin(columns) & cells["metric"].isin(MEASURE_OF.values()) & cells["ours"].notna()]
        cells = cells.rename(columns={"column": "collection"}).assign(kind="published")
        frames.append(cells.assign(reference=pd.to_numeric(cells["published"]))[COLUMNS])
    joined = pd.concat([frame for frame in frames if len(frame)] or frames, ignore_index=True)
    joined = joined.astype({key: float for key in ("ours", "difference", "tolerance", "reference")})
    keys = ["method", "collection", "metric", "reference", "verdict"]
    sources = joined.groupby(keys, sort=False)["source"].agg(lambda names: "; ".join(dict.fromkeys(names)))
    once = joined.drop_duplicates(keys).drop(columns="source").merge(sources.reset_index(), on=keys)
    return once[COLUMNS]


def compare(frame: pd.DataFrame, published: pd.DataFrame, settings: TableSettings) -> pd.DataFrame:
    """Return COLUMNS, a row a number that is published and measured; rows in the table's order.

    Measures that the protocol's depth can't give are left out.
    """
    ours = measured(frame, settings)
    both = ours.assign(method=ours["model"].str.lower()).merge(published, on=["method", "collection", "metric"])
    both = both[both["metric"].map(cutoff) <= settings.protocol.depth]
    both = both.assign(method=both["model"], protocol=settings.protocol.name)
    both["difference"] = (both["ours"] - both["reference"]).round(6)
    both["verdict"] = [verdict(d, t) for d, t in zip(both["difference"], both["tolerance"], strict=True)]
    return both[COLUMNS].reset_index(drop=True)


def measured(frame: pd.DataFrame, settings: TableSettings) -> pd.DataFrame:
    """Return our numbers as `model`, `collection`, `metric`, `ours`; complete collections and aggregates only."""
    tables = []
    for metric in dict.fromkeys(MEASURE_OF.values()):
        grid = fill(frame, settings, metric)
        complete = [column.name for column in grid.data_columns if not column.mark]
        values = grid.values[complete].rename_axis("model").reset_index()
        tables.append(values.melt(id_vars="model", var_name="collection", value_name="ours").assign(metric=metric))
    members = [row.name for row in settings.collections if row.aggregate and row.kind == "complete"]
    rows = frame[frame["collection"].isin(members) & frame["metric"].isin(MEASURE_OF.values())]
    rows = rows.rename(columns={"value": "ours"})[["model", "collection", "metric", "ours"]].astype({"ours": float})
    return pd.concat([*tables, rows], ignore_index=True).dropna(subset="ours")


def cutoff(metric: str) -> int:
    """Return the rank at which a measure ends: `recall_1000` -> 1000."""
    return int(re.findall(r"\d+", metric)[-1])


def published_tsv(table: pd.DataFrame, settings: TableSettings) -> str:
    """Write the comparison, then its explanation and the numbers that drifted as lines that start with `# `."""
    notes = [
        *(f"{kind}: {meaning}" for kind, meaning in KINDS.items() if kind in set(table["kind"])),
        "only complete collections are compared; difference: ours minus reference",
        *legend(table),
    ]
    notes += [f"{file.path}: {file.source}, tolerance {file.tolerance}" for file in settings.references]
    drifted = table[table["verdict"] == "DRIFT"].itertuples()
    notes += [f"DRIFT: {row.method} {row.collection} {row.metric} {signed(row.difference)}" for row in drifted]
    return tsv(table, notes)


def published_section(table: pd.DataFrame, settings: TableSettings) -> list[str]:
    """Write a Markdown section for each kind of reference, with the comparison of the table's measure."""
    shown = table[table["metric"] == settings.metric]
    if shown.empty:
        return ["No published number of these methods and collections is known.\n"]
    labels, sections = {method.name: method.label for method in settings.methods}, []
    header = ["method", "collection", "ours", "reference", "difference", "verdict", "tolerance", "source"]
    for kind, meaning in KINDS.items():
        rows = []
        for row in shown[shown["kind"] == kind].itertuples():
            numbers = fixed(row.ours), f"{row.reference:g}", signed(row.difference)
            rows.append([labels[row.method], row.collection, *numbers, row.verdict, f"{row.tolerance:g}"])
            rows[-1].append(shorten(row.source, SHOWN, placeholder=" ..."))
        if rows:
            sections.append(f"## Against {meaning}\n\n{markdown_table(header, rows)}")
    return sections


def published_rows(stage: Stage, settings: TableSettings) -> pd.DataFrame:
    """Read input `scores`, a file each, into SCORES: numbers of the table's complete collections and aggregates.

    Raises:
        ArtifactError: a file has no numbers of the system that a row names.
    """
    complete = [row for row in settings.collections if row.kind == "complete"]
    names = {name for row in complete for name in (row.name, row.aggregate) if name}
    rows = [pd.DataFrame(columns=SCORES)]
    for method in settings.methods:
        if method.scores is None:
            continue
        path = next(path for path in stage.paths("scores") if str(path).endswith(method.scores.file))
        numbers = read_reference(path, Reference(path=str(path), source=method.scores.source, tolerance=1))
        chosen = numbers[numbers["method"] == method.scores.row.lower()]
        if chosen.empty:
            problem = f"holds no numbers of {method.scores.row!r}, which method {method.name} shows"
            raise ArtifactError(path, problem, nearest(method.scores.row, set(numbers["method"])))
        chosen = chosen[chosen["collection"].isin(names)]
        rows.append(chosen.assign(model=method.name, value=chosen["reference"])[SCORES])
    return pd.concat(rows, ignore_index=True)


def without_empty(settings: TableSettings, scores: pd.DataFrame) -> tuple[TableSettings, list[str]]:
    """Leave out rows of published numbers that have none for this table's collections and measure; name them."""
    numbered = set(scores.loc[scores["metric"] == settings.metric, "model"])
    rows = tuple(method for method in settings.methods if method.scores is None or method.name in numbered)
    absent = [method.label for method in settings.methods if method not in rows]
    notes = [f"left out, because no number was published for a column: {', '.join(absent)}"] if absent else []
    return settings.model_copy(update={"methods": rows}), notes
