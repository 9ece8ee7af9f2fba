"""Read OAG-QA: `<topic>-papers-10k.tsv` (id, abstract, title) and `<topic>-questions.tsv` (question, list of titles).

`member` is the topic. The published measure asks whether a retrieved paper's title holds an answer title; here every
paper whose title is one of the answers (letters and digits only, case folded) is relevant with grade 1. Questions
have no ids upstream: theirs are `<topic>-<line>`.
"""

import ast
import csv
import re
from collections import defaultdict
from collections.abc import Iterator

from zerodr.collections.archives import Archive, find, read_lines
from zerodr.collections.readers.base import Document, Judgement, Query, Reader, bad_line

_NO_WORD = re.compile(r"[\W_]+")


class OagQaReader(Reader):
    """Reader of format `oag-qa`."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        self.papers = str(find(archive, f"{member}-papers-10k.tsv"))
        self.questions = str(find(archive, f"{member}-questions.tsv"))

    def _rows(self, member: str, cells: int) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(1 << 27)
        lines = (line for _, line in read_lines(self.archive, member))
        for number, row in enumerate(csv.reader(lines, delimiter="\t"), start=1):
            if len(row) < cells:
                problem = f"expected {cells} cells separated by tabs, found {len(row)}"
                raise bad_line(f"{self.archive.name}/{member}", number, problem)
            yield number, row

    def documents(self) -> Iterator[Document]:
        """Read the papers."""
        file = f"{self.archive.name}/{self.papers}"
        for line, (pid, text, title, *_) in self._rows(self.papers, 3):
            if pid != "id":
                yield Document(pid, title, text, file, line)

    def queries(self) -> Iterator[Query]:
        """Read the questions, named by their line."""
        file = f"{self.archive.name}/{self.questions}"
        for line, (question, *_) in self._rows(self.questions, 2):
            yield Query(f"{self.member}-{line}", question, file, line)

    def splits(self) -> list[str]:
        """Return the one split."""
        return ["test"]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Match each question with the papers whose title is an answer."""
        del split
        by_title = defaultdict(list)
        for document in self.documents():
            by_title[fold(document.title)].append(document.id)
        file = f"{self.archive.name}/{self.questions}"
        for line, (_, answers, *_rest) in self._rows(self.questions, 2):
            for title in dict.fromkeys(map(fold, _titles(answers, file, line))):
                for paper in by_title.get(title, ()):
                    yield Judgement(f"{self.member}-{line}", paper, 1, file, line)


def fold(title: str) -> str:
    """Return the words of a title, case folded, one space between."""
    return _NO_WORD.sub(" ", title).strip().casefold()


def _titles(cell: str, file: str, line: int) -> list[str]:
    try:
        value = ast.literal_eval(cell)
    except (ValueError, SyntaxError):
        value = None
    if not isinstance(value, list) or not all(isinstance(title, str) for title in value):
        raise bad_line(file, line, f"expected a list of titles, found {cell[:60]!r}")
    return value
