"""Convert a user's own folder in three stages, so that a new judgement leaves the index and a new query the documents.

The sections are folder artifacts inside that of the corpus: `queries/` and `judgements/`, each with its `audit.json`.
Letters and their accents become one character (NFC) in documents and queries, so that they meet however they were
typed; published collections stay as they are published.
The language of a folder is guessed by its first documents.
"""

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import regex

from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import read_corpus, read_queries
from zerodr.collections.archives import FolderArchive
from zerodr.collections.audit import USER_FOLDER, IdIndex, Listing, TextScan
from zerodr.collections.normalize import write_corpus, write_queries, write_split
from zerodr.collections.readers.base import Document, Query
from zerodr.collections.readers.folder import FolderReader
from zerodr.collections.readers.loose import LooseArchive, LooseReader
from zerodr.config.base import Settings, validate
from zerodr.config.loose_files import COLUMNS, CUT, Columns, Cut
from zerodr.config.quantities import counted
from zerodr.config.registry import UNKNOWN, Collection, Content
from zerodr.config.user_folders import SHORT, UserFolder, is_loose
from zerodr.errors import CollectionError, ZerodrError

SCRIPTS = {  # by their first names in Unicode
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
MARKS = {
    "ru": {"ru": "ыэё", "uk": "іїєґ", UNKNOWN: "ўјљњђћџѓќѕәғқңөұүһӣӯҳҷ"},
    "ar": {"ar": "يكةىأإ", "fa": "پچژگکی", UNKNOWN: "ٹڈڑںھےہۃټډړږښڼېەڕڵۆێۇۈۋ"},
    "hi": {"hi": "", UNKNOWN: "ळ"},
    "bn": {"bn": "", UNKNOWN: "ৰৱ"},
}
"""Letters by language, for languages of one script. Those of UNKNOWN are of languages such as Serbian and Urdu."""
UNKNOWN_SHARE = 0.003
"""Share of a script's letters above which letters of UNKNOWN decide."""
SMALL_WORDS = {
    "en": "the of and to is in that for with was are this from by be as it on not which",
    "da": "og det at en den til er som på de med af for ikke der var et har også efter blev bliver mod",
    "de": "der die und das ist den von zu mit sich des auf für nicht ein eine dem auch wird bei werden oder",
    "es": "de la que el en los del se las por un para con una su al es como más pero o son",
    "fi": "ja on ei se että oli joka mutta ovat myös kuin sen hän tai sekä ole voi jos kun",
    "fr": "de la le et les des en un du une que est pour qui dans par plus pas au sur sont aux avec",
    "hu": "az és hogy nem is egy van meg ez csak de volt mint vagy már azt el még",
    "id": "yang dan di dengan untuk tidak dari dalam ini akan pada adalah itu oleh ke juga atau",
    "it": "di e il la che in un per una del non sono le con si da al come dei più gli della anche",
    "nl": "de het een van en in is dat op te zijn met voor niet aan er ook als door wordt om bij",
    "no": "og det at en den til er som på de med av for ikke var et har også etter ble blir mot fra",
    "pl": "w się nie że jest to o od po przez dla są oraz jak co jego był może",
    "pt": "de a o que e do da em um para com não uma os no se na por mais as dos é ao",
    "sv": "och det att en den till är som på de med av för inte var ett har också efter blev från",
    "tr": "bir ve bu için ile olarak çok daha olan gibi de da en kadar sonra ne ya o var",
}
LETTERS = {
    "da": "æøåé",
    "de": "äöüßé",
    "es": "áéíóúüñ",
    "fi": "äöåšž",
    "fr": "àâæçéèêëîïôœùûüÿ",
    "hu": "áéíóöőúüű",
    "id": "é",
    "it": "àèéìíòóùú",
    "nl": "áéèêëíïóöúü",
    "no": "æøåéèòóô",
    "pl": "ąćęłńóśźż",
    "pt": "áâãàçéêíóôõúü",
    "sv": "åäöé",
    "tr": "çğıiöşüâîû\u0307",
}
"""Letters of these languages other than a to z."""
STRANGE_SHARE = 0.01
"""Share of letters that a language does not have, above which a text is not in it."""
LEAST_WORDS, WORDS_SHARE, AHEAD = 20, 0.08, 1.25
"""Another Latin language than English needs so many words, this share of small ones, and so many times English's."""
FOREIGN_SHARE = 0.04
"""Share of letters other than a to z from which a text with few small words is of no language known here."""
_WORD = regex.compile(r"\p{L}+")
_NO_SCRIPT = regex.compile(r"[\p{Script=Common}\p{Script=Inherited}\p{Script=Latin}]")


def language_of(texts: Iterable[str]) -> str:
    """Return the language that the letters and small words speak for, UNKNOWN where no analyser knows it; else `en`."""
    text = unicodedata.normalize("NFC", " ".join(texts)).lower()
    counts = Counter({letter: count for letter, count in Counter(text).items() if letter.isalpha()})
    scripts: Counter[str] = Counter()
    for letter, count in counts.items():
        if not _NO_SCRIPT.match(letter):
            name = unicodedata.name(letter, "").partition(" ")[0].partition("-")[0]
            scripts[SCRIPTS.get(name, UNKNOWN)] += count
    letters = counts.total()
    if scripts["ja"] and scripts["ja"] >= letters * SHARE / 4:
        return "ja"
    best, count = max(scripts.items(), key=lambda item: item[1], default=("", 0))
    if not count or count < letters * (0.5 if best == UNKNOWN else SHARE):
        return _by_words(text, counts)
    return _by_marks(best, counts, count)


def _by_marks(script: str, counts: Counter[str], letters: int) -> str:
    """Return the language of a script by the letters that the others don't have."""
    marks = {language: sum(counts[letter] for letter in signs) for language, signs in MARKS.get(script, {}).items()}
    if marks.pop(UNKNOWN, 0) > letters * UNKNOWN_SHARE:
        return UNKNOWN
    return max(marks, key=lambda language: marks[language], default=script)


def _by_words(text: str, counts: Counter[str]) -> str:
    """Return the language of Latin letters by its small words; `en` without clear signs of another one."""
    words = Counter(_WORD.findall(text))
    total = words.total()
    if total < LEAST_WORDS:
        return "en"
    shares = {name: sum(words[word] for word in signs.split()) / total for name, signs in SMALL_WORDS.items()}
    letters = max(counts.total(), 1)

    def strange(signs: str) -> float:
        return sum(n for letter, n in counts.items() if not letter.isascii() and letter not in signs) / letters

    others = [name for name, signs in LETTERS.items() if strange(signs) <= STRANGE_SHARE]
    best = max(others, key=lambda name: shares[name], default="en")
    if best != "en" and shares[best] >= max(WORDS_SHARE, AHEAD * shares["en"]):
        return best
    return UNKNOWN if strange("") >= FOREIGN_SHARE and shares["en"] < WORDS_SHARE else "en"


def language_of_first(documents: Iterable[Document]) -> str:
    """Return the language of a corpus by its first documents."""
    rows = islice(documents, SAMPLE_DOCUMENTS)
    return language_of(f"{row.title} {row.text}"[:SAMPLE_CHARACTERS] for row in rows)


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
        return language_of_first(reader.documents())
    except ZerodrError:
        return "en"
