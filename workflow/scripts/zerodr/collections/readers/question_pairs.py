"""Read tables of passages with their questions: MLQuestions, and NQ pairs from MLQuestions and QED.

The tables are TSV with a header: row number, `input_text` (a passage), `target_text` (its question). A passage that
appears twice is one document, under its first id.
"""

import csv
from collections.abc import Iterator
from functools import cached_property

from zerodr.collections.archives import find, read_lines
from zerodr.collections.readers.base import Document, Judgement, Query, Reader, bad_line, read_json_lines, text_of


class PairsReader(Reader):
    """Base of these readers."""

    def rows(self, name: str) -> Iterator[tuple[int, dict[str, str], str]]:
        """Read number (from 0), named cells and file of each row."""
        member = str(find(self.archive, name))
        file = f"{self.archive.name}/{member}"
        table = csv.DictReader((line for _, line in read_lines(self.archive, member)), delimiter="\t")
        for number, row in enumerate(table):
            if None in row or None in row.values():
                raise bad_line(file, number + 2, f"expected {len(table.fieldnames or ())} cells", "replace the file")
            yield number, row, file


class MlQuestionsReader(PairsReader):
    """Reader of format `mlquestions`: all passages are in `test_passages.tsv`."""

    @cached_property
    def _documents(self) -> dict[str, Document]:
        documents: dict[str, Document] = {}
        for number, row, file in self.rows("test_passages.tsv"):
            text = row["input_text"]
            documents.setdefault(text, Document(f"mlq-p{number:05d}", "", text, file, number + 2))
        return documents

    def documents(self) -> Iterator[Document]:
        """Read the passages."""
        yield from self._documents.values()

    def queries(self) -> Iterator[Query]:
        """Read the questions of the two splits."""
        for split in self.splits():
            for number, row, file in self.rows(f"{split}.tsv"):
                yield Query(f"mlq-{split}-{number:04d}", row["target_text"], file, number + 2)

    def unlabelled(self) -> Iterator[Query]:
        """Read the questions without passages."""
        for number, row, file in self.rows("questions_unaligned.tsv"):
            yield Query(f"mlq-u{number}", row["target_text"], file, number + 2)

    def splits(self) -> list[str]:
        """List the two splits."""
        return ["dev", "test"]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read each question with its passage, grade 1."""
        for number, row, file in self.rows(f"{split}.tsv"):
            if row["input_text"] not in self._documents:
                raise bad_line(file, number + 2, "names a passage that test_passages.tsv lacks", "replace the file")
            key = self._documents[row["input_text"]].id
            yield Judgement(f"mlq-{split}-{number:04d}", key, 1, file, number + 2)


class NqPairsReader(PairsReader):
    """Reader of format `nq-pairs`: `test_nq.tsv` of MLQuestions is `train`, QED's other questions are `dev`."""

    @cached_property
    def _read(self) -> tuple[dict[str, Document], dict[str, list[tuple[Query, str]]]]:
        """Return documents by text, and queries with their document's text by split."""
        documents: dict[str, Document] = {}
        pairs: dict[str, list[tuple[Query, str]]] = {"train": [], "dev": []}
        for number, row, file in self.rows("test_nq.tsv"):
            text, question = row["input_text"], row["target_text"]
            documents.setdefault(text, Document(f"nq-mcgill-{number:05d}", "", text, file, number + 2))
            pairs["train"].append((Query(f"nqq-mcgill-{number:05d}", question, file, number + 2), text))
        known = {query.text.strip().casefold() for query, _ in pairs["train"]}
        member = str(find(self.archive, "qed-dev.jsonlines"))
        file = f"{self.archive.name}/{member}"
        for line, value in read_json_lines(self.archive, member):
            title, text, question = (
                text_of(value, (key,), file, line) for key in ("title_text", "paragraph_text", "question_text")
            )
            documents.setdefault(text, Document(f"nq-qed-{value['example_id']}", title, text, file, line))
            if question.strip().casefold() not in known:
                pairs["dev"].append((Query(f"nqq-qed-{value['example_id']}", question, file, line), text))
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
