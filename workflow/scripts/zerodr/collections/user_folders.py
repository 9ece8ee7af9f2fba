"""Convert a user's own folder in three stages, so that a new judgement leaves the index and a new query the documents.

The sections are folder artifacts inside that of the corpus: `queries/` and `judgements/`, each with its `audit.json`.
The language of a folder is guessed by the script of its documents.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids, read_queries
from zerodr.collections.archives import FolderArchive
from zerodr.collections.audit import Expected, IdIndex
from zerodr.collections.normalize import write_corpus, write_queries, write_split
from zerodr.collections.readers.base import Reader
from zerodr.collections.readers.beir import FolderReader
from zerodr.config.base import Settings, validate
from zerodr.config.registry import Collection
from zerodr.config.user_folders import UserFolder
from zerodr.errors import CollectionError, ZerodrError

SAMPLE_DOCUMENTS, SAMPLE_CHARACTERS = 200, 2000
SCRIPTS = {  # by their first names in Unicode; Latin letters are no sign of a language
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "CJK": "zh",
    "HANGUL": "ko",
    "CYRILLIC": "ru",
    "ARABIC": "ar",
    "DEVANAGARI": "hi",
    "BENGALI": "bn",
    "TELUGU": "te",
    "THAI": "th",
}
SHARE = 0.2
"""Share of the letters from which a script decides; Japanese needs a quarter of it in Kana."""


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
    facts = _write(section, open_folder(settings.archive, files), settings, stage.output("section"), collection)
    stage.note(audit=facts)
    for name in ("documents", "queries"):
        if name in facts:
            stage.metric(name, facts[name])


def open_folder(folder: str, files: Sequence[str]) -> Reader:
    """Open files of a user's folder."""
    return FolderReader(FolderArchive(Path(folder), [Path(file) for file in files]))


def write_section(section: str, folder: str, files: Sequence[str], row: Collection, home: Path) -> None:
    """Write a section of a folder below the folder `home`, as the stages do.

    Raises:
        CollectionError: bad content, with file and line.
    """
    settings = SectionSettings(name=row.name, archive=folder, content=(), drop_missing=row.drop_missing)
    target = home if section == "corpus" else home / section
    target.mkdir(exist_ok=True)
    _write(section, open_folder(folder, files), settings, target, home)


def _write(
    section: str, reader: Reader, settings: SectionSettings, target: Path, collection: Path | None
) -> dict[str, Any]:
    """Write one section and its `audit.json` to the folder `target`; return the facts."""
    expected = Expected(settings.name, drop_missing=settings.drop_missing)
    facts: dict[str, Any] = {"collection": settings.name, "kind": "own", "unpinned": True}
    if section == "corpus":
        facts |= write_corpus(reader.documents(), {}, target / "corpus.parquet", expected)[1]
        del facts["overlap"]
    elif section == "queries":
        facts |= write_queries(reader.queries(), target / "queries.parquet", expected)[1]
    else:
        assert collection is not None
        facts |= {"splits": _write_judgements(reader, target, collection, expected)}
    write_json(target / "audit.json", facts)
    return facts


def _write_judgements(reader: Reader, target: Path, collection: Path, expected: Expected) -> dict[str, Any]:
    documents, asked = IdIndex(), read_queries(collection)
    for key in corpus_ids(collection):
        documents.add(key.as_py(), "corpus", 0)
    texts = dict(zip(asked["id"].to_pylist(), asked["text"].to_pylist(), strict=True))
    if not texts:
        raise CollectionError(expected.name, "holds judgements, but no queries", "add queries.{jsonl,tsv,parquet}")
    return {split: write_split(reader, split, target, documents, texts, expected) for split in reader.splits()}


def guess_language(folder: UserFolder) -> str:
    """Guess the language of the first documents by their script; `en` for Latin letters, and for a bad file."""
    try:
        documents = islice(open_folder(folder.path, folder.files["corpus"]).documents(), SAMPLE_DOCUMENTS)
        return language_of(f"{row.title} {row.text}"[:SAMPLE_CHARACTERS] for row in documents)
    except ZerodrError:
        return "en"


def language_of(texts: Iterable[str]) -> str:
    """Return the language whose script has at least SHARE of the letters; `en` without one."""
    counts: Counter[str] = Counter()
    letters = 0
    for letter, count in Counter("".join(texts)).items():
        if letter.isalpha():
            letters += count
            counts[SCRIPTS.get(unicodedata.name(letter, "").partition(" ")[0].partition("-")[0], "")] += count
    del counts[""]
    if counts["ja"] >= letters * SHARE / 4 and counts["ja"]:
        return "ja"
    best, count = max(counts.items(), key=lambda item: item[1], default=("en", 0))
    return best if count and count >= letters * SHARE else "en"
