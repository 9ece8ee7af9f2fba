"""The registry of collections: `config/collections.tsv`, one row a collection."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from zerodr.config.base import Settings, validate
from zerodr.config.files import read_text
from zerodr.errors import ConfigError

NAME = r"^[a-z0-9][a-z0-9.@_-]*$"


def _words(value: Any) -> Any:
    return tuple(value.split()) if isinstance(value, str) else value


def _splits(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = (word.partition(":") for word in value.split())
    return {name: int(count) if count else None for name, _, count in pairs}


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


class Collection(Settings):
    """One row of the registry. Empty cells take the defaults."""

    name: str = Field(pattern=NAME)
    """Name in paths, methods and tables."""
    label: str
    """Name in printed tables."""
    kind: Literal["complete", "subset", "pool", "memory", "own"]
    """`complete`: as published. `subset`, `pool`: never compared with published numbers. `memory`: a corpus alone."""
    format: str = "beir"
    """The reader in `zerodr.collections.readers`."""
    archive: str = ""
    """File name under resources/archives and in a mirror folder; several rows may share one archive."""
    urls: Words = ()
    """Official addresses, tried in order after the mirror folders."""
    checksums: Words = ()
    """`md5:...` or `sha256:...`; the archive must match one of them. Empty: unpinned, and said so."""
    archive_bytes: int | None = None
    """Size of the archive, for progress and disk planning."""
    member: str = ""
    """Folder (or file) of this collection inside the archive; empty: found by the reader."""
    documents: int | None = None
    """Number of documents. Audited, and the source of shard counts."""
    estimated_documents: int | None = None
    """About how many documents there are, where the number is not known: for shards and memory, never audited."""
    queries: int | None = None
    """Number of queries. Audited."""
    splits: Annotated[dict[str, int | None], BeforeValidator(_splits)] = Field(default_factory=dict)
    """`split:queries with a positive` pairs, such as `train:809 test:300`. Audited."""
    evaluation_split: str = ""
    """The split of the tables; empty for a corpus alone."""
    aggregate: str = ""
    """Table column that is the macro mean of the rows with this name (CQADupStack)."""
    access: Literal["public", "gated"] = "public"
    """`gated`: registration is needed; its column is left out unless the archive is there."""
    registration: str = ""
    """Where a gated collection is asked for."""
    licence: str = ""
    """Licence of the data."""
    language: str = "en"
    """Language of the texts."""
    exclude_self: bool = False
    """Leave the document with the query's own id out of its ranking (ArguAna, Quora)."""
    title_join: str = " "
    """What stands between title and text; `\\n` and such are allowed."""
    query_tokens: int | None = None
    """Length that this collection's queries need (ArguAna); a protocol may ignore it."""
    document_tokens: int | None = None
    """Length that this collection's documents need; a protocol may ignore it."""
    known_gaps: int = 0
    """Judged documents that are absent upstream."""
    drop_missing: bool = False
    """Drop judgements of absent documents and of absent queries instead of refusing or keeping them."""
    groups: Words = ()
    """Averages that the collection belongs to: beir18, contriever14, cpt11, modir15, berm14, mini, lab."""
    remark: str = ""
    """Footnote of the column."""

    @model_validator(mode="after")
    def _consistent(self) -> Collection:
        if self.evaluation_split and self.evaluation_split not in self.splits:
            raise ValueError(f"evaluation_split {self.evaluation_split!r} is not among splits {sorted(self.splits)}")
        return self

    @property
    def planned_documents(self) -> int:
        """Documents that plans count on: the number, else the estimate, else 0."""
        return self.documents or self.estimated_documents or 0

    @property
    def column(self) -> str:
        """The table column: the collection itself, or the aggregate that it is part of."""
        return self.aggregate or self.name


def parse_registry(text: str, where: str) -> dict[str, Collection]:
    """Rows of a registry by name.

    Raises:
        ConfigError: unknown column, bad cell, duplicate name, or rows that disagree about a shared archive.
    """
    rows: dict[str, Collection] = {}
    for number, cells in enumerate(csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE), start=2):
        place = f"{where}:{number}"
        if None in cells or None in cells.values():
            raise ConfigError(place, "has another number of cells than the header", "separate cells by one tab each")
        values = {key: cell for key, cell in cells.items() if cell != ""}
        if "title_join" in values:
            values["title_join"] = values["title_join"].encode().decode("unicode_escape")
        row = validate(Collection, values, f"{place} ({cells.get('name')})")
        if row.name in rows:
            raise ConfigError(place, f"collection {row.name!r} stands twice", "remove one row")
        rows[row.name] = row
    _check_archives(rows.values(), where)
    return rows


def _check_archives(rows: Iterable[Collection], where: str) -> None:
    seen: dict[str, Collection] = {}
    for row in rows:
        other = seen.setdefault(row.archive, row) if row.archive else row
        if (other.urls, other.checksums) != (row.urls, row.checksums):
            raise ConfigError(
                where,
                f"{other.name} and {row.name} share archive {row.archive} but differ in urls or checksums",
                "give both rows the same",
            )


def read_registry(path: Path) -> dict[str, Collection]:
    """The registry file as rows by name."""
    return parse_registry(read_text(path), str(path))
