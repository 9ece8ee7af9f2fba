"""Convert a user's own folder in three stages, so that a new judgement leaves the index and a new query the documents.

The sections are folder artifacts inside that of the corpus: `queries/` and `judgements/`, each with its `audit.json`.
Letters and their accents become one character (NFC) in documents and queries, so that they meet however they were
typed; published collections stay as they are published.
The language of a folder is guessed by its first documents.
"""

import logging
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import read_corpus, read_queries
from zerodr.collections.archives import FolderArchive
from zerodr.collections.audit import USER_FOLDER, IdIndex, Listing, TextScan
from zerodr.collections.languages import language_of
from zerodr.collections.normalize import write_corpus, write_queries, write_split
from zerodr.collections.readers.base import Document, Query
from zerodr.collections.readers.folder import FolderReader
from zerodr.collections.readers.loose import LooseArchive, LooseReader
from zerodr.config.base import Settings, validate
from zerodr.config.loose_files import COLUMNS, CUT, Columns, Cut
from zerodr.config.quantities import counted
from zerodr.config.registry import Collection, Content
from zerodr.config.user_folders import SHORT, UserFolder, is_loose
from zerodr.errors import CollectionError, ZerodrError

log = logging.getLogger("zerodr")
Row = TypeVar("Row", Document, Query)
SAMPLE_DOCUMENTS, SAMPLE_CHARACTERS = 200, 2000


class SectionSettings(Settings):
    """Settings of the stages of a user's own folder."""

    name: str
    """Name of the collection."""
    archive: str
    """The folder."""
    content: tuple[str, ...]
    """SHA-256 of the files: equal contents are equal, whatever their times."""
    drop_missing: bool = False
    """Drop judgements of absent documents and queries."""
    columns: Columns = COLUMNS
    """Columns of tables of documents."""
    cut: Cut = CUT
    """How texts are cut into passages."""


def normalize_corpus(stage: Stage) -> None:
    """Read input `files`; write output `section` with `corpus.parquet`."""
    _normalize(stage, "corpus")


def normalize_queries(stage: Stage) -> None:
    """Read input `files`; write output `section` with `queries.parquet`."""
    _normalize(stage, "queries")


def normalize_judgements(stage: Stage) -> None:
    """Read inputs `files` and `collection`; write output `section` with `qrels.<split>.tsv`."""
    _normalize(stage, "judgements")


def _normalize(stage: Stage, section: str) -> None:
    settings = validate(SectionSettings, stage.params, stage.spec.rule)
    files = [str(path) for path in stage.paths("files")]
    collection = stage.path("collection") if section == "judgements" else None
    reader = open_folder(settings.archive, files, settings.columns, settings.cut, section)
    facts = _write(section, reader, settings, stage.output("section"), collection)
    for remark in facts.get("remarks", ()):
        log.warning("%s: %s", settings.name, remark)
    stage.note(audit=facts)
    for name in ("documents", "queries"):
        if name in facts:
            stage.metric(name, facts[name])


def open_folder(
    folder: str, files: Sequence[str], columns: Columns = COLUMNS, cut: Cut = CUT, section: str = "corpus"
) -> FolderReader:
    """Open files of a section of a user's folder, or the one file that it is."""
    root, paths = Path(folder), [Path(file) for file in files]
    reader: FolderReader = (
        FolderReader(FolderArchive(root, paths))
        if section != "corpus" or not is_loose(files, folder)
        else (LooseReader(LooseArchive(root.parent if root.is_file() else root, paths), cut))
    )
    reader.columns = columns
    return reader


def write_section(
    section: str,
    folder: str,
    files: Sequence[str],
    row: Collection,
    home: Path,
    columns: Columns = COLUMNS,
    cut: Cut = CUT,
) -> list[str]:
    """Write a section of a folder below the folder `home`, as the stages do; return remarks on how it was read.

    Raises:
        CollectionError: bad content, with file and line.
    """
    settings = SectionSettings(name=row.name, archive=folder, content=(), drop_missing=row.drop_missing)
    target = home if section == "corpus" else home / section
    target.mkdir(exist_ok=True)
    reader = open_folder(folder, files, columns, cut, section)
    return _write(section, reader, settings, target, home).get("remarks", [])


def _write(
    section: str, reader: FolderReader, settings: SectionSettings, target: Path, collection: Path | None
) -> dict[str, Any]:
    """Write one section and its `audit.json` to the folder `target`; return the facts."""
    expected = Content(name=settings.name, format=USER_FOLDER, drop_missing=settings.drop_missing)
    facts: dict[str, Any] = {"collection": settings.name, "kind": "own", "unpinned": True}
    changed = Listing()
    if section == "corpus":
        facts |= write_corpus(composed(reader.documents(), changed), {}, target / "corpus.parquet", expected)[1]
        del facts["overlap"]
    elif section == "queries":
        facts |= write_queries(composed(reader.queries(), changed), target / "queries.parquet", expected)[1]
    else:
        assert collection is not None
        facts |= {"splits": _write_judgements(reader, target, collection, expected)}
    remarks = reader.remarks
    if changed.count:
        facts["composed"] = changed.plain()
        remarks.append(f"{section}: letters and accents become one character (NFC) in {counted(changed.count, 'text')}")
    if remarks:
        facts["remarks"] = remarks
    write_json(target / "audit.json", facts)
    return facts


def composed(rows: Iterable[Row], changed: Listing) -> Iterator[Row]:
    """Write letters and their accents as one character (NFC) in the texts of rows; list the ids of changed ones."""
    for row in rows:
        new = row._replace(text=unicodedata.normalize("NFC", row.text))
        if isinstance(new, Document):
            new = new._replace(title=unicodedata.normalize("NFC", new.title))
        if new != row:
            changed.add(row.id)
        yield new


def _write_judgements(reader: FolderReader, target: Path, collection: Path, expected: Content) -> dict[str, Any]:
    documents, asked = IdIndex(), read_queries(collection)
    texts = dict(zip(asked["id"].to_pylist(), asked["text"].to_pylist(), strict=True))
    scan = TextScan(texts)
    for batch in read_corpus(collection):
        for row in batch.to_pylist():
            documents.add(row["id"], "corpus", 0)
            scan.add(row["id"], row["title"] or "", row["text"] or "")
    if not texts:
        raise CollectionError(expected.name, "holds judgements, but no queries", f"add queries.{SHORT}")
    return {split: write_split(reader, split, target, documents, texts, expected, scan) for split in reader.splits()}


def guess_language(folder: UserFolder) -> str:
    """Guess the language of the first documents; `en` for a bad file."""
    try:
        reader = open_folder(folder.path, folder.files["corpus"], folder.columns, folder.cut)
        documents = islice(reader.documents(), SAMPLE_DOCUMENTS)
        return language_of(f"{row.title} {row.text}"[:SAMPLE_CHARACTERS] for row in documents)
    except ZerodrError:
        return "en"
