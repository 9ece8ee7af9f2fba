"""Read and write `to_judge.tsv`, which a person fills in, as editors and spreadsheets save it."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import pandas as pd

from zerodr.collections.access import read_texts, split_queries
from zerodr.collections.readers.base import LARGEST_GRADE
from zerodr.config.quantities import counted
from zerodr.errors import CollectionError

SIDES = {"query": "query", "document": "corpus"}  # the word of a side in the names of columns
COLUMNS = ["grade", "query-id", "corpus-id", "query", "document", "ranks"]
MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
LETTERS = 100  # of a document by which its text is known again
WHOLE = re.compile(r"([+-]?\d{1,9})(?:[.,]0+)?")


class Row(NamedTuple):
    """A line of the file: its number from 1, and its cells in the order of COLUMNS; missing ones are empty."""

    line: int
    cells: list[str]


def read_rows(path: Path) -> list[Row]:
    """Read the lines with a grade.

    Tabs, semicolons or commas separate cells. A spreadsheet's quotes around a cell go.

    Raises:
        CollectionError: the encoding is not known, a column is missing, or a grade has no ids; names the line.
    """
    lines = _decoded(path).splitlines()
    if not any(line.strip() for line in lines):
        step = "delete it: `zerodr adapt` offers the pairs again"
        raise CollectionError(path, "is empty", step)
    separator = next((sign for sign in "\t;," if sign in lines[0]), "\t")
    header, *rows = [_cells(line, separator) for line in lines]
    header = [name.lower() for name in header]
    if lacking := [name for name in COLUMNS[:3] if name not in header]:
        raise CollectionError(path, f"has no column {lacking[0]!r}", "keep the header line as it was written")
    if twice := [name for name in COLUMNS if header.count(name) > 1]:
        raise CollectionError(path, f"has column {twice[0]!r} twice", "remove one of the columns")
    columns = [header.index(name) if name in header else len(header) for name in COLUMNS]
    graded = []
    for number, row in enumerate(rows, 2):
        cells = row[: len(header)]
        ordered = [cells[column] if column < len(cells) else "" for column in columns]
        if ordered[0] and not (ordered[1] and ordered[2]):
            where, problem = f"{path}:{number}", f"the grade {ordered[0]!r} has no query-id or no corpus-id"
            raise CollectionError(where, problem, "write grades into lines of pairs, and leave their ids there")
        if ordered[0]:
            graded.append(Row(number, ordered))
    return graded


def _decoded(path: Path) -> str:
    """Decode UTF-8, or UTF-16 by its mark, as Excel's `Unicode text` has it."""
    data = path.read_bytes()
    try:
        return data.decode(MARKS.get(data[:2]) or MARKS.get(data[:3], "utf-8"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problem = "is in neither UTF-8 nor UTF-16 (perhaps Windows-1252, as Excel's `Text` has it)"
        raise CollectionError(f"{path}:{line}", problem, "save it as UTF-8, or as Excel's `Unicode text`") from None


def _cells(line: str, separator: str) -> list[str]:
    """Split a line. Between tabs only whole cells are quoted: texts may begin with a quote."""
    if separator != "\t":
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
    return [_unquoted(cell.strip()) for cell in line.split("\t")]


def _unquoted(cell: str) -> str:
    if len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', ""):
        return cell[1:-1].replace('""', '"')
    return cell


class Grades(NamedTuple):
    """A person's grades.

    Attributes:
        pairs: columns query, document, grade (int).
        outdated: a sentence on lines about texts that are no longer there, which count for nothing; mostly empty.
    """

    pairs: pd.DataFrame
    outdated: str


def read_grades(path: Path, homes: Sequence[Path], whole: Path) -> Grades:
    """Read the lines of a `to_judge.tsv` with a grade.

    A line holds the texts that a person read. Where a document was edited, added or removed since, an id is another
    text's: such a line counts for nothing. Lines without texts are taken by their ids.

    Args:
        path: the file as `write_pairs` wrote it and a person filled it in; ids without a prefix are taken as they are.
        homes: folders of the collections whose queries and documents it may name.
        whole: folder of the unshortened documents, whose texts it holds.

    Raises:
        CollectionError: a line can't be read, a grade is no whole number, a pair has two grades, or no collection has
            an id that was not written by `write_pairs`; names the line.
    """
    graded = _graded(path)
    queries = {key: str(text) for home in homes for key, text in split_queries(home, "")[["id", "text"]].to_numpy()}
    named = {document for _, document in graded}
    known = {key for home in homes for key in read_texts(home, named)}
    documents = {key: f"{title} {text}" for key, (title, text) in read_texts(whole, named).items()}
    aside = []
    for (query, document), (row, _) in graded.items():
        for side, key, ids, cell in (("query", query, queries, 1), ("document", document, known, 2)):
            if key not in ids and not row.cells[cell].startswith(f"{side}:"):
                step = "write the id as it was; spreadsheets change what looks like a number or date (0002 becomes 2)"
                raise CollectionError(f"{path}:{row.line}", f"{side} {key!r} is not in the collection", step)
        here = query in queries and document in known
        if not here or not _is_about(row, queries[query], documents.get(document, "")):
            aside.append((query, document))
    triples = [(*pair, grade) for pair, (_, grade) in graded.items() if pair not in {*aside}]
    pairs = pd.DataFrame(triples, columns=["query", "document", "grade"]).astype({"grade": int})
    if not aside:
        return Grades(pairs, "")
    few = f"{len(aside)} of {counted(len(graded), 'grade')} of yours {'is' if len(aside) == 1 else 'are'}"
    first = f"(line {graded[aside[0]][0].line} of {path} first)"
    what = f"about texts that have changed or gone since {first}: they count for nothing, and can be removed."
    return Grades(pairs, f"{few} {what}")


def _is_about(row: Row, query: str, document: str) -> bool:
    """True where the texts of a line, as far as it has some, are those of its pair."""
    asked, read = row.cells[3:5]
    # A person reads a held-out sentence within its passage, and the start of a document.
    same = not asked or _letters(query) in _letters(asked)
    return same and _letters(document).startswith(_letters(read)[:LETTERS])


def _graded(path: Path) -> dict[tuple[str, str], tuple[Row, int]]:
    """Read line and grade of each pair."""
    graded = dict[tuple[str, str], tuple[Row, int]]()
    for row in read_rows(path):
        grade, query, document, *_ = row.cells
        number = WHOLE.fullmatch(grade)
        if number is None or abs(int(number[1])) > LARGEST_GRADE:
            problem = f"the grade {grade!r} is no whole number up to {LARGEST_GRADE}"
            raise CollectionError(f"{path}:{row.line}", problem, "write 1 for relevant, 0 for not, or nothing")
        pair = id_of_cell("query", query), id_of_cell("document", document)
        earlier, value = graded.setdefault(pair, (row, int(number[1])))
        if value != int(number[1]):
            problem = f"the pair has grade {number[1]} here, and {value} in line {earlier.line}"
            raise CollectionError(f"{path}:{row.line}", problem, "remove one of them")
    return graded


def _letters(text: str) -> str:
    """Return letters and digits alone, small: what no editor or spreadsheet changes."""
    return "".join(filter(str.isalnum, text.casefold()))


def id_cell(side: str, key: str) -> str:
    """Write an id so that no spreadsheet changes it and no cell is split: `query:0002`, blanks and `%` as in an URL.

    >>> id_cell("query", "0002"), id_cell("document", "2  b")
    ('query:0002', 'document:2%20%20b')
    """
    return f"{side}:" + re.sub(r"[\s%\x00-\x1f]", lambda match: quote(match[0]), key)


def id_of_cell(side: str, cell: str) -> str:
    """Read an id that `id_cell` wrote; a cell without the prefix is the id itself.

    >>> id_of_cell("document", "document:2%20%20b"), id_of_cell("query", "0002")
    ('2  b', '0002')
    """
    prefix = f"{side}:"
    return unquote(cell.removeprefix(prefix)) if cell.startswith(prefix) else cell


def text_cell(text: str) -> str:
    """Write a text in one line that no spreadsheet computes: what begins as a formula gets a blank before it.

    >>> text_cell("- apples\\n- pears"), text_cell("sepsis")
    (' - apples - pears', 'sepsis')
    """
    line = " ".join(text.split())
    return f" {line}" if line.startswith(("=", "+", "-", "@")) else line


def offer(source: Path, target: Path) -> int:
    """Write the pairs to judge where a person can fill them in; lines with a grade stay. Return how many are to judge.

    But for a line whose pair is offered with other texts: its grade is about those of before.
    """
    header, *lines = source.read_text(encoding="utf-8").splitlines()
    offered = {tuple(cells[1:3]): cells for cells in (line.split("\t") for line in lines)}

    def outdated(row: Row) -> bool:
        pair = offered.get(tuple(row.cells[1:3]), [])
        return any(old and _letters(old) != _letters(new) for old, new in zip(row.cells[3:5], pair[3:5], strict=False))

    rows = [row for row in read_rows(target) if not outdated(row)] if target.exists() else []
    keys = {tuple(row.cells[1:3]) for row in rows}
    new = ["\t".join(cells) for pair, cells in offered.items() if pair not in keys]
    graded = ["\t".join([row.cells[0], *map(text_cell, row.cells[1:])]).rstrip("\t") for row in rows]
    data = ("\n".join([header, *graded, *new]) + "\n").encode()
    if not target.exists() or target.read_bytes() != data:
        target.write_bytes(data)
    return len(new)
