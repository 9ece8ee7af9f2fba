"""List the files of users' own folders, describe each folder as a collection, and hold items of it out."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zerodr.config.base import validate
from zerodr.config.registry import EVERY, NAME, Collection
from zerodr.errors import CollectionError, ConfigError

RESERVED = {"shared", "source", "target", "targets", "all"}  # scopes, and names in a stage's corpora and memories
SECTIONS = ("corpus", "queries", "judgements")
RENAME = "rename the folder, or set byo_name"


@dataclass(frozen=True)
class UserFolder:
    """The files of a user's own folder that are read, by section; others count for nothing.

    Attributes:
        path: the folder.
        files: paths by section of SECTIONS.
        digests: SHA-256 by path, where the contents were looked at.
        fault: place, problem and next step, where the contents can't be used.
    """

    path: str
    files: dict[str, tuple[str, ...]]
    digests: dict[str, str] = field(default_factory=dict)
    fault: tuple[str, str, str] | None = None

    def check(self) -> None:
        """Raise a CollectionError when the contents can't be used."""
        if self.fault:
            raise CollectionError(*self.fault)


def split_folders(value: object) -> tuple[str, ...]:
    """Read `byo`: folders separated by commas, or one folder whose name holds commas; None: none. `~` is expanded."""
    texts = value if isinstance(value, list | tuple) else [] if value is None else [value]
    words = [
        word.strip()
        for text in map(str, texts)
        for word in ([text] if Path(text).expanduser().is_dir() else text.split(","))
    ]
    return tuple(dict.fromkeys(str(Path(word).expanduser()) for word in words if word))


def find_files(folder: Path) -> dict[str, tuple[str, ...]]:
    """List the files that are read, by section."""
    sections = {section: [folder / f"{section}.{ending}" for ending in ENDINGS] for section in SECTIONS[:2]}
    sections["judgements"] = sorted((folder / "qrels").glob("*.tsv"))
    files = {section: tuple(str(path) for path in paths if path.is_file()) for section, paths in sections.items()}
    return {section: paths for section, paths in files.items() if paths}


def read_folders(
    folders: Sequence[str],
    taken: dict[str, Collection],
    language: str | None,
    drop_missing: bool,
    chosen: str | None = None,
) -> tuple[dict[str, Collection], dict[str, UserFolder]]:
    """Describe folders as collections, by name. Counts are unknown: no number is compared with a published one.

    Raises:
        ConfigError: a folder that is none, has no documents, or has a name that can't be used.
    """
    rows: dict[str, Collection] = {}
    folders_by_name: dict[str, UserFolder] = {}
    if chosen is not None and len(folders) != 1:
        raise ConfigError(f"byo_name={chosen}", f"names one folder, byo has {len(folders)}", "leave it out")
    for path in folders:
        folder = Path(path)
        name = _name_of(folder, taken | rows, chosen)
        documents = estimated_documents(folder)
        if not documents:
            corpus = "no" if documents is None else "an empty"
            raise ConfigError(f"byo={folder}", f"holds {corpus} corpus.{{{','.join(ENDINGS)}}}", "put documents there")
        folders_by_name[name] = UserFolder(path, find_files(folder))
        splits = [Path(file).stem for file in folders_by_name[name].files.get("judgements", ())]
        row = {
            "name": name,
            "label": chosen or folder.resolve().name,
            "kind": "own",
            "format": "folder",
            "archive": str(folder),
            "splits": dict.fromkeys(splits),
            "evaluation_split": next((split for split in ("test", "dev", *splits) if split in splits), ""),
            "estimated_documents": documents,
            "language": language or "en",
            "drop_missing": drop_missing,
        }
        rows[name] = validate(Collection, row, f"byo={folder}")
    return rows, folders_by_name


def _name_of(folder: Path, taken: dict[str, Collection], chosen: str | None) -> str:
    """Make a name from the chosen one or the folder's: small letters, blanks as hyphens."""
    where, name = f"byo={folder}", (chosen or folder.resolve().name).lower().replace(" ", "-")
    if name in taken:
        other = "another folder" if taken[name].kind == "own" else "the registry"
        raise ConfigError(where, f"{other} already has a collection named {name!r}", RENAME)
    if not folder.is_dir():
        raise ConfigError(where, "is no folder", "give a folder with corpus.{jsonl,tsv,parquet}")
    if name in RESERVED | _words(taken.values()):
        raise ConfigError(where, f"the name {name!r} has another meaning here", RENAME)
    if not re.fullmatch(NAME, name):
        step = f"{RENAME}: small letters, digits, . @ _ -, the first a letter or digit"
        raise ConfigError(where, f"the name {name!r} can't be part of a path", step)
    if (folder / "qrels" / f"{EVERY}.tsv").is_file():
        raise ConfigError(where, f"a split can't be named {EVERY!r}", f"rename qrels/{EVERY}.tsv")
    return name


def _words(rows: Iterable[Collection]) -> set[str]:
    """Names of columns and column groups."""
    return {word for row in rows for word in (row.column, *row.groups)}


ENDINGS = ("jsonl", "tsv", "parquet")  # of corpus.*
SAMPLES, SAMPLE_BYTES = 16, 1 << 16
PARQUET_BYTES = 500  # compressed bytes of a document with about 1,000 letters


def estimated_documents(folder: Path) -> int | None:
    """Documents of `corpus.{jsonl,tsv,parquet}` in `folder`; None without such a file.

    Lines: as many as in samples spread over the file, for its size; a file of at most 1 MiB is counted exactly.
    Parquet: a document for each PARQUET_BYTES. The same bytes give the same number.
    """
    for ending in ENDINGS:
        path = folder / f"corpus.{ending}"
        if path.is_file():
            size = path.stat().st_size
            return -(-size // PARQUET_BYTES) if ending == "parquet" else _lines(path, size)
    return None


def _lines(path: Path, size: int) -> int:
    with open(path, "rb") as stream:
        if size <= SAMPLES * SAMPLE_BYTES:
            text = stream.read()
            return text.count(b"\n") + (not text.endswith(b"\n")) if text else 0
        breaks = 0
        for number in range(SAMPLES):
            stream.seek(number * (size - SAMPLE_BYTES) // (SAMPLES - 1))
            breaks += stream.read(SAMPLE_BYTES).count(b"\n")
    return max(1, round(size * breaks / (SAMPLES * SAMPLE_BYTES)))


ENDING, SPLIT = ".proxy", "known-items"
ADAPTING = "lab"  # the scale of `zerodr adapt`


def with_proxies(rows: dict[str, Collection], count: int) -> dict[str, Collection]:
    """Add a proxy collection for each folder of the user, and let its models rank the folder, too.

    So what was held out is in no text that a model learns from, whichever recipe makes it.

    Args:
        rows: the registry by name.
        count: titles and sentences to hold out; 0 adds nothing.
    """
    if not count:
        return rows
    added = dict(rows)
    for name, row in rows.items():
        if row.kind == "own":
            proxy = name + ENDING
            added[name] = row.model_copy(update={"models_of": proxy})
            held_out = {"kind": "proxy", "name": proxy, "label": f"{row.label} (proxy)", "held_out_of": name}
            judged = {"splits": {SPLIT: None}, "evaluation_split": SPLIT, "queries": None, "archive": ""}
            added[proxy] = row.model_copy(update=held_out | judged)
    return added
