"""Parse documents, queries and judgements as streams of small records that know their file and line."""

import csv
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

from zerodr.collections.access import QRELS_COLUMNS
from zerodr.collections.archives import Archive, Location, find, read_lines, read_whole_lines
from zerodr.errors import CollectionError

LARGEST_GRADE = 1000
OPENINGS = ("{", "[", "[{")  # first lines of JSON that is written over several
WHOLE = "write one whole object a line, as: jq -c . FILE does (of an array: jq -c '.[]' FILE)"
KEY_END = re.compile(r'"[ \t\r\n]*:')  # there are at least as many as keys
GRADE = re.compile(r"(?P<sign>[+-]?)0*(?P<digits>[0-9]+)(?:\.0*)?")


class Document(NamedTuple):
    """A text of the corpus, with its file and line."""

    id: str
    title: str
    text: str
    file: str
    line: int


class Query(NamedTuple):
    """A query, with its file and line."""

    id: str
    text: str
    file: str
    line: int


class Judgement(NamedTuple):
    """A graded pair, with its file and line."""

    query: str
    document: str
    grade: int
    file: str
    line: int


class Reader(ABC):
    """Base of the readers. A format overrides the methods for which it has files.

    Args:
        archive: holds the files.
        member: folder or file of the collection inside the archive; each format documents its use.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        self.archive, self.member = archive, member

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Read the corpus, in source order."""

    def queries(self) -> Iterator[Query]:
        """Read the queries, in source order."""
        return iter(())

    def splits(self) -> list[str]:
        """List the splits that have judgements."""
        return []

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the judgements of a split, in source order."""
        del split
        return iter(())

    def unlabelled(self) -> Iterator[Query] | None:
        """Read queries without judgements, or return None when the archive has none."""
        return None

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Read answer spans, or return None when the archive has none."""
        return None


def bad_line(file: str, line: int, problem: str, step: str = "correct the line") -> CollectionError:
    """Return the error for a line of a source file."""
    return CollectionError(f"{file}:{line}", problem, step)


class KeyTwice(ValueError):
    """A key occurs twice in a JSON object, where Python takes the last one."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [key for key, _ in pairs]
        raise KeyTwice(next(key for key in value if names.count(key) > 1))
    return value


def read_json_lines(archive: Archive, member: str) -> Iterator[tuple[Location, dict[str, Any]]]:
    """Read location and object of each line.

    Raises:
        CollectionError: with file and line, when a line is no JSON object.
    """
    for location, line in read_lines(archive, member):
        try:
            value = json.loads(line)
            if not isinstance(value, dict) or len(KEY_END.findall(line)) > len(value):
                json.loads(line, object_pairs_hook=_unique)
        except json.JSONDecodeError as error:
            step = WHOLE if line.strip() in OPENINGS else "correct the line"
            raise bad_line(*location, f"is no JSON ({error.msg} at column {error.colno})", step) from None
        except KeyTwice as error:
            raise bad_line(*location, f"key {error.args[0]!r:.60} occurs twice in one object", "remove one") from None
        except RecursionError:
            raise bad_line(*location, "is no JSON that can be read (too many brackets inside each other)") from None
        except ValueError:
            raise bad_line(*location, "is no JSON that can be read (a number with thousands of digits)") from None
        if not isinstance(value, dict):
            raise bad_line(*location, f"expected a JSON object, found {type(value).__name__}", WHOLE)
        yield location, value


def text_of(value: dict[str, Any], keys: tuple[str, ...], file: str, line: int) -> str:
    """Return the string under the first of `keys` that is present.

    Raises:
        CollectionError: none is present, or it is no string.
    """
    for key in keys:
        if key in value:
            if not isinstance(value[key], str):
                problem = f"key {key!r}: expected a string, found {value[key]!r:.60}"
                nested = isinstance(value[key], (list, dict))
                raise bad_line(file, line, problem, "write it as one text" if nested else "write it in quotes")
            return value[key]
    raise bad_line(file, line, f"lacks key {' or '.join(map(repr, keys))}, found {sorted(value)}", "add it")


def title_of(value: dict[str, Any], file: str, line: int) -> str:
    """Return the title; a missing or null one is empty."""
    return text_of(value, ("title",), file, line) if value.get("title") is not None else ""


def grade_of(text: str, file: str, line: int) -> int:
    """Parse a relevance grade: an integer, negative ones included, or a decimal with the value of one (`1.0`).

    Raises:
        CollectionError: it is none, or far from 0. pytrec_eval takes memory for each grade up to the largest one, and
            silently computes with 32 bits: 1,700,000,000 takes 13 GB and a crash, 5,000,000,000 gives nDCG 0.
    """
    number = GRADE.fullmatch(text)
    if number is None:
        raise bad_line(file, line, f"expected an integer grade, found {text!r}")
    if len(number["digits"]) > len(str(LARGEST_GRADE)) or int(number["digits"]) > LARGEST_GRADE:
        step = f"grades are from -{LARGEST_GRADE} to {LARGEST_GRADE}, mostly 0 to 3: map counts or times to such"
        raise bad_line(file, line, f"the grade {text:.24} is no degree of relevance", step)
    return int(number["sign"] + number["digits"])


def read_cells(
    archive: Archive, member: str, cells: int, separator: str = "\t"
) -> Iterator[tuple[Location, list[str]]]:
    """Read location and cells of each line; the last cell includes further separators.

    Raises:
        CollectionError: a line has fewer cells.
    """
    for location, line in read_lines(archive, member):
        values = line.split(separator, cells - 1)
        if len(values) != cells:
            raise bad_line(*location, f"expected {cells} cells separated by {separator!r}, found {len(values)}")
        yield location, values


def read_quoted(archive: Archive, member: str) -> Iterator[tuple[Location, list[str]]]:
    """Read rows with tabs between cells, in quotation marks as CSV has them, so that a cell may hold line breaks.

    The line of a location is the number of the row, blank lines left out.

    Raises:
        CollectionError: quotation marks that do not fit together.
    """
    csv.field_size_limit(sys.maxsize)
    number, file = 0, f"{archive.name}/{member}"
    try:
        for row in csv.reader((line for _, line in read_whole_lines(archive, member)), delimiter="\t"):
            if "".join(row).strip():
                number += 1
                yield Location(file, number), row
    except csv.Error as error:
        raise bad_line(file, number + 1, f"is no row of a table ({error})", "replace the file") from None


def read_qrels(archive: Archive, member: str, trec: bool = False) -> Iterator[Judgement]:
    """Read `query-id corpus-id score` lines (a header is skipped), or TREC's `query 0 document grade`."""
    for location, line in read_lines(archive, member):
        values = line.split("\t")
        if location.line == 1 and tuple(values) == QRELS_COLUMNS:
            continue
        if len(values) != (4 if trec else 3):
            raise bad_line(*location, f"expected {4 if trec else 3} cells separated by tabs, found {len(values)}")
        query, document, grade = (values[0], values[2], values[3]) if trec else values
        yield Judgement(query, document, grade_of(grade.strip(), *location), *location)


def _refuse_several(archive: Archive, corpus: str) -> None:
    """Refuse an archive with several corpora next to `corpus`, none of which is named.

    Raises:
        CollectionError: it has.
    """
    depth = corpus.count("/")
    folders = [name.removesuffix("/corpus.jsonl") for name in archive.names() if name.endswith("/corpus.jsonl")]
    others = sorted(folder for folder in folders if folder.count("/") == depth - 1)
    if len(others) > 1:
        problem = f"holds {len(others)} corpora ({', '.join(others[:3])}{', ...' * (len(others) > 3)})"
        raise CollectionError(archive.name, problem, f"name one in the collection's row: member: {others[0]}")


class BeirReader(Reader):
    """Reader of format `beir`: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` in one folder of the archive.

    `member` names the folder (`cqadupstack/android`); empty, it is the folder of the one `corpus.jsonl`, or of the
    outermost. The lab's archives may add `queries_unlabelled.jsonl` and `answers.jsonl`.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        corpus = str(find(archive, f"{member}/corpus.jsonl" if member else "corpus.jsonl"))
        self.folder = corpus[: -len("corpus.jsonl")]
        if not member:
            _refuse_several(archive, corpus)

    def member_of(self, stem: str) -> str | None:
        """Return the file with the rows of `corpus`, `queries`, `queries_unlabelled` or `answers`, if there is one."""
        member = f"{self.folder}{stem}.jsonl"
        return member if member in self.archive.names() else None

    def documents(self) -> Iterator[Document]:
        """Read the corpus."""
        member = str(self.member_of("corpus"))
        for location, value in read_json_lines(self.archive, member):
            key, text = (text_of(value, names, *location) for names in (("_id",), ("text",)))
            yield Document(key, title_of(value, *location), text, *location)

    def queries(self) -> Iterator[Query]:
        """Read the queries; none for a corpus alone."""
        return self._queries("queries") or iter(())

    def unlabelled(self) -> Iterator[Query] | None:
        """Read the rows of `queries_unlabelled`."""
        return self._queries("queries_unlabelled")

    def _queries(self, stem: str) -> Iterator[Query] | None:
        member = self.member_of(stem)
        return self._query_rows(member) if member else None

    def _query_rows(self, member: str) -> Iterator[Query]:
        for location, value in read_json_lines(self.archive, member):
            yield Query(text_of(value, ("_id",), *location), text_of(value, ("text",), *location), *location)

    def splits(self) -> list[str]:
        """List the splits: every `qrels/<split>.tsv`; macOS adds `._<split>.tsv`, which are none."""
        start = f"{self.folder}qrels/"
        names = (name.removeprefix(start) for name in self.archive.names() if name.startswith(start))
        files = (name for name in names if name.endswith(".tsv") and "/" not in name and name[0] != ".")
        return sorted(name.removesuffix(".tsv") for name in files)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the lines of `qrels/<split>.tsv`."""
        return read_qrels(self.archive, f"{self.folder}qrels/{split}.tsv")

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Read the objects of `answers.jsonl`."""
        member = self.member_of("answers")
        return (value for _, value in read_json_lines(self.archive, member)) if member else None
