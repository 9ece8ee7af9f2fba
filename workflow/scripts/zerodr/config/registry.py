"""The registry of collections: `config/collections/*.yaml`, a family a file, a block a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from zerodr.config.base import Settings, mapping, validate
from zerodr.config.custom import custom_files
from zerodr.config.files import known, read_yaml, yaml_files
from zerodr.config.transform import Transform
from zerodr.errors import ConfigError

NAME = r"^[a-z0-9][a-z0-9.@_-]*$"

FORMATS = (
    *("beir", "lotte", "oag-qa", "cmedqav2", "multi-cpr", "dureader", "dureader-retrieval"),
    *("dpr-wikipedia", "mesh-xml"),
    *(
        "mesh-thesaurus",
        "wordnet",
        "wikipedia-summaries",
        "squad",
        "squadshifts",
        "cmrc2018",
        "mlquestions",
        "nq-pairs",
    ),
    *("medquad", "cranfield", "cisi", "folder"),
)
EVERY = "every"
"""Stands for a split: every query that has a text, judged or not."""
LANGUAGES = tuple("ar bn da de en es fa fi fr hi hu id it ja ko nl no pl pt ru sv te th tr uk und zh".split())
UNKNOWN = "und"
"""Any other language: words as they are written, letters without blanks (Khmer, Lao, Burmese) in pairs."""
WITHOUT_LUCENE = ("th", UNKNOWN)
"""Languages that Lucene has no analyzer for here; the backend bm25s analyses them."""
WITHOUT_JAVA = ("en", "zh", *WITHOUT_LUCENE)
"""Languages that the backend bm25s analyses by itself. Lucene's analyzers, which need Java, serve it for the others."""


def name_language(language: str) -> str:
    """Name a language in a sentence for users: by its code, where it has one."""
    return "another language" if language == UNKNOWN else language


class Original(Settings):
    """One file of a publisher."""

    path: str
    """Path after the address. A mirror folder has the file as `<archive without .zip>/<path>`."""
    address: str = ""
    """Replaces the address of the collection's other files."""
    checksum: str = ""
    """`md5:...` or `sha256:...`. Empty: not pinned."""
    members: tuple[str, ...] = ()
    """Endings of the members that are read, where the file is an archive itself. Empty: all."""


class Originals(Settings):
    """Files of a publisher, for a collection whose archive has no address of its own. Fetching packs them into one."""

    format: str
    """The reader of these files in `zerodr.collections.readers`."""
    address: str
    """Start of the files' addresses."""
    files: tuple[Original, ...]
    """The files."""

    def address_of(self, file: Original) -> str:
        """Return the whole address of a file."""
        return (file.address or self.address) + file.path

    def mirrored_as(self, archive: str, file: Original) -> str:
        """Return the name of a file in a mirror folder."""
        return f"{archive.removesuffix('.zip')}/{file.path}"

    @property
    def pinned(self) -> bool:
        """True if every file has a checksum."""
        return all(file.checksum for file in self.files)


class Content(Settings):
    """What a collection holds."""

    name: str = Field(pattern=NAME)
    """Name in paths, methods and tables."""
    format: str = "beir"
    """The reader in `zerodr.collections.readers`, one of FORMATS."""
    archive: str = ""
    """File name under resources/archives and in a mirror folder; several collections may share one archive."""
    member: str = ""
    """Folder (or file) of this collection inside the archive; empty: the reader looks for it."""
    documents: int | None = None
    """Number of documents. Audited, and the source of shard counts."""
    queries: int | None = None
    """Number of queries. Audited."""
    splits: dict[str, int | None] = Field(default_factory=dict)
    """Queries with a positive by split, such as `{train: 809, test: 300}`; null where unknown. Audited."""
    language: str = "en"
    """Language of the texts, one of LANGUAGES: BM25 analyses them accordingly. Of transformed collections without it:
    that of their sources."""
    judged_split: str = ""
    """memory: keep only the documents that are relevant in this split of the archive. Empty: all."""
    cut: int | None = Field(None, ge=1)
    """memory: keep at most so many documents, spread evenly over the file. None: all."""
    known_gaps: int = 0
    """Judged documents that are absent upstream."""
    drop_missing: bool = False
    """Drop judgements of absent documents and of absent queries instead of refusing or keeping them."""


class Origin(Settings):
    """Where a collection's archive comes from."""

    urls: tuple[str, ...] = ()
    """Official addresses, tried in order after the mirror folders."""
    checksums: tuple[str, ...] = ()
    """`md5:...` or `sha256:...`; the archive must match one of them. Empty: not pinned, which the audit reports."""
    originals: Originals | None = None
    """Files of the publisher, fetched where no mirror folder has the archive and `urls` is empty."""
    access: Literal["public", "gated"] = "public"
    """`gated`: registration is needed; its column is left out unless the archive is there."""
    registration: str = ""
    """Address where you register for a gated collection."""


class Shown(Settings):
    """How tables show a collection."""

    name: str = Field(pattern=NAME)
    """Name in paths, methods and tables."""
    label: str
    """Name in printed tables."""
    evaluation_split: str = ""
    """The split of the tables; empty for a corpus alone."""
    aggregate: str = ""
    """Table column that is the macro mean of the collections with this name (CQADupStack)."""
    groups: tuple[str, ...] = ()
    """Averages that the collection belongs to: beir18, contriever14, cpt11, modir15, berm14, mini, lab."""
    exclude_self: bool = False
    """Leave the document with the query's own id out of its ranking (ArguAna, Quora). Of transformed collections
    without it: as in a source."""
    licence: str = ""
    """Licence of the data."""
    remark: str = ""
    """Footnote of the column."""


class Collection(Content, Origin, Shown):
    """One collection of the registry."""

    kind: Literal["complete", "subset", "pool", "memory", "own", "proxy", "transformed"]
    """`complete`: as published. `subset`, `pool`: never compared with published numbers. `memory`: a corpus alone.
    `proxy`: a folder of yours whose known items are held out (config/user_folders.py).
    `transformed`: made of other collections, see `transform`."""
    transform: Transform | None = None
    """transformed: how it is made of other collections, in place of an archive."""
    archive_bytes: int | None = None
    """Size of the archive, for progress and disk planning."""
    estimated_documents: int | None = None
    """About how many documents there are, where the number is not known: for shards and memory, never audited."""
    held_out_of: str = ""
    """proxy: the collection whose documents it has."""
    models_of: str = ""
    """Target whose models rank this collection. Empty: its column."""
    title_join: str = " "
    """Text between title and text."""

    @model_validator(mode="after")
    def _consistent(self) -> Collection:
        if self.kind != "memory" and (self.judged_split or self.cut):
            raise ValueError(f"judged_split and cut are for kind memory, found kind {self.kind}: leave them out")
        if (self.kind == "transformed") != (self.transform is not None):
            raise ValueError(f"transform is for kind transformed, and needed there, found kind {self.kind}")
        if self.transform and (self.archive or self.documents or self.queries or any(self.splits.values())):
            raise ValueError("a transformed collection has no archive and no counts: write splits as {test: null}")
        if self.evaluation_split and self.evaluation_split not in self.splits:
            raise ValueError(f"evaluation_split {self.evaluation_split!r} is not among splits {sorted(self.splits)}")
        return self

    @property
    def ranked_split(self) -> str:
        """The split whose queries are ranked. Of an own folder every query: a new judgement changes no ranking."""
        return EVERY if self.kind == "own" else self.evaluation_split

    @property
    def has_archive(self) -> bool:
        """True if it is read from an archive: no folder of yours, and not made of other collections."""
        return self.kind not in ("own", "proxy", "transformed")

    @property
    def pinned(self) -> bool:
        """True if checksums fix the content."""
        return self.originals.pinned if self.originals else bool(self.checksums)

    def unpinned(self) -> Collection:
        """Copy the row without checksums, for archives that stand in for the published ones."""
        files = [file.model_copy(update={"checksum": ""}) for file in self.originals.files] if self.originals else []
        originals = self.originals and self.originals.model_copy(update={"files": tuple(files)})
        return self.model_copy(update={"checksums": (), "originals": originals})

    @property
    def addresses(self) -> list[str]:
        """Addresses of the archive, or of the publisher's files."""
        originals = self.originals
        return [*self.urls, *([originals.address_of(file) for file in originals.files] if originals else [])]

    @property
    def mirror_files(self) -> dict[str, bool]:
        """File names in a mirror folder, the archive first, and whether a checksum pins each."""
        pinned = {self.archive: bool(self.checksums)}
        if self.originals:
            files = self.originals.files
            pinned |= {self.originals.mirrored_as(self.archive, file): bool(file.checksum) for file in files}
        return pinned

    @property
    def planned_documents(self) -> int:
        """Documents that a plan counts on: the number, else the estimate, else 0."""
        return self.documents or self.estimated_documents or 0

    @property
    def column(self) -> str:
        """The table column: the collection itself, or the aggregate that it is part of."""
        return self.aggregate or self.name

    @property
    def target(self) -> str:
        """The target whose models rank it."""
        return self.models_of or self.column


KEYS = (*(set(Collection.model_fields) - {"name"}), "like")


class Family(Settings):
    """One file of the registry: collections that share most of their values."""

    defaults: dict[str, Any] = {}
    """Values of every collection of the file, unless its block gives others."""
    collections: dict[str, dict[str, Any]]
    """Blocks by name. `like: <name>` starts from a block above; a key replaces the one it inherits."""


def read_registry(folder: Path) -> dict[str, Collection]:
    """Read the collections of `config/collections` by name, files in alphabetical order, which tables follow.

    Raises:
        ConfigError: names the file, and the collection and key at fault with the nearest known key.
    """
    rows: dict[str, Collection] = {}
    files: dict[str, str] = {}
    paths = yaml_files(folder, "config/collections", "family of collections")
    written = {f"config/collections/{path.name}": mapping(read_yaml(path), str(path)) for path in paths}
    for where, blocks in {**written, **custom_files(folder.parent, "collections")}.items():
        family = read_family(blocks, where)
        for name in family.keys() & rows.keys():
            raise ConfigError(where, f"collection {name!r} is in {files[name]} too", "remove one of them")
        files |= dict.fromkeys(family, where)
        rows |= family
    _check_archives(rows, files)
    for row in rows.values():
        for source in row.transform.sources if row.transform else ():
            known(f"{files[row.name]}: {row.name}: sources", source, [key for key in rows if key != row.name])
    return {name: _inherited(row, rows, files[name]) for name, row in rows.items()}


def _inherited(row: Collection, rows: dict[str, Collection], file: str, above: tuple[str, ...] = ()) -> Collection:
    """Give a transformed collection its sources' size, and their `language` and `exclude_self` where it has no others.

    Raises:
        ConfigError: its sources differ in one of these, it is made of itself, or joined with queries' own documents.
    """
    if row.transform is None:
        return row
    where, above = f"{file}: {row.name}", (*above, row.name)
    if again := next((name for name in row.transform.sources if name in above), ""):
        raise ConfigError(f"{where}: sources", f"{again} is made of itself", "name another source")
    sources, given = [_inherited(rows[name], rows, file, above) for name in row.transform.sources], row.model_fields_set
    alone = [source.name for source in sources if source.exclude_self]
    if alone and row.transform.kind == "join" and "exclude_self" not in given:
        problem = f"joins documents of {alone[0]}, which leaves a query's own document out of its ranking"
        raise ConfigError(where, problem, "take another source, or set exclude_self: false, so that none is left out")
    if 0 < len(alone) < len(sources) and "exclude_self" not in given:
        problem = f"leaves a query's own document out for {alone[0]} alone; ids of others may be equal by chance"
        raise ConfigError(where, problem, "set exclude_self: true or false for all its queries")
    languages = list(dict.fromkeys(source.language for source in sources))
    if "language" not in given and len(languages) > 1:
        raise ConfigError(where, f"is made of collections in {' and '.join(languages)}", "set language, for BM25")
    total = sum(source.planned_documents for source in sources)
    inherited = {"language": languages[0], "exclude_self": bool(alone)}
    inherited["estimated_documents"] = -(-total // 2) if row.transform.kind == "join" else total
    return row.model_copy(update={key: value for key, value in inherited.items() if key not in given})


def read_family(written: dict[str, Any], where: str) -> dict[str, Collection]:
    """Read the collections of one file: defaults, then `like`, then the block itself.

    Raises:
        ConfigError: unknown key, bad value, or `like` of a block that is not above.
    """
    family = validate(Family, written, where)
    for name, block in {"defaults": family.defaults, **family.collections}.items():
        for key in block:
            known(f"{where}: {name}: key", key, KEYS)
    blocks: dict[str, dict[str, Any]] = {}
    for name, block in family.collections.items():
        values = dict(block)
        like = values.pop("like", None)
        below = family.defaults if like is None else known(f"{where}: {name}: like", str(like), blocks)
        blocks[name] = below | values
    return {name: validate(Collection, {"name": name} | block, f"{where}: {name}") for name, block in blocks.items()}


def _check_archives(rows: dict[str, Collection], files: dict[str, str]) -> None:
    users: dict[str, Collection] = {}
    for row in rows.values():
        other = users.setdefault(row.archive, row) if row.archive else row
        if (other.urls, other.checksums, other.originals) != (row.urls, row.checksums, row.originals):
            raise ConfigError(
                f"{files[row.name]}: {row.name}",
                f"shares archive {row.archive} with {other.name} ({files[other.name]}), but urls or checksums differ",
                "give both the same",
            )
