"""Read a user's own folder (format `folder`), under the names that people give to files, columns and fields."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from zerodr.collections.archives import Archive, Location
from zerodr.collections.readers.base import Document, Judgement, Query, Reader, bad_line, grade_of, text_of, title_of
from zerodr.collections.readers.tables import (
    GRADE_CELL,
    Row,
    form_of,
    is_quoted,
    parquet_names,
    plain,
    read_objects,
    read_rows,
)
from zerodr.config.loose_files import Columns
from zerodr.config.user_folders import SHARD, SHORT, shards_of, split_of
from zerodr.errors import CollectionError, nearest

_DOCUMENT = ("docid", "doc_id", "docno", "document_id", "documentid", "pid", "passage_id", "corpus_id", "did")
_QUERY = ("qid", "query_id", "queryid", "question_id", "topic_id", "topicid")
IDS = {"corpus": ("_id", "id", *_DOCUMENT), "queries": ("_id", "id", *_QUERY)}
_BODY = ("contents", "content", "body", "passage", "segment", "abstract")
TEXTS = {"corpus": ("text", *_BODY), "queries": ("text", "query", "query_text", "question", "title")}
ROLES = {
    "query": (*_QUERY, "query", "topic"),
    "document": (*_DOCUMENT, "corpusid", "document", "doc", "id"),
    "grade": ("score", "relevance", "rel", "grade", "label", "judgement", "judgment", "relevant"),
}
SECOND = ("query", "topic", "document", "doc", "id")  # columns that may hold texts: ids next to them go first
OTHERS = ("title", "url", "key", "value", "name", "uuid", "metadata", "index", "number", "iter")
HEADER = {*chain(*IDS.values(), *TEXTS.values(), *ROLES.values(), OTHERS)}
WORD = re.compile(r"[^\W\d][^\W\d]*(?:[ _-][^\W\d]+)?")
SAMPLE = 200  # first rows, by which a table without a header is understood
EMPTY: tuple[Any, ...] = (None, "", [], {})
UNNAMED = {2: ("id", "text"), 3: ("id", "title", "text")}
ITERATIONS = {"0", "Q0", "q0"}  # the second cell of TREC's judgements
SWAPPED = ("id", "text", "title")  # DPR's order
WORDS_OF_TEXT = 3


class Fields(NamedTuple):
    """Names of the fields that a row has. Empty: it has none."""

    id: str
    text: str
    title: str
    instruction: str
    unread: tuple[str, ...]


def fields_of(names: Iterable[str], stem: str, chosen: Columns | None = None) -> Fields:
    """Find the fields of a row of `corpus` or `queries` among its names; `chosen` ones of the corpus go first."""
    by_name: dict[str, str] = {}
    for name in names:
        by_name.setdefault(plain(name), name)
    key, text = (_first(by_name, table.get(stem, table["queries"])) for table in (IDS, TEXTS))
    title = by_name.get("title", "") if text != by_name.get("title") else ""
    instruction = by_name.get("instruction", "") if stem != "corpus" else ""
    if chosen is not None and stem == "corpus":
        key, text, title = chosen.id or key, chosen.text or text, chosen.title or title
    used = {key, text, title, instruction}
    return Fields(key, text, title, instruction, tuple(name for name in names if name not in used))


def _first(by_name: dict[str, str], names: Iterable[str]) -> str:
    return next((by_name[name] for name in names if name in by_name), "")


class FolderReader(Reader):
    """Reader of format `folder`: `corpus.*` and, if there are any, `queries.*` and judgements (docs/own-corpus.md).

    JSON lines, TSV, CSV, each gzipped or not, and parquet.
    """

    columns = Columns()
    """Columns of the corpus, where the user names them."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        self._remarks: dict[str, None] = {}
        self._unread: dict[str, dict[str, None]] = {}
        self._joined: dict[str, dict[str, None]] = {}

    @property
    def remarks(self) -> list[str]:
        """Sentences on how the files were read, as far as they were, where that is not the only way."""
        joined = [f"{file}: {' and '.join(names)} joined with the text" for file, names in self._joined.items()]
        unread = [f"{file}: fields that are not read: {', '.join(names)}" for file, names in self._unread.items()]
        return [*self._remarks, *joined, *unread]

    def documents(self) -> Iterator[Document]:
        """Read the corpus."""
        members = self._members_of("corpus")
        if not members:
            raise CollectionError(self.archive.name, f"holds no corpus.{SHORT}", "add one")
        for _, location, fields, value in self._all_records(members, "corpus"):
            key, text = _id(value, fields.id, "corpus", location), _text(value, fields.text, "corpus", location)
            title = title_of({"title": value.get(fields.title)}, *location) if fields.title else ""
            yield Document(key, title, text, *location)

    def queries(self) -> Iterator[Query]:
        """Read the queries, a title and an instruction joined with the text; none for a corpus alone."""
        for member, location, fields, value in self._all_records(self._members_of("queries"), "queries"):
            key, text = _id(value, fields.id, "queries", location), _text(value, fields.text, "queries", location)
            title, instruction = (self._more(member, name, value, text, location) for name in fields[2:4])
            yield Query(key, " ".join(filter(None, (title, text, instruction))) or text, *location)

    def _more(self, member: str, name: str, value: dict[str, Any], text: str, location: Location) -> str:
        """Return what a field adds to a query's text; empty: nothing."""
        more = text_of(value, (name,), *location) if name and value[name] is not None else ""
        if more.strip() in ("", text.strip()):
            return ""
        self._joined.setdefault(member, {})[name] = None
        return more

    def splits(self) -> list[str]:
        """List the splits that have judgements."""
        return sorted({split for name in self.archive.names() if (split := split_of(Path(name)))})

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the judgements of a split: named columns, `query document grade`, or TREC's `query 0 document grade`."""
        members = self._only([name for name in self.archive.names() if split_of(Path(name)) == split])
        return chain.from_iterable(map(self._judgements_of, members))

    def _judgements_of(self, member: str) -> Iterator[Judgement]:
        if form_of(member) in ("jsonl", "parquet"):
            return self._named_judgements(member)
        return _judgement_rows(read_rows(self.archive, member))

    def _members_of(self, stem: str) -> list[str]:
        names = rf"{stem}\.\w+(\.gz)?|{stem}/.+{SHARD}\.parquet"
        return self._only([name for name in self.archive.names() if re.fullmatch(names, name)])

    def _only(self, names: list[str]) -> list[str]:
        """Return the one file, or the shards of one table in their order."""
        if len(names) > 1 and len({shards_of(Path(name)) or name for name in names}) > 1:
            problem = f"holds {' and '.join(names)}, expected one of them"
            raise CollectionError(self.archive.name, problem, "remove the others")
        return sorted(names)

    def _all_records(self, members: list[str], stem: str) -> Iterator[tuple[str, Location, Fields, dict[str, Any]]]:
        return ((member, *record) for member in members for record in self._records(member, stem))

    def _records(self, member: str, stem: str) -> Iterator[tuple[Location, Fields, dict[str, Any]]]:
        """Read location, fields and values of each row."""
        known: dict[tuple[str, ...], Fields] = {}
        rows = self._rows(member, stem)
        if stem == "corpus" and self.columns.names() and form_of(member) != "parquet":
            first = list(islice(rows, SAMPLE))
            self._refuse_absent(member, list(dict.fromkeys(name for _, value in first for name in value)))
            rows = chain(first, rows)
        for location, value in rows:
            names = tuple(value)
            if (fields := known.get(names)) is None:
                fields = known[names] = fields_of(names, stem, self.columns)
            for name in fields.unread:
                if value[name] not in EMPTY:
                    self._unread.setdefault(member, {})[name] = None
            yield location, fields, value

    def _refuse_absent(self, member: str, names: Sequence[str]) -> None:
        """Refuse columns of the corpus that the user names and that are not among the names of a table's.

        Raises:
            CollectionError: names the option.
        """
        for role, name in self.columns:
            if name and name not in names:
                problem = f"has no column {name!r} (--{role})"
                raise CollectionError(f"{self.archive.name}/{member}", problem, nearest(name, names))

    def _rows(self, member: str, stem: str) -> Iterator[tuple[Location, dict[str, Any]]]:
        form = form_of(member)
        if form == "parquet":
            names = parquet_names(self.archive, member)
            if stem == "corpus":
                self._refuse_absent(member, names)
            fields = fields_of(names, stem, self.columns)
            if fields.unread:
                self._unread.setdefault(member, {}).update(dict.fromkeys(fields.unread))
            return read_objects(self.archive, member, fields[:4])
        if form == "jsonl":
            return read_objects(self.archive, member)
        if is_quoted(self.archive, member):
            self._remarks[f"{member}: cells in quotation marks are read as CSV"] = None
        return self._table(member, read_rows(self.archive, member), stem)

    def _table(self, member: str, rows: Iterator[Row], stem: str) -> Iterator[tuple[Location, dict[str, Any]]]:
        """Name the cells of each row of a table, by its header or, without one, by their number and length."""
        first = list(islice(rows, SAMPLE))
        if not first:
            return
        location, cells = first[0]
        names: Sequence[str] = cells
        header = is_header(names) or bool({*names} & self.columns.names())
        if header:
            _check_header(location, names, fields_of(names, stem, self.columns))
        else:
            names = self._unnamed(member, first, stem)
        for location, cells in chain(first[header:], rows):
            if len(cells) != len(names):
                raise bad_line(*location, f"expected {len(names)} cells, found {len(cells)}")
            if header and cells == names:
                raise bad_line(*location, "repeats the header", "remove the line")
            yield location, dict(zip(names, cells, strict=True))

    def _unnamed(self, member: str, rows: list[Row], stem: str) -> Sequence[str]:
        """Return the names of the cells of a table without a header, by its first rows."""
        location, cells = rows[0]
        if len(cells) not in UNNAMED:
            between = "commas" if form_of(member) == "csv" else "tabs"
            problem = f"expected 2 or 3 cells separated by {between}, found {len(cells)}"
            raise bad_line(*location, problem, "add a header: id, title, text")
        worded = [all(WORD.fullmatch(cell.strip()) for cell in row) for _, row in rows]
        if worded[0] and sum(worded) == 1 < len(rows):  # no other row is of single words alone
            problem = f"looks like a header ({', '.join(cells):.80}) of unknown names"
            raise bad_line(*location, problem, "name its columns id, title and text, or add such a line before it")
        lengths = [sum(len(row[n]) for _, row in rows if len(row) == len(cells)) for n in range(len(cells))]
        long = sum(len(row[0].split()) >= WORDS_OF_TEXT for _, row in rows) * 2 > len(rows)
        if long and lengths[0] == max(lengths):
            problem = f"begins with a text ({cells[0]!r:.40}), expected an id"
            raise bad_line(*location, problem, "add a header: id, text")
        if stem == "corpus" and len(cells) == len(SWAPPED):
            names = SWAPPED if lengths[1] > lengths[2] else UNNAMED[3]
            self._remarks[f"{member}: has no header; its cells are {', '.join(names)}, judging by their lengths"] = None
            return names
        return UNNAMED[len(cells)]

    def _named_judgements(self, member: str) -> Iterator[Judgement]:
        names = parquet_names(self.archive, member) if form_of(member) == "parquet" else None
        start = Location(f"{self.archive.name}/{member}", 1)
        columns = None if names is None else list(roles_of(names, start).values())
        for location, value in read_objects(self.archive, member, columns):
            roles = roles_of(tuple(value), location)
            if missing := [role for role in ROLES if role not in roles]:
                step = "name its fields query-id, corpus-id and score"
                raise bad_line(*location, f"lacks the {missing[0]} of a judgement, found {sorted(value)}", step)
            query, document = (_id(value, roles[role], "corpus", location) for role in ("query", "document"))
            grade = value[roles["grade"]]
            if isinstance(grade, bool) or not isinstance(grade, int | float | str):
                raise bad_line(*location, f"expected an integer grade, found {grade!r:.60}")
            yield Judgement(query, document, grade_of(str(grade).strip(), *location), *location)


def _id(value: dict[str, Any], field: str, stem: str, location: Location) -> str:
    if field and type(value.get(field)) is int:
        return str(value[field])
    return text_of(value, (field,) if field else IDS[stem][:2], *location)


def _text(value: dict[str, Any], field: str, stem: str, location: Location) -> str:
    return text_of(value, (field,) if field else TEXTS[stem][:1], *location)


def is_header(cells: Sequence[str]) -> bool:
    """True when the first line of a table names columns: no text is `docid title text`."""
    names = [plain(cell) in HEADER for cell in cells]
    return names[0] or sum(names) > 1 or (any(names) and all(WORD.fullmatch(cell.strip()) for cell in cells))


def _check_header(location: Location, names: Sequence[str], fields: Fields) -> None:
    """Raise a CollectionError when a header names no id or no text, or one column twice."""
    missing = [what for what, name in (("id", fields.id), ("text", fields.text)) if not name]
    if missing:
        problem = f"looks like a header ({', '.join(names):.80}), which names no {' and no '.join(missing)}"
        raise bad_line(*location, problem, "name its columns id, title and text, or add such a line before it")
    twice = [name for name in names if [plain(one) for one in names].count(plain(name)) > 1]
    if twice:
        raise bad_line(*location, f"names column {twice[0]!r} twice", "remove one of the columns")


def roles_of(names: Sequence[str], location: Location) -> dict[str, str]:
    """Find the names of query, document and grade among the columns of judgements.

    Raises:
        CollectionError: several columns fit one of them.
    """
    roles = dict[str, str]()
    for role, known in ROLES.items():
        fitting = [name for name in names if plain(name) in known]
        fitting = [name for name in fitting if plain(name) not in SECOND] or fitting
        if len(fitting) > 1:
            problem = f"has {len(fitting)} columns for the {role} of a judgement: {' and '.join(fitting)}"
            raise bad_line(*location, problem, f"remove or rename all but one: which holds the {role} is not known")
        if fitting:
            roles[role] = fitting[0]
    return roles


def _judgement_rows(rows: Iterator[Row]) -> Iterator[Judgement]:
    first = list(islice(rows, SAMPLE))
    if not first:
        return
    columns, names = _columns(first), first[0][1]
    header = not any(GRADE_CELL.fullmatch(cell.strip()) for cell in names)
    for location, cells in chain(first[header:], rows):
        if len(cells) != len(names):
            raise bad_line(*location, f"expected {len(names)} cells, found {len(cells)}")
        query, document, grade = (cells[column] for column in columns)
        yield Judgement(query, document, grade_of(grade.strip(), *location), *location)


def _columns(rows: Sequence[Row]) -> tuple[int, int, int]:
    """Return the numbers of the cells with query, document and grade, by the first rows.

    Raises:
        CollectionError: a header lacks one of them, there are neither 3 nor 4 cells, or 4 may not be TREC's.
    """
    location, cells = rows[0]
    graded = any(GRADE_CELL.fullmatch(cell.strip()) for cell in cells)
    roles = {} if graded else roles_of(cells, location)
    if roles:
        if missing := [role for role in ROLES if role not in roles]:
            problem = f"looks like a header ({', '.join(cells):.80}), which names no {missing[0]}"
            raise bad_line(*location, problem, "name its columns query-id, corpus-id and score")
        return cells.index(roles["query"]), cells.index(roles["document"]), cells.index(roles["grade"])
    if len(cells) not in (3, 4):
        problem = f"expected 3 cells (query, document, grade) or TREC's 4, found {len(cells)}"
        raise bad_line(*location, problem, "separate them by tabs")
    if not graded:
        problem = f"holds no integer grade and names no columns ({', '.join(cells):.80})"
        raise bad_line(*location, problem, "correct the grade, or name the columns query-id, corpus-id and score")
    if len(cells) == 3:
        return 0, 1, 2
    iterations, documents = ([row[n].strip() for _, row in rows if len(row) == len(cells)] for n in (1, 2))
    if {*iterations} <= ITERATIONS or not all(map(GRADE_CELL.fullmatch, documents)):
        return 0, 2, 3
    problem = f"has 4 cells without a header, the second ({cells[1]!r:.40}) not TREC's 0 or Q0, the third a number"
    raise bad_line(*location, problem, "name the columns: query-id, corpus-id and score are read")
