"""List the files of users' own folders, describe each folder as a collection, and hold items of it out."""

import gzip
import hashlib
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zerodr.config.base import validate
from zerodr.config.files import refuse_braces
from zerodr.config.loose_files import COLUMNS, CUT, Columns, Cut, by_ending, estimated_passages, is_table, loose_files
from zerodr.config.quantities import first_names
from zerodr.config.registry import EVERY, NAME, Collection
from zerodr.errors import CollectionError, ConfigError

RESERVED = {"shared", "source", "target", "targets", "all", "model"}  # scopes, names in stages, first column of a table
SECTIONS = ("corpus", "queries", "judgements")
STEP = 8192  # bytes of a gzipped file that are read at once to estimate its lines
LINES = ("jsonl", "tsv", "csv")  # endings of files with lines, which may be gzipped
ENDINGS = (*LINES, "parquet")  # of corpus.* and queries.*
FORMS = (*ENDINGS, *(f"{ending}.gz" for ending in LINES))
CORPUS = {f"corpus.{form}" for form in FORMS}
KINDS = "txt, md, html, pdf, docx, csv, tsv, jsonl, parquet"
SHORT = f"{{{','.join(ENDINGS)}}}"
RENAME = "rename the folder, or set byo_name or adapt's --name"
JUDGED = (*ENDINGS, "txt", "trec", "qrels", "qrel")  # endings of judgements, which may be gzipped
SHARD = r"-\d+-of-\d+"  # of a data set of the hub: queries/queries-00000-of-00001.parquet
HUB = ("default", "data")  # where data sets of the hub, with queries/, have judgements if not in qrels/
OF_HUB = re.compile(r"(?P<table>.+?)-\d+-of-(?P<count>\d+)\.parquet")
JUDGEMENTS = re.compile(rf"(?P<split>.*?)(?:{SHARD})?\.(?:{'|'.join(JUDGED)})(?:\.gz)?")
AT_ROOT = re.compile(rf"qrels(?:[._-](?P<split>.+?))?\.(?:{'|'.join(JUDGED)})(?:\.gz)?")  # next to corpus.*
USUAL_SPLIT = "test"
LONGEST = 80  # letters of the names of collections and splits, which are parts of files' names
ABOUT = re.compile(r"(?i)(read.?me|licen[cs]e|changelog|notes?)\b.*|.*\.(md|rst|html?|py|sh|pdf)")
DATA = re.compile(r"(?i).*(corpus|collection|documents?|docs|passages?|query|queries|topic|qrel|judg|relevance).*")
DATA_ENDING = re.compile(
    r"(?i).*\.(jsonl?|ndjson|jl|jsonlines|tsv|csv|txt|tab|trec|qrels?|parquet|arrow|feather|xml|sgml?|xlsx?|ods|"
    r"zip|tar|tgz|gz|bz2|xz|zst|7z|db|sqlite|pkl|pickle|bak|old|orig)"
)


@dataclass(frozen=True)
class UserFolder:
    """The files of a user's own folder that are read, by section; others count for nothing.

    Attributes:
        path: the folder.
        files: paths by section of SECTIONS.
        digests: SHA-256 by path, where the contents were looked at.
        fault: place, problem and next step, where the contents can't be used.
        unread: names files that look like data and are not read, in a clause; empty: there are none.
        remarks: sentences on how the contents were read, where there is a choice.
        columns: of its tables, where the user names them.
        cut: how its texts are cut into passages.
    """

    path: str
    files: dict[str, tuple[str, ...]]
    digests: dict[str, str] = field(default_factory=dict)
    fault: tuple[str, str, str] | None = None
    unread: str = ""
    remarks: tuple[str, ...] = ()
    columns: Columns = COLUMNS
    cut: Cut = CUT

    @property
    def loose(self) -> bool:
        """True for plain files that are no collection (config/loose_files.py)."""
        return is_loose(self.files.get("corpus", ()), self.path)

    def content(self, section: str) -> list[str]:
        """Return the SHA-256 of each file; of plain files, which may be thousands, one of all with their names."""
        files = self.files.get(section, ())
        digests = [self.digests.get(file, "") for file in files]
        if section != "corpus" or not self.loose:
            return digests
        lines = (f"{os.path.relpath(file, self.path)}\t{digest}\n" for file, digest in zip(files, digests, strict=True))
        return [hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()]

    def check(self) -> None:
        """Raise a CollectionError when the contents can't be used."""
        if self.fault:
            raise CollectionError(*self.fault)


def split_folders(value: object) -> tuple[str, ...]:
    """Read `byo`: folders separated by commas, or one folder whose name holds commas; None: none. `~` is expanded."""
    texts = value if isinstance(value, list | tuple) else [] if value is None else [value]
    words = [word for text in map(str, texts) for word in ([text] if _is_folder(text) else text.split(","))]
    return tuple(dict.fromkeys(_expanded(word) for word in words if word.strip()))


def _is_folder(text: str) -> bool:
    return Path(text).is_dir() or Path(text).expanduser().is_dir()


def _expanded(text: str) -> str:
    """Return a folder's path as it is, else without blanks around it and with `~` expanded."""
    return str(Path(text)) if Path(text).is_dir() else str(Path(text.strip()).expanduser())


def is_loose(files: Sequence[str], folder: str = "") -> bool:
    """True for files of documents that are no `corpus.*` of a folder; a file that is given alone may have that name."""
    return any(file == folder or Path(file).name not in CORPUS for file in files)


def find_files(folder: Path) -> dict[str, tuple[str, ...]]:
    """List the files that are read, by section; without a `corpus.*`, its plain files are the documents."""
    sections = {section: [folder / f"{section}.{ending}" for ending in FORMS] for section in SECTIONS[:2]}
    judged, shards = _listed(folder) + _listed(folder / "qrels"), _shards(folder / "queries")
    if shards:
        sections["queries"] += shards
        judged += [path for name in HUB for path in _shards(folder / name)]
    sections["judgements"] = [path for path in judged if split_of(path)]
    files = {section: tuple(str(path) for path in paths if path.is_file()) for section, paths in sections.items()}
    if not files["corpus"]:
        taken = {path for paths in files.values() for path in paths}
        documents = (_shards(folder / "corpus") if shards else []) or loose_files(folder)[0]
        files["corpus"] = tuple(path for path in map(str, documents) if path not in taken)
    return {section: paths for section, paths in files.items() if paths}


def split_of(path: Path) -> str:
    """Return the split whose judgements a file of a folder holds; empty: its name is none of judgements."""
    inside = path.parent.name in ("qrels", *HUB) and path.name.partition(".")[0] not in SECTIONS
    match = (JUDGEMENTS if inside else AT_ROOT).fullmatch(path.name)
    if match is None or (inside and ABOUT.fullmatch(path.name)):
        return ""
    return match["split"] or USUAL_SPLIT


def _shards(folder: Path) -> list[Path]:
    """List the files that the hub's data sets have in a subfolder."""
    return [path for path in _listed(folder) if OF_HUB.fullmatch(path.name)]


def shards_of(path: Path) -> tuple[Path, int] | None:
    """Return the table that a file of a data set of the hub is a shard of, and the number of its shards.

    >>> shards_of(Path("queries/queries-00001-of-00002.parquet"))
    (PosixPath('queries/queries'), 2)
    """
    match = OF_HUB.fullmatch(path.name)
    return None if match is None else (path.parent / match["table"], int(match["count"]))


def _refuse_absent_shards(folder: Path, files: Iterable[str]) -> None:
    """Refuse a data set of the hub that was not downloaded as a whole."""
    numbers = Counter(shards_of(Path(file)) for file in files)
    for shards, number in numbers.items():
        table, count = shards or (folder, number)
        if number != count:
            problem = f"holds {number} of the {count} files {table.relative_to(folder)}-*.parquet"
            raise ConfigError(f"byo={folder}", problem, "download the others, too")


def _listed(folder: Path) -> list[Path]:
    """List a folder, sorted; no folder is empty. Names that begin with a dot, or Excel's `~$`, count for nothing."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "~$")))
    except OSError:
        return []


def unread_files(folder: Path) -> list[str]:
    """List what looks like documents, queries or judgements, but has a name or form that is not read."""
    read = {path for paths in find_files(folder).values() for path in paths}
    inside = [path for path in _listed(folder / "qrels") if str(path) not in read and not _about(path)]
    names = [f"qrels/{path.name}{'/' * path.is_dir()}" for path in inside]
    for path in _listed(folder):
        if path.is_dir():
            names += [f"{path.name}/"] if path.name != "qrels" and DATA.fullmatch(path.name) else []
        elif str(path) not in read and not _about(path):
            names += [path.name] if (DATA_ENDING if path.suffix else DATA).fullmatch(path.name) else []
    return sorted(names)


def _about(path: Path) -> bool:
    return ABOUT.fullmatch(path.name) is not None


def not_read(folder: Path) -> str:
    """Return `not read: ` with the first of `unread_files`; empty: there are none."""
    files = find_files(folder)
    if "corpus" in files and not is_loose(files["corpus"]):
        names = unread_files(folder)
        return f"not read: {first_names(names)}" if names else ""
    read = {path for paths in files.values() for path in paths}
    texts, others = loose_files(folder)
    others = [path for path in (*others, *(path for path in texts if not _about(path))) if str(path) not in read]
    return f"not read: {by_ending(others)}" if others else ""


def read_folders(
    folders: Sequence[str],
    taken: dict[str, Collection],
    language: str | None,
    switches: dict[str, bool],
    chosen: str | None = None,
    columns: Columns = COLUMNS,
    cut: Cut = CUT,
) -> tuple[dict[str, Collection], dict[str, UserFolder]]:
    """Describe folders as collections, by name. Counts are unknown: no number is compared with a published one.

    Args:
        folders: their paths.
        taken: the registry.
        language: of the texts; None: guessed later.
        switches: values of the rows, such as `drop_missing`.
        chosen: name of the one folder; None: its own.
        columns, cut: how plain files are read.

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
        files: dict[str, tuple[str, ...]] = find_files(folder) if os.access(folder, os.R_OK) else {"corpus": (path,)}
        if locked := next((file for paths in files.values() for file in paths if not os.access(file, os.R_OK)), ""):
            raise ConfigError(locked, "can't be read: you have no permission", "change its permissions, or remove it")
        if (corpus := files.get("corpus", ())) and not is_loose(corpus, path) and Path(corpus[0]).parent != folder:
            inner = sorted({str(Path(file).parent) for file in corpus})
            problem = f"holds no corpus, its subfolders do: {first_names(inner)}"
            raise ConfigError(f"byo={folder}", problem, "give one of them, or several folders")
        documents = estimated_documents(folder)
        if not documents:
            problem = f"holds no documents ({KINDS})" if documents is None else "holds empty files alone"
            unread = not_read(folder)
            step = "convert one (docs/own-corpus.md)" if unread else "put documents there"
            raise ConfigError(f"byo={folder}", f"{problem}; {unread}" if unread else problem, step)
        folders_by_name[name] = UserFolder(path, files, unread=not_read(folder), columns=columns, cut=cut)
        for paths in files.values():
            refuse_braces(paths)
        if any(map(OF_HUB.search, files.get("queries", ()))):
            _refuse_absent_shards(folder, [file for paths in files.values() for file in paths])
        judged = files.get("judgements", ())
        splits = sorted({split_of(Path(file)) for file in judged})
        if long := next((split for split in splits if len(split) > LONGEST), ""):
            raise ConfigError(f"byo={folder}", f"the split {long:.20}... has more than {LONGEST} letters", "rename it")
        if EVERY in splits:
            named = next(file for file in judged if split_of(Path(file)) == EVERY)
            raise ConfigError(f"byo={folder}", f"a split can't be named {EVERY!r}", f"rename {named}")
        row = {
            "name": name,
            "label": chosen or label_of(folder),
            "kind": "own",
            "format": "folder",
            "archive": str(folder),
            "splits": dict.fromkeys(splits),
            "evaluation_split": min(splits, key=split_rank, default=""),
            "estimated_documents": documents,
            "language": language or "en",
        } | switches
        rows[name] = validate(Collection, row, f"byo={folder}")
    return rows, folders_by_name


def label_of(folder: Path) -> str:
    """Return a folder's name; a file's without its ending."""
    return folder.name.partition(".")[0] or folder.name if folder.is_file() else Path(os.path.abspath(folder)).name


def split_rank(split: str) -> tuple[int, str]:
    """Order splits: test, dev, other names of tests, others, those of training."""
    name = split.lower()
    names = (name == "test", name == "dev", "test" in name, re.match("dev|val", name), not name.startswith("train"))
    return next((rank for rank, fits in enumerate(names) if fits), len(names)), split


def _name_of(folder: Path, taken: dict[str, Collection], chosen: str | None) -> str:
    """Make a name from the chosen one or the folder's: small letters, blanks as hyphens."""
    where, name = f"byo={folder}", (chosen or label_of(folder)).lower().replace(" ", "-")
    if name in taken:
        other = "another folder" if taken[name].kind == "own" else "the registry"
        raise ConfigError(where, f"{other} already has a collection named {name!r}", RENAME)
    if not folder.exists():
        raise ConfigError(where, "does not exist", "give a folder or a file with documents")
    if name in RESERVED | _words(taken.values()):
        raise ConfigError(where, f"the name {name!r} has another meaning here", RENAME)
    if not re.fullmatch(NAME, name) or len(name) > LONGEST:
        step = f"{RENAME}: at most {LONGEST} small letters, digits, . @ _ -, the first a letter or digit"
        raise ConfigError(where, f"the name {name!r} can't be part of a path", step)
    return name


def _words(rows: Iterable[Collection]) -> set[str]:
    """Names of columns and column groups."""
    return {word for row in rows for word in (row.column, *row.groups)}


SAMPLES, SAMPLE_BYTES = 16, 1 << 16
PARQUET_BYTES = 500  # compressed bytes of a document with about 1,000 letters


def estimated_documents(folder: Path) -> int | None:
    """Documents of the corpus in `folder`, or passages and rows of its plain files; None without such a file.

    Lines: as many as in samples spread over the file, for its size; a file of at most 1 MiB is counted exactly.
    Gzipped lines: as many as in the first MiB, for its compressed size. Parquet: a document for each PARQUET_BYTES. The
    same bytes give the same number.
    """
    files = [Path(file) for file in find_files(folder).get("corpus", ())]
    if not files:
        return None
    return sum(_rows(path) if is_table(path.name) else estimated_passages(path) for path in files[: _corpora(files)])


def _corpora(files: Sequence[Path]) -> int:
    """Plain files all count, of several `corpus.*` (a fault) the first."""
    return len(files) if is_loose([str(path) for path in files]) else 1


def _rows(path: Path) -> int:
    size = path.stat().st_size
    if path.name.endswith(".gz"):
        return _packed_lines(path, size)
    return -(-size // PARQUET_BYTES) if path.suffix == ".parquet" else _lines(path, size)


class _Steps(io.FileIO):
    """A file that is read in small steps, so that its position is that of what was unpacked: Pythons read ahead.

    >>> with _Steps(__file__) as stream:
    ...     len(stream.read(100)), len(stream.read(1 << 20)) <= STEP
    (100, True)
    """

    def read(self, size: int | None = -1) -> bytes:
        """Read at most STEP bytes."""
        return super().read(STEP if size is None or size < 0 else min(size, STEP))


def _packed_lines(path: Path, size: int) -> int:
    """Estimate the lines of a gzipped file; one that is damaged has one, so that its reader says so."""
    try:
        with _Steps(path) as packed, gzip.open(packed) as stream:
            text = stream.read(SAMPLES * SAMPLE_BYTES)
            lines, read, more = _count(text), packed.tell(), bool(stream.read(1))
    except (OSError, EOFError, zlib.error):
        return 1
    return max(1, round(lines * size / max(read, 1))) if more else lines


def _count(text: bytes) -> int:
    return text.count(b"\n") + (not text.endswith(b"\n")) if text else 0


def _lines(path: Path, size: int) -> int:
    with open(path, "rb") as stream:
        if size <= SAMPLES * SAMPLE_BYTES:
            return _count(stream.read())
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
            held_out = {
                "kind": "proxy",
                "exclude_self": False,
                "name": proxy,
                "label": f"{row.label} (proxy)",
                "held_out_of": name,
            }
            judged = {"splits": {SPLIT: None}, "evaluation_split": SPLIT, "queries": None, "archive": ""}
            added[proxy] = row.model_copy(update=held_out | judged)
    return added
