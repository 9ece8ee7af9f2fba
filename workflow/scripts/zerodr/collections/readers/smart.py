"""Read SMART's format of the classical collections: records `.I <id>` with fields `.T`, `.W` and others.

Texts are joined with single blanks. In Cranfield the text starts with the title, which is left out there.
"""

import re
from collections.abc import Iterator

from zerodr.collections.archives import Location, find, read_lines
from zerodr.collections.readers.base import Document, Judgement, Query, Reader, bad_line, grade_of

RECORD = re.compile(r"\.I\s+(\d+)")
FIELD = re.compile(r"\.([A-Z])\s*")


class SmartReader(Reader):
    """Base of these readers.

    Attributes:
        corpus, questions, judged: names of the three files.
    """

    corpus: str
    questions: str
    judged: str

    def records(self, name: str) -> Iterator[tuple[str, dict[str, str], Location]]:
        """Read id, fields and location of each record."""
        member = str(find(self.archive, name))
        key, first, field, lines = "", Location("", 0), "", dict[str, list[str]]()
        for location, line in read_lines(self.archive, member):
            if record := RECORD.fullmatch(line.rstrip()):
                if key:
                    yield key, _joined(lines), first
                key, first, field, lines = record[1], location, "", {}
            elif start := FIELD.fullmatch(line):
                field = start[1]
            elif not key:
                raise bad_line(*location, f"expected '.I <number>', found {line!r:.60}", "replace the file")
            elif field:
                lines.setdefault(field, []).append(line)
        if key:
            yield key, _joined(lines), first

    def documents(self) -> Iterator[Document]:
        """Read the corpus."""
        for key, fields, location in self.records(self.corpus):
            yield Document(key, fields.get("T", ""), self.text(fields), *location)

    def text(self, fields: dict[str, str]) -> str:
        """Return a document's text."""
        return fields.get("W", "")

    def splits(self) -> list[str]:
        """List the one split."""
        return ["test"]

    def judged_cells(self) -> Iterator[tuple[Location, list[str]]]:
        """Read location and cells of the judgements."""
        for location, line in read_lines(self.archive, str(find(self.archive, self.judged))):
            cells = line.split()
            if len(cells) < 3:
                raise bad_line(*location, f"expected 3 or more cells, found {len(cells)}", "replace the file")
            yield location, cells


class CranfieldReader(SmartReader):
    """Reader of format `cranfield`. Judgements name queries by position; codes above 0 are relevant, -1 is not."""

    corpus, questions, judged = "cran.all.1400", "cran.qry", "cranqrel"

    def text(self, fields: dict[str, str]) -> str:
        """Return the text without the title at its start."""
        return super().text(fields).removeprefix(fields.get("T", "")).strip()

    def queries(self) -> Iterator[Query]:
        """Read the queries; the id is the position from 1."""
        for position, (_, fields, location) in enumerate(self.records(self.questions), start=1):
            yield Query(str(position), fields["W"], *location)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the judgements as grades 1 and 0."""
        for location, (query, document, code, *_) in self.judged_cells():
            yield Judgement(query, document, int(grade_of(code, *location) > 0), *location)


class CisiReader(SmartReader):
    """Reader of format `cisi`. Long queries are articles with a title; every listed pair is relevant."""

    corpus, questions, judged = "CISI.ALL", "CISI.QRY", "CISI.REL"

    def queries(self) -> Iterator[Query]:
        """Read the queries: title, if there is one, and text."""
        for key, fields, location in self.records(self.questions):
            yield Query(key, " ".join(fields[name] for name in "TW" if name in fields), *location)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the pairs, grade 1."""
        for location, (query, document, *_) in self.judged_cells():
            yield Judgement(query, document, 1, *location)


def _joined(lines: dict[str, list[str]]) -> dict[str, str]:
    return {field: " ".join(" ".join(texts).split()) for field, texts in lines.items()}
