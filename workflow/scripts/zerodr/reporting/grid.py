"""Fill a table with numbers: check summaries against one protocol, compute aggregates and group averages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import Field

from zerodr.artifacts.record import require_undamaged
from zerodr.config.base import Settings
from zerodr.config.methods import ScoreSettings
from zerodr.config.registry import Shown
from zerodr.config.settings import Protocol, Reference
from zerodr.errors import ArtifactError, CollectionError, ProtocolError


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        name: the collection, the aggregate, or `Avg <group>`.
        label: name in printed tables.
        mark: reason that it is no complete published collection (`subset`, `pool`, `own`, `1 of 12`), or "".
        members: collections (or for an average, columns) that a cell averages.
    """

    name: str
    label: str
    mark: str
    members: tuple[str, ...]

    @property
    def header(self) -> str:
        """The name with its mark, as in the tsv."""
        return f"{self.name} ({self.mark})" if self.mark else self.name

    @property
    def printed(self) -> str:
        """The label with its mark."""
        return f"{self.label} ({self.mark})" if self.mark else self.label


@dataclass(frozen=True)
class Grid:
    """A filled table.

    Attributes:
        columns: collections and aggregates, then averages.
        averages: number of columns, from the right, that are averages.
        values: (methods, columns), named by method and column name.
    """

    columns: tuple[Column, ...]
    averages: int
    values: pd.DataFrame

    @property
    def data_columns(self) -> tuple[Column, ...]:
        """Columns that are no averages of groups."""
        return self.columns[: len(self.columns) - self.averages]

    def printed(self) -> Grid:
        """Return the same table without averages that repeat another one."""
        averages = distinct(self.columns[len(self.data_columns) :])
        columns = (*self.data_columns, *averages)
        return Grid(columns, len(averages), self.values[[column.name for column in columns]])


def read_summaries(paths: list[Path]) -> pd.DataFrame:
    """Read all summaries into one long frame; see `evaluation.evaluate.summarize` for its columns.

    Raises:
        CollectionError: there are none.
        ArtifactError: one is not what its evaluation wrote.
    """
    if not paths:
        step = "add qrels/<split>.tsv, or request rankings and statistics (docs/own-corpus.md)"
        raise CollectionError("the chosen collections", "have no judged queries, so the table has no column", step)
    require_undamaged(paths)
    text = {name: str for name in ("model", "collection", "split", "protocol", "metric")}
    empty = {"low": "", "high": ""}
    frames = (pd.read_csv(path, sep="\t", dtype=text, keep_default_na=False, na_values=empty) for path in paths)
    return pd.concat(frames, ignore_index=True)


def check_summaries(frame: pd.DataFrame, settings: TableSettings) -> None:
    """Check that each method has one summary for each collection, all under the table's protocol.

    Raises:
        ProtocolError: a number has another protocol, split, depth or self-exclusion.
        ArtifactError: a summary is missing, appears twice, or is not of this table.
    """
    collections = {row.name: row for row in settings.collections}
    runs = frame.drop_duplicates(["model", "collection", "protocol", "split", "depth", "exclude_self"])
    ranked = [method for method in settings.methods if method.scores is None]
    expected = {(method.name, name) for method in ranked for name in collections if name not in method.absent}
    for run in runs.itertuples():
        if (run.model, run.collection) not in expected:
            step = "give the summaries of the table's methods and collections"
            raise ArtifactError(f"{run.model}/{run.collection}", "is no cell of this table", step)
        _check_protocol(run, collections[run.collection], settings)
    if frame.duplicated(["model", "collection", "metric"]).any():
        raise ArtifactError("the table", "a summary appears twice", "give each summary once")
    absent = sorted(expected - set(zip(runs["model"], runs["collection"], strict=True)))
    if absent:
        raise ArtifactError("/".join(absent[0]), f"{len(absent)} summaries are missing", "run evaluate_run for them")


def _check_protocol(run: object, row: TableCollection, settings: TableSettings) -> None:
    protocol = settings.protocol
    expected = {
        "protocol": protocol.name,
        "split": row.evaluation_split,
        "depth": protocol.depth,
        "exclude_self": row.exclude_self and protocol.exclude_self == "registry",
    }
    for name, value in expected.items():
        if getattr(run, name) != value:
            where = f"{run.model}/{run.collection}"  # type: ignore[attr-defined]
            problem = f"{name} is {getattr(run, name)}, the table's is {value}"
            raise ProtocolError(where, problem, "numbers of different protocols never share a column: evaluate again")


def table_columns(settings: TableSettings) -> list[Column]:
    """List collections and aggregates, in the order of the settings."""
    members: dict[str, list[TableCollection]] = {}
    for row in settings.collections:
        members.setdefault(row.aggregate or row.name, []).append(row)
    return [_column(name, rows, settings) for name, rows in members.items()]


def _column(name: str, rows: list[TableCollection], settings: TableSettings) -> Column:
    mark = next((row.kind for row in rows if row.kind != "complete"), "")
    names = tuple(row.name for row in rows)
    if not rows[0].aggregate:
        return Column(name, rows[0].label, mark, names)
    every = settings.aggregates[name]
    if len(names) < len(every):
        mark = f"{len(names)} of {len(every)}"
    return Column(name, name, mark, names)


def average_columns(columns: list[Column], settings: TableSettings) -> list[Column]:
    """List averages of groups with a complete column; `Avg beir18 (3 of 18)` when some are not in the table."""
    averages = []
    for group, members in settings.groups.items():
        present = tuple(column.name for column in columns if column.name in members and not column.mark)
        if present:
            mark = f"{len(present)} of {len(members)}" if len(present) < len(members) else ""
            averages.append(Column(f"Avg {group}", f"Avg {group}", mark, present))
    return averages


def distinct(averages: Sequence[Column]) -> tuple[Column, ...]:
    """Select averages that repeat no other column: one a set of two or more members, complete groups first."""
    chosen: dict[tuple[str, ...], Column] = {}
    for column in sorted(averages, key=lambda column: column.mark != ""):
        if len(column.members) > 1:
            chosen.setdefault(column.members, column)
    return tuple(chosen.values())


def fill(frame: pd.DataFrame, settings: TableSettings, metric: str | None = None) -> Grid:
    """Fill the table of one measure: collections, macro means of aggregates, averages of groups.

    A number of an aggregate itself counts where its members have none. Cells and rows without a number are empty.
    """
    chosen = frame[frame["metric"] == (metric or settings.metric)]
    cells = chosen.pivot(index="model", columns="collection", values="value").astype(float)
    columns = table_columns(settings)
    cells = cells.reindex(
        columns=list(dict.fromkeys(name for column in columns for name in (*column.members, column.name)))
    )
    means = {column.name: _mean(cells, column) for column in columns}  # a number of a whole is none of some members
    values = pd.DataFrame({c.name: means[c.name] if c.mark else means[c.name].fillna(cells[c.name]) for c in columns})
    averages = average_columns(columns, settings)
    for column in averages:
        values[column.name] = _mean(values, column)
    return Grid((*columns, *averages), len(averages), values.reindex([method.name for method in settings.methods]))


def further(frame: pd.DataFrame, settings: TableSettings) -> dict[str, Grid]:
    """Fill the tables of the further measures, of what was evaluated here."""
    ranked = tuple(method for method in settings.methods if method.scores is None)
    return {
        name: fill(frame, settings.model_copy(update={"methods": ranked}), name).printed() for name in settings.further
    }


def _mean(cells: pd.DataFrame, column: Column) -> pd.Series:
    """Average the members of a column; nothing where one is missing."""
    return cells[list(column.members)].mean(axis=1, skipna=False)


class TableMethod(Settings):
    """A row."""

    name: str
    """Full name of the method."""
    label: str
    """Name in printed tables."""
    remark: str = ""
    """Footnote of the row."""
    scores: ScoreSettings | None = None
    """Published numbers that are the row; None: it was evaluated here."""
    absent: tuple[str, ...] = ()
    """Collections without a run of it."""
    family: str = ""
    """Heading above the row and its neighbours of the same family; empty: none."""


class TableCollection(Shown):
    """An evaluated collection: a column, or a member of one."""

    kind: Literal["complete", "subset", "pool", "own", "transformed"]
    """Only complete collections enter averages and comparisons with published numbers."""
    language: str = "en"
    """Language of the texts."""


class Missing(Settings):
    """A requested collection that is not available."""

    name: str
    """Name in the registry."""
    reason: str
    """Reason."""


class NamedProtocol(Protocol):
    """The protocol of all numbers of a table."""

    name: str
    """Its name in config/protocols.yaml."""


class TableSettings(Settings):
    """Everything that `build_table` needs in addition to the numbers."""

    methods: tuple[TableMethod, ...]
    """Rows, in order."""
    collections: tuple[TableCollection, ...]
    """Evaluated collections, in order."""
    missing: tuple[Missing, ...] = ()
    """Requested collections that are not in the table."""
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Average -> the columns that it has when complete."""
    aggregates: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Column -> all collections whose macro mean it is when complete."""
    protocol: NamedProtocol
    """The protocol of every number."""
    scale: str
    """The preset of the run."""
    source: str
    """The collection with supervision."""
    metric: str = "ndcg_cut_10"
    """The measure in the cells."""
    further: tuple[str, ...] = ()
    """Measures in tables of their own below it."""
    references: tuple[Reference, ...] = ()
    """Published numbers to compare with, in the order of the input `references`."""
    seeds: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Row -> the rows that are it with each seed, itself first."""
    baseline: str = ""
    """The row that others are compared with over seeds; empty where it has one seed."""
    bootstrap_samples: int = Field(1000, ge=1)
    """Draws of the intervals over seeds and queries."""

    @property
    def published(self) -> frozenset[str]:
        """Rows that are published numbers."""
        return frozenset(method.name for method in self.methods if method.scores is not None)
