"""Settings of tables: rows, columns, missing collections, and the protocol that all numbers share."""

from typing import Literal

from pydantic import Field

from zerodr.config.base import Settings
from zerodr.config.methods import ScoreSettings
from zerodr.config.settings import Protocol, Reference


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


class TableCollection(Settings):
    """An evaluated collection: a column, or a member of one."""

    name: str
    """Name in the registry."""
    label: str
    """Name in printed tables."""
    kind: Literal["complete", "subset", "pool", "own"]
    """Only complete collections enter averages and comparisons with published numbers."""
    evaluation_split: str
    """The split that is evaluated."""
    aggregate: str = ""
    """The column that is the macro mean of this and other collections."""
    groups: tuple[str, ...] = ()
    """Averages that the collection belongs to."""
    remark: str = ""
    """Footnote of the column."""
    exclude_self: bool = False
    """The registry requires self-exclusion."""
    language: str = "en"
    """Language of the texts."""
    licence: str = ""
    """Licence of the data."""


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
    references: tuple[Reference, ...] = ()
    """Published numbers to compare with, in the order of the input `references`."""

    @property
    def published(self) -> frozenset[str]:
        """Rows that are published numbers."""
        return frozenset(method.name for method in self.methods if method.scores is not None)
