"""Read MedQuAD: `<number>_<source>_QA/*.xml` with pairs of a question and its answer.

An answer is a document, titled with the file's focus; equal answers are one document, and empty ones are left out. A
question belongs to the split of its first answer: SHA-1 of the id modulo 10, 0 is `test`, 1 is `dev`, others `train`.
"""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from xml.etree import ElementTree

from zerodr.collections.archives import damage_errors
from zerodr.collections.readers.base import Document, Judgement, Query, Reader
from zerodr.errors import CollectionError

SPLITS = {0: "test", 1: "dev"}


class MedquadReader(Reader):
    """Reader of format `medquad`."""

    def _pairs(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Read id, title, answer, question, file and number of the pairs with an answer."""
        for member in sorted(name for name in self.archive.names() if name.endswith(".xml")):
            file, source = f"{self.archive.name}/{member}", member.split("/")[-2].partition("_")[0]
            try:
                with damage_errors(self.archive.name), self.archive.open(member) as stream:
                    root = ElementTree.parse(stream).getroot()
            except ElementTree.ParseError as error:
                raise CollectionError(file, f"is no well-formed XML ({error})", "download it again") from None
            title = _text(root, "Focus")
            for number, pair in enumerate(root.iter("QAPair"), start=1):
                answer, question = _text(pair, "Answer"), _text(pair, "Question")
                if answer and question:
                    key = pair.find("Question").get("qid", "")  # type: ignore[union-attr]
                    yield f"medquad-{source}-{key}", title, answer, question, file, number

    @cached_property
    def _read(self) -> tuple[dict[str, Document], dict[str, Query], dict[tuple[str, str], str]]:
        """Return documents by text, queries by text, and the split of each pair of ids."""
        documents: dict[str, Document] = {}
        queries: dict[str, Query] = {}
        pairs: dict[tuple[str, str], str] = {}
        splits: dict[str, str] = {}
        taken: set[str] = set()
        for key, title, answer, question, file, number in self._pairs():
            if answer not in documents:
                key = _free(key, taken)
                taken.add(key)
                documents[answer] = Document(key, title, answer, file, number)
            document = documents[answer].id
            query = queries.setdefault(question, Query(f"medquad-q{len(queries):05d}", question, file, number))
            remainder = int(hashlib.sha1(document.encode(), usedforsecurity=False).hexdigest(), 16) % 10
            split = splits.setdefault(query.id, SPLITS.get(remainder, "train"))
            pairs[query.id, document] = split
        return documents, queries, pairs

    def documents(self) -> Iterator[Document]:
        """Read the answers. `line` is the number of the pair in its file."""
        yield from self._read[0].values()

    def queries(self) -> Iterator[Query]:
        """Read the questions."""
        yield from self._read[1].values()

    def splits(self) -> list[str]:
        """List the three splits."""
        return ["dev", "test", "train"]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read each question with its answers, grade 1."""
        answers: dict[str, list[str]] = {}
        for (query, document), of in self._read[2].items():
            if of == split:
                answers.setdefault(query, []).append(document)
        for question in self.queries():
            keys = answers.get(question.id, ())
            yield from (Judgement(question.id, key, 1, question.file, question.line) for key in keys)


def _free(key: str, taken: set[str]) -> str:
    """Return `key`, or the first of `key-2`, `key-3`, ... that is not taken."""
    number, name = 1, key
    while name in taken:
        number += 1
        name = f"{key}-{number}"
    return name


def _text(element: ElementTree.Element, path: str) -> str:
    return " ".join((element.findtext(path) or "").split())
