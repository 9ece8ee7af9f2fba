"""Read DuReader 2.0, preprocessed for reading comprehension, as retrieval: `<split>set/{search,zhidao}.<split>.json`.

As DDR takes it: questions are queries, the most related paragraph of each document that holds an answer is relevant,
and these paragraphs with their titles are the corpus. A line is an object: question; answer_docs, the numbers of such
documents; documents with title, paragraphs, most_related_para. Ids are digests of texts, so equal texts are one.
"""

import hashlib
from collections.abc import Iterator

from zerodr.collections.archives import Archive
from zerodr.collections.readers.base import Document, Judgement, Query, Reader, bad_line, read_json_lines, text_of
from zerodr.errors import CollectionError

SPLITS, TOPICS = ("train", "dev"), ("search", "zhidao")


class DureaderReader(Reader):
    """Reader of format `dureader`."""

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        names = archive.names()
        self._files = {
            split: [name for topic in TOPICS for name in names if name.endswith(f"{split}set/{topic}.{split}.json")]
            for split in SPLITS
        }
        if not self._files["train"]:
            raise CollectionError(
                archive.name, "has no trainset/search.train.json", "take DuReader's preprocessed archive"
            )

    def documents(self) -> Iterator[Document]:
        """Read the related paragraphs of all splits, equal ones once."""
        seen = set()
        for split in self.splits():
            for _, document in self._pairs(split):
                if document.id not in seen:
                    seen.add(document.id)
                    yield document

    def queries(self) -> Iterator[Query]:
        """Read the questions that have a related paragraph, equal ones once."""
        seen = set()
        for split in self.splits():
            for query, _ in self._pairs(split):
                if query.id not in seen:
                    seen.add(query.id)
                    yield query

    def splits(self) -> list[str]:
        """List the splits that have files."""
        return [split for split in SPLITS if self._files[split]]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the related paragraphs of questions, grade 1, equal pairs once."""
        seen = set()
        for query, document in self._pairs(split):
            if (query.id, document.id) not in seen:
                seen.add((query.id, document.id))
                yield Judgement(query.id, document.id, 1, query.file, query.line)

    def _pairs(self, split: str) -> Iterator[tuple[Query, Document]]:
        """Read question and related paragraph of each document with an answer."""
        for member in self._files[split]:
            file = f"{self.archive.name}/{member}"
            for line, value in read_json_lines(self.archive, member):
                question = _one_line(text_of(value, ("question",), file, line))
                query = Query(_digest(question), question, file, line)
                entries = value.get("documents", [])
                for number in value.get("answer_docs", []):
                    if not 0 <= number < len(entries):
                        raise bad_line(file, line, f"answer_docs names document {number} of {len(entries)}")
                    entry = entries[number]
                    related, paragraphs = entry.get("most_related_para", -1), entry.get("paragraphs", [])
                    if 0 <= related < len(paragraphs):
                        title, text = _one_line(entry.get("title") or ""), _one_line(paragraphs[related])
                        whole = f"{title} {text}" if title else text
                        yield query, Document(_digest(whole), title, text, file, line)


def _one_line(text: str) -> str:
    return text.strip().translate({10: " ", 9: " ", 13: " "})


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
