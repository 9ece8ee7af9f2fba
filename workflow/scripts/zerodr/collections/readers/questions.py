"""Read passages with their questions: MLQuestions, NQ pairs from MLQuestions and QED, and MedQuAD."""

import csv
import hashlib
from collections.abc import Iterator
from functools import cached_property
from xml.etree import ElementTree

from zerodr.collections.archives import Location, damage_errors, find, read_lines
from zerodr.collections.readers.base import Document, Judgement, Query, Reader, bad_line, read_json_lines, text_of
from zerodr.errors import CollectionError

SPLITS = {0: "test", 1: "dev"}


class PairsReader(Reader):
    """Base of readers of TSV with a header: row number, `input_text` (a passage), `target_text` (its question).

    A passage that appears twice is one document, under its first id.
    """

    def rows(self, name: str) -> Iterator[tuple[int, dict[str, str], Location]]:
        """Read number (from 0), named cells and location of each row; the header is line 1."""
        member = str(find(self.archive, name))
        table = csv.DictReader((line for _, line in read_lines(self.archive, member)), delimiter="\t")
        for number, row in enumerate(table):
            location = Location(f"{self.archive.name}/{member}", number + 2)
            if None in row or None in row.values():
                raise bad_line(*location, f"expected {len(table.fieldnames or ())} cells", "replace the file")
            yield number, row, location


class MlQuestionsReader(PairsReader):
    """Reader of format `mlquestions`: all passages are in `test_passages.tsv`."""

    @cached_property
    def _documents(self) -> dict[str, Document]:
        documents: dict[str, Document] = {}
        for number, row, location in self.rows("test_passages.tsv"):
            text = row["input_text"]
            documents.setdefault(text, Document(f"mlq-p{number:05d}", "", text, *location))
        return documents

    def documents(self) -> Iterator[Document]:
        """Read the passages."""
        yield from self._documents.values()

    def queries(self) -> Iterator[Query]:
        """Read the questions of the two splits."""
        for split in self.splits():
            for number, row, location in self.rows(f"{split}.tsv"):
                yield Query(f"mlq-{split}-{number:04d}", row["target_text"], *location)

    def unlabelled(self) -> Iterator[Query]:
        """Read the questions without passages."""
        for number, row, location in self.rows("questions_unaligned.tsv"):
            yield Query(f"mlq-u{number}", row["target_text"], *location)

    def splits(self) -> list[str]:
        """List the two splits."""
        return ["dev", "test"]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read each question with its passage, grade 1."""
        for number, row, location in self.rows(f"{split}.tsv"):
            if row["input_text"] not in self._documents:
                raise bad_line(*location, "names a passage that test_passages.tsv lacks", "replace the file")
            key = self._documents[row["input_text"]].id
            yield Judgement(f"mlq-{split}-{number:04d}", key, 1, *location)


class NqPairsReader(PairsReader):
    """Reader of format `nq-pairs`: `test_nq.tsv` of MLQuestions is `train`, QED's other questions are `dev`."""

    @cached_property
    def _read(self) -> tuple[dict[str, Document], dict[str, list[tuple[Query, str]]]]:
        """Return documents by text, and queries with their document's text by split."""
        documents: dict[str, Document] = {}
        pairs: dict[str, list[tuple[Query, str]]] = {"train": [], "dev": []}
        for number, row, location in self.rows("test_nq.tsv"):
            text, question = row["input_text"], row["target_text"]
            documents.setdefault(text, Document(f"nq-mcgill-{number:05d}", "", text, *location))
            pairs["train"].append((Query(f"nqq-mcgill-{number:05d}", question, *location), text))
        known = {query.text.strip().casefold() for query, _ in pairs["train"]}
        for location, value in read_json_lines(self.archive, str(find(self.archive, "qed-dev.jsonlines"))):
            names = ("title_text", "paragraph_text", "question_text")
            title, text, question = (text_of(value, (name,), *location) for name in names)
            documents.setdefault(text, Document(f"nq-qed-{value['example_id']}", title, text, *location))
            if question.strip().casefold() not in known:
                pairs["dev"].append((Query(f"nqq-qed-{value['example_id']}", question, *location), text))
        return documents, pairs

    def documents(self) -> Iterator[Document]:
        """Read the passages."""
        yield from self._read[0].values()

    def queries(self) -> Iterator[Query]:
        """Read the questions of the two splits."""
        yield from (query for pairs in self._read[1].values() for query, _ in pairs)

    def splits(self) -> list[str]:
        """List the two splits."""
        return sorted(self._read[1])

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read each question with its passage, grade 1."""
        documents, pairs = self._read
        for query, text in pairs[split]:
            yield Judgement(query.id, documents[text].id, 1, query.file, query.line)


class MedquadReader(Reader):
    """Reader of format `medquad`: `<number>_<source>_QA/*.xml` with pairs of a question and its answer.

    An answer is a document, titled with the file's focus; equal answers are one document, empty ones are left out. A
    question belongs to the split of its first answer: SHA-1 of the id modulo 10, 0 is `test`, 1 `dev`, others `train`.
    """

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
