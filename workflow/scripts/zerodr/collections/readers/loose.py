"""Read documents from plain files (config/loose_files.py): a passage of a text, or a row of a table."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import IO, Any

from zerodr.collections.archives import FolderArchive, Location, marked_encoding
from zerodr.collections.cutting import cut
from zerodr.collections.readers.base import Document, text_of
from zerodr.collections.readers.folder import (
    EMPTY,
    ROLES,
    SAMPLE,
    SECOND,
    WORD,
    FolderReader,
    fields_of,
    is_header,
)
from zerodr.collections.readers.tables import Named, form_of, plain, read_objects, read_rows
from zerodr.collections.texts import SAMPLE_BYTES, Unreadable, blocks_of, encoding_of
from zerodr.config.loose_files import Cut, is_table
from zerodr.config.quantities import counted, first_names
from zerodr.config.user_folders import shards_of
from zerodr.errors import CollectionError

HEADINGS = ("heading", "headline", "subject")  # columns that are titles, where there is no `title`
ANSWERS = ("answer", "answers", "response", "reply")  # texts whose title is a column `question`
FEWEST = 5  # rows below a first one of several words that show that it names columns
MOST_BYTES = 1 << 26
ROW = "row of the table"  # stands for a column that a table lacks
JUDGED = "holds judgements or a ranking, no documents; judgements are read from qrels/, next to queries.*"
CODE, ID = re.compile("[!-~]+"), re.compile("[!-~]*[0-9_:<>][!-~]*")  # without blanks; and no word of a language
GRADE, Q0 = re.compile(r"[Qq]0|[+-]?\d{1,3}(?:\.\d*)?"), re.compile("[Qq]0")  # grade, rank or round; TREC's constant
NUMBER = re.compile(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?|(?i:true|false|none)")
TREC_LINE = re.compile(
    r"\S+\s+(?:[Qq]0\s+\S+|0\s+(?=\S*[0-9_:<>])\S+)\s+-?\d+(?:\.\d*)?(?:\s+\S+\s+\S+)?"
    r"|(?:(?=[^\s,]*[0-9_:<>])[^\s,]+[\t,]){2}-?\d{1,3}(?:\.\d*)?"
)


class LooseArchive(FolderArchive):
    """Files of a folder that is no collection: its tables are UTF-8 whatever they were; `guessed` says of which."""

    def __init__(self, root: Path, files: list[Path]) -> None:
        super().__init__(root, files)
        self.guessed: dict[str, str] = {}

    def encoding_of(self, member: str, stream: IO[bytes]) -> str:
        """Return the encoding of a table by its first MOST_BYTES; other files are decoded where they are cut."""
        if not is_table(member) or member.lower().endswith("parquet"):
            return "utf-8"
        try:
            encoding, remark = encoding_of(stream.read(MOST_BYTES))
        except Unreadable as error:
            raise CollectionError(f"{self.name}/{member}", str(error), "save it as UTF-8, or remove it") from None
        if encoding != "utf-8":
            self.guessed |= {member: remark} if remark else {}
        return encoding


class LooseReader(FolderReader):
    """Reader of files that are no collection: long texts are cut into passages, which know their file and place.

    The id of a passage is its file with `#<number>`, of a PDF with `#page=<page>`; equal passages are read once.
    """

    archive: LooseArchive

    def __init__(self, archive: LooseArchive, size: Cut) -> None:
        super().__init__(archive)
        self.size = size
        self._holes: dict[str, str] = {}
        self._pictures: list[str] = []
        self._repeated = self._empty = self._bare = 0

    @property
    def remarks(self) -> list[str]:
        """Sentences on how the files were read, as far as they were, and on those that could not be."""
        holes = [f"not read: {file}: {reason}" for file, reason in islice(self._holes.items(), 5)]
        if len(self._holes) > len(holes):
            holes.append(f"not read: {first_names(list(self._holes)[len(holes) :])}")
        if self._pictures:
            holes.append(f"not read: pages that are pictures (run OCR first): {first_names(self._pictures)}")
        again = [f"{counted(self._repeated, 'passage')} with the text of another left out"] if self._repeated else []
        empty = [f"{counted(self._empty, 'row')} without a text left out"] if self._empty else []
        bare = [f"{counted(self._bare, 'row')} with a title and no text"] if self._bare else []
        return [*super().remarks, *holes, *again, *empty, *bare]

    def documents(self) -> Iterator[Document]:
        """Read the rows of tables and the passages of texts, file by file in the order of their names.

        Raises:
            CollectionError: a table can't be read, or no file can.
        """
        self._holes.clear()
        self._pictures.clear()
        self._repeated = self._empty = self._bare = 0
        some, texts = False, set[int]()
        for member in self.archive.names():
            rows = self._table_documents(member) if is_table(member) else self._passages(member)
            for row in rows:
                key = hash((row.title, row.text))
                if not is_table(member) and key in texts:
                    self._repeated += 1
                else:
                    texts.add(key)
                    some = True
                    yield row
        if not some:
            why = "; ".join(self.remarks)[:300]
            raise CollectionError(self.archive.name, f"holds no text{f' ({why})' if why else ''}", "add documents")

    def _passages(self, member: str) -> Iterator[Document]:
        """Cut the text of one file; a file that can't be read is a hole, which `remarks` name."""
        try:
            with self.archive.open(member) as stream:
                data = stream.read()
            blocks, remark = blocks_of(PurePosixPath(member).suffix.lower(), data)
        except (Unreadable, OSError) as error:
            self._holes[member] = str(error)
            return
        if is_trec(data):
            self._holes[member] = JUDGED
            return
        pdf = member.lower().endswith(".pdf")
        if remark and not pdf:
            self._remarks[f"{member}: {remark}"] = None
        some = False
        where = Location(f"{self.archive.name}/{member}", 1)
        for passage in cut(blocks, PurePosixPath(member).stem, self.size):
            some = True
            yield Document(f"{member}#{passage.fragment}", passage.title, passage.text, *where)
        if not some:
            self._holes[member] = "holds no text (pictures of pages? run OCR first)" if pdf else "holds no text"
        elif remark and pdf:
            self._pictures.append(f"{member} {remark}")

    def _table_documents(self, member: str) -> Iterator[Document]:
        rows = self._named_rows(member)
        first = list(islice(rows, SAMPLE))
        if not first:
            self._holes[member] = "is empty"
            return
        names = list(dict.fromkeys(name for _, value in first for name in value))
        if not self.columns.names() and are_judgements(names, [value for _, value in first]):
            self._holes[member] = f"{JUDGED} (columns {', '.join(names)}; --text reads them as documents)"
            return
        key, text, title = self._chosen(member, names, [value for _, value in first])
        others = [name for name in names if name not in (key, text, title)]
        hub = key and shards_of(Path(member))  # such a row is a document of BEIR's, which may be judged
        known = f"{member}: text is column {text!r}, title {title or 'none'!r}, id {key or ROW!r}"
        if remark := self.archive.guessed.get(member):
            self._remarks[f"{member}: {remark}"] = None
        self._remarks[f"{known}{f'; not read: {first_names(others)}' if others else ''} (--text, --title, --id)"] = None
        for number, (location, value) in enumerate(chain(first, rows), 1):
            name = _text(value.get(key), location, key) if key else f"{member}#{number}"
            heading, body = (_text(value.get(field) if field else None, location, field) for field in (title, text))
            if not (heading + body).strip() and not hub:
                self._empty += 1
                continue
            self._bare += bool(heading.strip()) and not body.strip()
            yield Document(name, heading, body, *location)

    def _chosen(self, member: str, names: Sequence[str], sample: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
        """Return the columns of id, text and title: as given, else by their names; else the text is the longest one.

        Raises:
            CollectionError: a given column is absent, or none holds text.
        """
        self._refuse_absent(member, names)
        by_name = fields_of(names, "corpus")
        length = {name: sum(len(str(value.get(name) or "")) for value in sample) for name in names}
        worded = [name for name in names if are_words([value.get(name) for value in sample])]
        text = self.columns.text or by_name.text or max(worded or names, key=lambda name: length[name])
        headings = (*HEADINGS, "question") if text.strip().lower() in ANSWERS else HEADINGS
        heading = next((name for name in names if name.strip().lower() in headings), "")
        key, title = self.columns.id or by_name.id, self.columns.title or by_name.title or heading
        if not length[text]:
            problem = f"column {text!r} is empty in the first {len(sample)} rows"
            raise CollectionError(f"{self.archive.name}/{member}", problem, "name the text's: --text COLUMN")
        return key if key != text else "", text, title if title != text else ""

    def _named_rows(self, member: str) -> Iterator[Named]:
        """Read location and values by column of each row; a table without a header has `column 1`, ..."""
        if form_of(member.lower()) in ("jsonl", "parquet"):
            yield from read_objects(self.archive, member)
            return
        rows = read_rows(self.archive, member)
        if (first := next(rows, None)) is None:
            return
        names, sample = first[1], list(islice(rows, SAMPLE))
        rows = chain(sample, rows)
        known = self.columns.names() & {*names} or is_header(names)
        words = all(WORD.fullmatch(name.strip()) for name in names)
        if not (known or words or differs(names, [cells for _, cells in sample])):
            rows, names = chain([first], rows), [f"column {number}" for number in range(1, len(names) + 1)]
        names = [f"{name} (column {n})" if name in names[: n - 1] else name for n, name in enumerate(names, 1)]
        for location, cells in rows:
            if len(cells) != len(names):
                problem = f"expected {len(names)} cells, found {len(cells)}"
                raise CollectionError(":".join(map(str, location)), problem, "put quotation marks around the cell")
            yield location, dict(zip(names, cells, strict=True))


def are_words(values: Sequence[object]) -> bool:
    """Test whether most values of a column, empty ones aside, are texts, no lists, addresses or sums of files.

    >>> are_words(["Pumps move fluid.", "ポンプ"]), are_words(["https://example.org/a-long-one", [0.1, 0.2]])
    (True, False)
    """
    some = [value for value in values if value not in EMPTY and value == value]
    return 2 * sum(isinstance(value, str) and CODE.fullmatch(value.strip()) is None for value in some) > len(some)


def differs(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Test whether a first row is of another kind than those below, so that it names columns.

    In one column, all others are numbers or are more than twice as long.

    >>> rows = [["3.5", "The pump of the second floor does not start."]] * FEWEST
    >>> differs(["Rating (1-5)", "What went wrong?"], rows), differs(["4", "The pump."], rows[1:])
    (True, False)
    """
    if len({*names}) < len(names):
        return False
    for column, name in enumerate(names):
        cells = [row[column].strip() for row in rows if len(row) == len(names) and row[column].strip()]
        if len(cells) < FEWEST or not name.strip() or NUMBER.fullmatch(name.strip()):
            continue
        if all(map(NUMBER.fullmatch, cells)) or min(map(len, cells)) > 2 * len(name):
            return True
    return False


def are_judgements(names: Sequence[str], sample: Sequence[dict[str, Any]]) -> bool:
    """Test whether rows are judgements or a ranking: ids and numbers, under such names or without names.

    >>> are_judgements(["qid", "docid", "rel"], [{"qid": "q1", "docid": "d7", "rel": 1}])
    True
    >>> are_judgements(["id", "title", "text"], [{"id": "1", "title": "Sepsis", "text": "Give fluids."}])
    False
    """
    cells = {name: [str(value.get(name, "")).strip() for value in sample] for name in names}

    def mostly(name: str, form: re.Pattern[str]) -> bool:
        return 2 * sum(form.fullmatch(cell) is not None for cell in cells[name]) > len(sample)

    named = {role: {name for name in names if plain(name) in known} for role, known in ROLES.items()}
    ids = {name for name in named["query"] | named["document"] if plain(name) not in SECOND}
    if any(named.values()):
        others = {*names} - ids
        if fields_of(names, "corpus").text or not all(mostly(name, CODE) for name in others):
            return False
        if not (ids & named["query"] and ids & named["document"]):
            unsure = others & (named["query"] | named["document"])
            graded = any(mostly(name, NUMBER) for name in named["grade"])
            return all(named.values()) and graded and all(mostly(name, ID) for name in unsure)
        return bool(named["grade"]) or all(mostly(name, NUMBER) or len({*cells[name]}) == 1 for name in others)
    if len(names) == 1:
        return mostly(names[0], TREC_LINE)
    if len(names) not in (3, 4, 6) or not all(mostly(name, CODE) for name in names):
        return False
    forms = (ID, ID, GRADE) if len(names) == 3 else (ID, GRADE, ID, GRADE)
    if len(names) > 3 and mostly(names[1], Q0):
        forms = (CODE, Q0, CODE, GRADE)
    return all(mostly(name, form) for name, form in zip(names, forms, strict=False))


def is_trec(text: bytes) -> bool:
    """Test whether a text holds lines of judgements or of a ranking; the first may be a header."""
    start = text[:SAMPLE_BYTES].decode(marked_encoding(text) or "latin-1", "replace")
    lines = [line for line in map(str.strip, start.split("\n")[:SAMPLE]) if line]
    return bool(lines) and all(TREC_LINE.fullmatch(line) for line in lines[1:] or lines)


def _text(value: object, location: Location, field: str) -> str:
    """Return a cell as text; an absent one is empty, as is NaN, which pandas has in place of it."""
    if value is None or value != value:
        return ""
    return str(value) if isinstance(value, int | float) else text_of({field: value}, (field,), *location)
