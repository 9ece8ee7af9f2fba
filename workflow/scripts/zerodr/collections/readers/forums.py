"""Read LoTTE (questions and answers of forums) and OAG-QA (questions of forums that papers answer)."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from zerodr.collections.archives import Archive, Location, find
from zerodr.collections.readers.base import (
    Document,
    Judgement,
    Query,
    Reader,
    bad_line,
    read_cells,
    read_json_lines,
    read_quoted,
)

_NO_WORD = re.compile(r"[\W_]+")


class LotteReader(Reader):
    """Reader of format `lotte`: `collection.tsv` (pid, text), `questions.<kind>.tsv`, `qas.<kind>.jsonl` (answer_pids).

    `member` is the questions file, `lotte/writing/test/questions.forum.tsv`; its folder names the split. An upvoted or
    accepted answer has grade 1.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        self.folder, _, name = member.rpartition("/")
        self.kind = name.removeprefix("questions.").removesuffix(".tsv")

    def documents(self) -> Iterator[Document]:
        """Read the lines of `collection.tsv`."""
        for location, (pid, text) in read_cells(self.archive, f"{self.folder}/collection.tsv", 2):
            yield Document(pid, "", text, *location)

    def queries(self) -> Iterator[Query]:
        """Read the lines of the questions file."""
        for location, (qid, text) in read_cells(self.archive, self.member, 2):
            yield Query(qid, text, *location)

    def splits(self) -> list[str]:
        """Return `test` or `dev`: the folder's name."""
        return [self.folder.rpartition("/")[2]]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the answer passages, grade 1."""
        del split
        for location, value in read_json_lines(self.archive, f"{self.folder}/qas.{self.kind}.jsonl"):
            if "qid" not in value or not isinstance(value.get("answer_pids"), list):
                raise bad_line(*location, f"lacks qid or a list answer_pids, found {sorted(value)}", "add it")
            for pid in value["answer_pids"]:
                yield Judgement(str(value["qid"]), str(pid), 1, *location)


class OagQaReader(Reader):
    """Reader of format `oag-qa`: `<topic>-papers-10k.tsv` (id, abstract, title) and `<topic>-questions.tsv`.

    `member` is the topic. The published measure asks whether a retrieved paper's title holds an answer title; here each
    paper whose title is one of the question's answers (letters and digits only, case folded) is relevant with grade 1.
    Questions have no ids upstream: theirs are `<topic>-<row>`.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        self.papers = str(find(archive, f"{member}-papers-10k.tsv"))
        self.questions = str(find(archive, f"{member}-questions.tsv"))

    def _rows(self, member: str, cells: int) -> Iterator[tuple[Location, list[str]]]:
        for location, row in read_quoted(self.archive, member):
            if len(row) < cells:
                raise bad_line(*location, f"expected {cells} cells separated by tabs, found {len(row)}")
            yield location, row

    def documents(self) -> Iterator[Document]:
        """Read the papers."""
        for location, (pid, text, title, *_) in self._rows(self.papers, 3):
            if pid != "id":
                yield Document(pid, title, text, *location)

    def queries(self) -> Iterator[Query]:
        """Read the questions, named by their row."""
        for location, (question, *_) in self._rows(self.questions, 2):
            yield Query(f"{self.member}-{location.line}", question, *location)

    def splits(self) -> list[str]:
        """Return the one split."""
        return ["test"]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Match each question with the papers whose title is an answer."""
        del split
        by_title = defaultdict(list)
        for document in self.documents():
            by_title[fold(document.title)].append(document.id)
        for location, (_, answers, *_rest) in self._rows(self.questions, 2):
            for title in dict.fromkeys(map(fold, _titles(answers, *location))):
                for paper in by_title.get(title, ()):
                    yield Judgement(f"{self.member}-{location.line}", paper, 1, *location)


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
