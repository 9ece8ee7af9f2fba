"""Read SQuAD's JSON: articles with a title, their paragraphs (`context`), and questions (`qas`) with answers.

A paragraph is a document and relevant to its questions. A text that appears twice is one document, under its first id.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from zerodr.collections.archives import Archive, damage_errors, find
from zerodr.collections.readers.base import Document, Judgement, Query, Reader
from zerodr.errors import CollectionError


class SquadQuestion(NamedTuple):
    """A question of a paragraph, with the id of its query."""

    id: str
    text: str
    answers: list[dict[str, Any]]


class Paragraph(NamedTuple):
    """A paragraph with its questions; `document` is the id of the first paragraph with this text."""

    document: Document
    split: str
    questions: list[SquadQuestion]


class SquadJsonReader(Reader):
    """Base of the readers of SQuAD's format. A collection says how documents and queries are named.

    Attributes:
        files: file name of each split, in the order of the corpus.
    """

    files: dict[str, str]

    @abstractmethod
    def document_id(self, split: str, article: int, paragraph: int, documents: int) -> str:
        """Return the id of a new document: position in its split, and number of documents before it."""

    def query_id(self, split: str, paragraph: str, number: int, question: dict[str, Any]) -> str:
        """Return the id of a query; `paragraph` is the id that its paragraph has or would have."""
        del split, paragraph, number
        return question["id"]

    def articles(self, member: str) -> list[dict[str, Any]]:
        """Read the articles of a file."""
        try:
            with damage_errors(self.archive.name), self.archive.open(member) as stream:
                return json.load(stream)["data"]
        except (ValueError, KeyError) as error:
            problem = f"is not in SQuAD's format ({type(error).__name__}: {error})"
            raise CollectionError(f"{self.archive.name}/{member}", problem, "download it again") from None

    def title(self, article: dict[str, Any]) -> str:
        """Return an article's title."""
        return article["title"].replace("_", " ")

    @cached_property
    def paragraphs(self) -> list[Paragraph]:
        """All paragraphs of all splits."""
        documents: dict[str, Document] = {}
        rows = []
        for split, name in self.files.items():
            member = str(find(self.archive, name))
            file, line = f"{self.archive.name}/{member}", 0
            for number, article in enumerate(self.articles(member)):
                for position, paragraph in enumerate(article["paragraphs"]):
                    line += 1
                    key, text = self.document_id(split, number, position, len(documents)), paragraph["context"]
                    document = documents.setdefault(text, Document(key, self.title(article), text, file, line))
                    questions = [
                        SquadQuestion(self.query_id(split, key, n, qa), qa["question"].strip(), qa["answers"])
                        for n, qa in enumerate(paragraph["qas"])
                    ]
                    rows.append(Paragraph(document, split, questions))
        return rows

    def documents(self) -> Iterator[Document]:
        """Read the paragraphs without repetitions. `line` is the number of the paragraph."""
        yield from {row.document.id: row.document for row in self.paragraphs}.values()

    def queries(self) -> Iterator[Query]:
        """Read the questions, without blanks around them."""
        for row in self.paragraphs:
            yield from (Query(q.id, q.text, row.document.file, row.document.line) for q in row.questions)

    def splits(self) -> list[str]:
        """List the splits: one a file."""
        return sorted(self.files)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read each question with its paragraph, grade 1."""
        for document, of, questions in self.paragraphs:
            if of == split:
                yield from (Judgement(q.id, document.id, 1, document.file, document.line) for q in questions)

    def answers(self) -> Iterator[dict[str, Any]]:
        """Read the answer spans, with the starts that annotators marked."""
        for document, split, questions in self.paragraphs:
            for question in questions:
                spans = [{"text": span["text"], "start": span["answer_start"]} for span in question.answers]
                yield {"query_id": question.id, "corpus_id": document.id, "split": split, "answers": spans}


class SquadReader(SquadJsonReader):
    """Reader of format `squad`: SQuAD 1.1, articles sorted by title; queries of `train` are numbered."""

    files = {"train": "train-v1.1.json", "dev": "dev-v1.1.json"}

    def articles(self, member: str) -> list[dict[str, Any]]:
        """Read the articles, sorted by title."""
        return sorted(super().articles(member), key=lambda article: article["title"])

    def document_id(self, split: str, article: int, paragraph: int, documents: int) -> str:
        """Return split and numbers of article and paragraph."""
        return f"squad-{split}-{article:03d}-{paragraph:03d}"

    def query_id(self, split: str, paragraph: str, number: int, question: dict[str, Any]) -> str:
        """Return SQuAD's id in `dev`, else paragraph and number."""
        return f"{paragraph}-q{number:02d}" if split == "train" else question["id"]


class SquadShiftsReader(SquadJsonReader):
    """Reader of format `squadshifts`: one file `<name>_v1.0.json` of SQuADShifts."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        (file,) = archive.names()
        self.files = {"test": file}
        self._name = PurePosixPath(file).name.removesuffix("_v1.0.json").replace("_", "-")
        self._titled = False

    def articles(self, member: str) -> list[dict[str, Any]]:
        """Read the articles. The title of a single one names the file's source and no document."""
        articles = super().articles(member)
        self._titled = len(articles) > 1
        return articles

    def title(self, article: dict[str, Any]) -> str:
        """Return the article's title, if it has one of its own."""
        return super().title(article) if self._titled else ""

    def document_id(self, split: str, article: int, paragraph: int, documents: int) -> str:
        """Return name of the file and numbers of article and paragraph."""
        return f"squadshifts-{self._name}-{article:04d}-{paragraph:03d}"


class CmrcReader(SquadJsonReader):
    """Reader of format `cmrc2018`: CMRC 2018 in SQuAD's format; documents are numbered."""

    files = {"dev": "cmrc2018_dev.json", "trial": "cmrc2018_trial.json"}

    def title(self, article: dict[str, Any]) -> str:
        """Return the title as it is."""
        return article["title"]

    def document_id(self, split: str, article: int, paragraph: int, documents: int) -> str:
        """Return the number of documents before it."""
        return f"cmrc2018-zh-{documents:05d}"
