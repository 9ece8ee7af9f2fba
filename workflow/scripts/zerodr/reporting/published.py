"""Compare our numbers with published ones, and with independent ones that nobody published.

A reference file is a tsv with `method`, `collection`, measures (`ndcg_at_10`, `recall_at_100`, ...; empty cell: none)
and optionally `source` and `kind` (`published`, the default, or `independent`: of a script that is not ours). `method`
is the full name of one of our methods, in upper or lower case. Only complete collections are compared. Items of papers
show the same in cells.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.measures import COLUMNS as MEASURE_OF
from zerodr.config.measures import MEASURES, label_of
from zerodr.config.quantities import shortened
from zerodr.config.settings import Reference
from zerodr.errors import ArtifactError, nearest
from zerodr.evaluation.numbers import fixed, plural, read_tsv, signed, tsv
from zerodr.reporting.cells import FRACTIONS, LEGEND, verdict
from zerodr.reporting.grid import TableSettings, fill, table_columns
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
    frame = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False, quoting=csv.QUOTE_NONE)
    for name in frame.columns:
        if name not in MEASURE_OF and name not in TEXT:
            raise ArtifactError(path, f"unknown column {name!r}", nearest(name, [*MEASURE_OF, *TEXT]))
    if not {"method", "collection"} <= set(frame.columns):
        raise ArtifactError(path, "columns method and collection are needed", "see zerodr.reporting.published")
    measures = [name for name in frame.columns if name in MEASURE_OF]
    usual = {"source": reference.source, "kind": "published"}
    frame = pd.DataFrame(usual, index=frame.index).assign(**frame).replace({key: {"": usual[key]} for key in usual})
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
        cells = read_tsv(path, "published")
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
    both["difference"] = both["ours"] - both["reference"]
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


def nothing_published(table: pd.DataFrame, metric: str) -> str:
    """Say that a comparison has no number of a measure, and which measures it has."""
    sentence = "No published number of these methods and collections is known"
    if table.empty:
        return f"{sentence}."
    others = ", ".join(label_of(name) for name in dict.fromkeys(table["metric"]))
    return f"{sentence} for {label_of(metric)}; those of {others} are in published.tsv."


def published_section(table: pd.DataFrame, settings: TableSettings) -> list[str]:
    """Write a Markdown section for each kind of reference, with the comparison of the table's measure."""
    shown = table[table["metric"] == settings.metric]
    if shown.empty:
        return [f"{nothing_published(table, settings.metric)}\n"]
    labels, sections = {method.name: method.label for method in settings.methods}, []
    header = ["method", "collection", "ours", "reference", "difference", "verdict", "tolerance", "source"]
    for kind, meaning in KINDS.items():
        rows = []
        for row in shown[shown["kind"] == kind].itertuples():
            numbers = fixed(row.ours), f"{row.reference:g}", signed(row.difference)
            rows.append([labels[row.method], row.collection, *numbers, row.verdict, f"{row.tolerance:g}"])
            rows[-1].append(shortened(row.source, SHOWN))
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
