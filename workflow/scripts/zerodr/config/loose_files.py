"""List the files of a folder that is no collection yet: text, web pages, PDF, Word, and tables, in any subfolder."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from zerodr.config.base import Settings
from zerodr.errors import ConfigError

TABLES = ("jsonl", "tsv", "csv", "jsonl.gz", "tsv.gz", "csv.gz", "parquet")  # a document for each row
TEXTS = ("txt", "text", "md", "markdown", "html", "htm", "xhtml", "pdf", "docx")
ABOUT_QUERIES = re.compile(r"(?i).*(query|queries|topics?\b|qrel|judg|relevance).*")
JUDGED = re.compile(r"(?i)(qrels?|judge?ments?|relevance)([ _.-].*)?")  # folders whose tables are no documents
QUERIES = {"query", "queries", "topics", "qrel", "qrels"}  # names of texts that are no documents
MOST_FILES, FEW = 100_000, 3
BYTES = {"pdf": 8_000, "docx": 4_000, "html": 3_000, "htm": 3_000, "xhtml": 3_000}  # of a passage, roughly
TEXT_BYTES = 900


class Cut(Settings):
    """How long texts are cut into passages, which begin at headings and end with sentences."""

    words: int = Field(default=150, ge=20, le=2000)
    """Words of a passage at most; two characters of Chinese or Japanese count as one. A longer sentence is cut."""
    overlap: int = Field(default=25, ge=0)
    """Words at most, in whole sentences, that a passage repeats of the one before."""


class Columns(Settings):
    """Columns of your tables, where their names say too little."""

    text: str = ""
    """Column of the text. Empty: `text` and its like, else the column with the longest texts."""
    title: str = ""
    """Column of the title. Empty: `title`, where there is one."""
    id: str = ""
    """Column of the id. Empty: `id` and its like, else file and row."""

    def names(self) -> set[str]:
        """Names that the user gives."""
        return {self.text, self.title, self.id} - {""}


COLUMNS, CUT = Columns(), Cut()


def is_table(path: str) -> bool:
    """True when each row of the file is a document."""
    return path.lower().endswith(tuple(f".{ending}" for ending in TABLES))


def loose_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """List the files with documents in a folder, sorted, and those that are not read; a file is its own list.

    Names that begin with a dot or Excel's `~$` count for nothing. Links to folders are not followed, and not read, as
    are files and folders that the user may not read.

    Raises:
        ConfigError: there are more than MOST_FILES.
    """
    if folder.is_file():
        return ([folder], []) if _ending(folder) in (*TABLES, *TEXTS) else ([], [folder])
    files: list[Path] = []
    shut: list[OSError] = []
    for home, inside, names in os.walk(folder, onerror=shut.append):
        inside[:] = [name for name in inside if _counts(name) and name != "qrels"]
        files += [Path(home, name) for name in names if _counts(name)]
        files += [path for name in inside if (path := Path(home, name)).is_symlink()]
        if len(files) > MOST_FILES:
            raise ConfigError(folder, f"holds more than {MOST_FILES:,} files", "write their texts to a corpus.jsonl")
    files += [Path(error.filename) for error in shut]
    judged = {path for path in files if is_table(path.name) and any(map(JUDGED.fullmatch, _parents(path, folder)))}
    read = [path for path in files if path not in judged and _is_read(path)]
    return sorted(read), sorted({*files} - {*read})


def _parents(path: Path, folder: Path) -> tuple[str, ...]:
    return path.relative_to(folder).parts[:-1]


def _counts(name: str) -> bool:
    return not name.startswith((".", "~$"))


def _is_read(path: Path) -> bool:
    ending = _ending(path)
    if not (os.access(path, os.R_OK) and path.is_file()):  # a link to nothing, or no permission
        return False
    if ending in TEXTS:
        return path.stem.lower() not in QUERIES
    return ending in TABLES and not ABOUT_QUERIES.fullmatch(path.name)


def _ending(path: Path) -> str:
    last = path.suffix.lower().removeprefix(".")
    return f"{path.with_suffix('').suffix.lower().removeprefix('.')}.gz" if last == "gz" else last


def estimated_passages(path: Path) -> int:
    """Passages that a file of TEXTS probably has, by its size."""
    size = path.stat().st_size
    return max(1, size // BYTES.get(_ending(path), TEXT_BYTES)) if size else 0


def by_ending(paths: Sequence[Path]) -> str:
    """Name few files, or count them by the ending of their names, in a clause: `4 .png and 2 .xlsx`."""
    if len(paths) <= FEW:
        return " and ".join(path.name for path in paths)
    counts = Counter(path.suffix.lower() or path.name for path in paths)
    clauses = [f"{count} {ending}" for ending, count in counts.most_common(5)]
    return " and ".join(clauses) + (" and others" if len(counts) > len(clauses) else "")
