"""What every reader gives: documents, queries and judgements as streams of small records that know their line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from zerodr.collections.archives import Archive, read_lines
from zerodr.errors import CollectionError


class Document(NamedTuple):
    """A text of the corpus, and the file and line it stands in."""

    id: str
    title: str
    text: str
    file: str
    line: int


class Query(NamedTuple):
    """A query, and the file and line it stands in."""

    id: str
    text: str
    file: str
    line: int


class Judgement(NamedTuple):
    """A graded pair, and the file and line it stands in."""

    query: str
    document: str
    grade: int
    file: str
    line: int


class Reader:
    """Base of the readers. A format overrides what it has.

    Args:
        archive: where the files are.
        member: folder or file of the collection inside the archive; a format says how it reads it.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        self.archive, self.member = archive, member

    def documents(self) -> Iterator[Document]:
        """The corpus, in source order."""
        raise NotImplementedError

    def queries(self) -> Iterator[Query]:
        """The queries, in source order."""
        return iter(())

    def splits(self) -> list[str]:
        """Names of the splits that have judgements."""
        return []

    def judgements(self, split: str) -> Iterator[Judgement]:
        """The judgements of a split, in source order."""
        del split
        return iter(())

    def unlabelled(self) -> Iterator[Query] | None:
        """Queries without judgements that came along, or None."""
        return None

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Answer spans that came along, or None."""
        return None


def where(file: str, line: int) -> str:
    """`file:line`, as error messages say it."""
    return f"{file}:{line}"


def read_json_lines(archive: Archive, member: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line.

    Raises:
        CollectionError: with file and line, when a line is no JSON object.
    """
    for number, line in read_lines(archive, member):
        place = where(f"{archive.name}/{member}", number)
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise CollectionError(
                place, f"is no JSON ({error.msg} at column {error.colno})", "correct the line"
            ) from None
        if not isinstance(value, dict):
            raise CollectionError(place, f"expected a JSON object, found {type(value).__name__}", "correct the line")
        yield number, value


def text_of(value: dict[str, Any], keys: tuple[str, ...], file: str, line: int) -> str:
    """The string under the first of `keys` that is there.

    Raises:
        CollectionError: none is there, or it is no string.
    """
    for key in keys:
        if key in value:
            if not isinstance(value[key], str):
                raise CollectionError(
                    where(file, line), f"key {key!r}: expected a string, found {value[key]!r:.60}", "write it in quotes"
                )
            return value[key]
    raise CollectionError(
        where(file, line), f"lacks key {' or '.join(map(repr, keys))}, found {sorted(value)}", "add it"
    )


def title_of(value: dict[str, Any], file: str, line: int) -> str:
    """The title; a missing or null one is empty."""
    return text_of(value, ("title",), file, line) if value.get("title") is not None else ""


def grade_of(text: str, file: str, line: int) -> int:
    """A relevance grade: an integer, negative ones included."""
    try:
        return int(text)
    except ValueError:
        raise CollectionError(
            where(file, line), f"expected an integer grade, found {text!r}", "correct the line"
        ) from None


def read_cells(archive: Archive, member: str, cells: int, separator: str = "\t") -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each line; the last cell keeps further separators.

    Raises:
        CollectionError: a line has fewer cells.
    """
    for number, line in read_lines(archive, member):
        values = line.split(separator, cells - 1)
        if len(values) != cells:
            raise CollectionError(
                where(f"{archive.name}/{member}", number),
                f"expected {cells} cells separated by {separator!r}, found {len(values)}",
                "correct the line",
            )
        yield number, values


def read_qrels(archive: Archive, member: str, trec: bool = False) -> Iterator[Judgement]:
    """Judgements of `query-id corpus-id score` lines (a header is skipped), or of TREC's `query 0 document grade`."""
    file = f"{archive.name}/{member}"
    for number, line in read_lines(archive, member):
        values = line.split("\t")
        if number == 1 and values == ["query-id", "corpus-id", "score"]:
            continue
        if len(values) != (4 if trec else 3):
            raise CollectionError(
                where(file, number),
                f"expected {4 if trec else 3} cells separated by tabs, found {len(values)}",
                "correct the line",
            )
        query, document, grade = (values[0], values[2], values[3]) if trec else values
        yield Judgement(query, document, grade_of(grade.strip(), file, number), file, number)
