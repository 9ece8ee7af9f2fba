"""Read Chinese collections: cMedQA v2, Multi-CPR, DuReader 2.0 and DuReader retrieval."""

import hashlib
import json
from collections.abc import Iterator

from zerodr.collections.archives import Archive, Location, damage_errors, find, open_nested
from zerodr.collections.readers.base import (
    Document,
    Judgement,
    Query,
    Reader,
    bad_line,
    grade_of,
    read_cells,
    read_json_lines,
    read_qrels,
    text_of,
)
from zerodr.errors import CollectionError, nearest

SPLITS = {"train": 3, "dev": 4, "test": 4}
READING_SPLITS, TOPICS = ("train", "dev"), ("search", "zhidao")


class CmedqaReader(Reader):
    """Reader of format `cmedqav2`: `answer.csv` (ans_id, question_id, content), `question.csv`, and candidates.

    Content may hold commas without quotes, so lines are split at the first commas. The repository has each file in a
    zip file (`answer.zip`), which is read inside the repository's archive. Training candidates name a positive answer;
    those of dev and test have a label, and label 1 is relevant.
    """

    def _file(self, name: str) -> tuple[Archive, str]:
        """Return the archive that holds `name`, and its member: plain, or in a zip of the same stem."""
        plain = find(self.archive, name, required=False)
        if plain:
            return self.archive, plain
        nested = open_nested(self.archive, str(find(self.archive, name.rpartition(".")[0] + ".zip")))
        return nested, str(find(nested, name))

    def _rows(self, name: str, cells: int) -> Iterator[tuple[Location, list[str]]]:
        rows = read_cells(*self._file(name), cells, ",")
        return ((location, values) for location, values in rows if location.line > 1)

    def documents(self) -> Iterator[Document]:
        """Read the answers."""
        for location, (answer, _, content) in self._rows("answer.csv", 3):
            yield Document(answer, "", unquote(content), *location)

    def queries(self) -> Iterator[Query]:
        """Read the questions."""
        for location, (question, content) in self._rows("question.csv", 2):
            yield Query(question, unquote(content), *location)

    def splits(self) -> list[str]:
        """List the three candidates files."""
        return sorted(SPLITS)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the relevant candidates, grade 1."""
        if split not in SPLITS:
            raise CollectionError(f"{self.archive.name}/{split}", "is no split", f"known: {', '.join(SPLITS)}")
        for location, (question, answer, *rest) in self._rows(f"{split}_candidates.txt", SPLITS[split]):
            label = rest[1:]  # dev and test have a column between; training names a negative answer, and no label
            if not label or grade_of(label[0].strip(), *location) > 0:
                if not answer:
                    raise bad_line(*location, "names no answer")
                yield Judgement(question, answer, 1, *location)


def unquote(content: str) -> str:
    """Remove surrounding blanks and quotes of CSV content."""
    content = content.strip()
    if len(content) >= 2 and content[0] == content[-1] == '"':
        content = content[1:-1].replace('""', '"')
    return content


class MultiCprReader(Reader):
    """Reader of format `multi-cpr`: corpus, `<split>.query.txt` (id, text) and `qrels.<split>.tsv` (TREC).

    The corpus is `corpus.tsv` or `corpus_split_*.tsv`. `member` is the domain's folder in the repository, `data/ecom`.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        inside = f"/{member}/"
        self._files = {
            n.rpartition("/")[2]: n
            for n in archive.names()
            if n.rpartition("/")[0].endswith(inside[:-1]) or n.startswith(inside[1:])
        }
        self._corpus = sorted(n for n in self._files if n == "corpus.tsv" or n.startswith("corpus_split_"))
        if not self._corpus:
            raise CollectionError(archive.name, f"has no {member}/corpus.tsv", nearest(member, archive.names()[:1000]))

    def documents(self) -> Iterator[Document]:
        """Read the passages."""
        for name in self._corpus:
            for location, (pid, text) in read_cells(self.archive, self._files[name], 2):
                yield Document(pid, "", text, *location)

    def queries(self) -> Iterator[Query]:
        """Read the queries of all splits."""
        for split in self.splits():
            for location, (qid, text) in read_cells(self.archive, self._files[f"{split}.query.txt"], 2):
                yield Query(qid, text, *location)

    def splits(self) -> list[str]:
        """List the splits that have both queries and judgements."""
        names = [n.split(".")[1] for n in self._files if n.startswith("qrels.") and n.endswith(".tsv")]
        return sorted(n for n in names if f"{n}.query.txt" in self._files)

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the lines of `qrels.<split>.tsv`."""
        return read_qrels(self.archive, self._files[f"qrels.{split}.tsv"], trec=True)


class DureaderReader(Reader):
    """Reader of format `dureader`: DuReader 2.0, preprocessed for reading comprehension, as retrieval.

    As DDR takes it: questions are queries, the most related paragraph of each document that holds an answer is
    relevant, and these paragraphs with their titles are the corpus. A line of
    `<split>set/{search,zhidao}.<split>.json` is an object: question; answer_docs, the numbers of such documents;
    documents with title, paragraphs, most_related_para. Ids are digests of texts, so equal texts are one.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        names = archive.names()
        self._files = {
            split: [name for topic in TOPICS for name in names if name.endswith(f"{split}set/{topic}.{split}.json")]
            for split in READING_SPLITS
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
        return [split for split in READING_SPLITS if self._files[split]]

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
            for location, value in read_json_lines(self.archive, member):
                question = _one_line(text_of(value, ("question",), *location))
                query = Query(_digest(question), question, *location)
                entries = value.get("documents", [])
                for number in value.get("answer_docs", []):
                    if not 0 <= number < len(entries):
                        raise bad_line(*location, f"answer_docs names document {number} of {len(entries)}")
                    entry = entries[number]
                    related, paragraphs = entry.get("most_related_para", -1), entry.get("paragraphs", [])
                    if 0 <= related < len(paragraphs):
                        title, text = _one_line(entry.get("title") or ""), _one_line(paragraphs[related])
                        whole = f"{title} {text}" if title else text
                        yield query, Document(_digest(whole), title, text, *location)


def _one_line(text: str) -> str:
    return text.strip().translate({10: " ", 9: " ", 13: " "})


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


class DureaderRetrievalReader(Reader):
    """Reader of format `dureader-retrieval`: the baseline archive, with `passage-collection/` and `dev/dev.json`.

    A line of `part-0*` is `-`, title (empty), text, `0`, separated by tabs; `passage2id.map.json` gives the id of the
    n-th line of all parts. A line of `dev.json`: question_id, question, answer_paragraphs with paragraph_id. The
    training files name passages by text, not by id, and are not read; format `dureader` has training pairs.
    """

    def __init__(self, archive: Archive, member: str = "") -> None:
        super().__init__(archive, member)
        self._map = str(find(archive, "passage-collection/passage2id.map.json"))
        folder = self._map.rpartition("/")[0]
        self._files = sorted(name for name in archive.names() if name.startswith(f"{folder}/part-"))
        self._dev = str(find(archive, "dev/dev.json"))

    def documents(self) -> Iterator[Document]:
        """Read the passages with their ids from the map."""
        with damage_errors(self.archive.name), self.archive.open(self._map) as stream:
            ids = json.load(stream)
        index = 0
        for member in self._files:
            for location, (_, title, text, _) in read_cells(self.archive, member, 4):
                pid = ids.get(str(index))
                if pid is None:
                    raise bad_line(*location, f"passage {index} has no id in {self._map}", "replace the archive")
                yield Document(pid, title, text, *location)
                index += 1

    def queries(self) -> Iterator[Query]:
        """Read the questions of the development set."""
        for location, value in read_json_lines(self.archive, self._dev):
            question, text = (text_of(value, (key,), *location) for key in ("question_id", "question"))
            yield Query(question, text, *location)

    def splits(self) -> list[str]:
        """List the development set."""
        return ["dev"]

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read the answer paragraphs, grade 1."""
        del split
        for location, value in read_json_lines(self.archive, self._dev):
            for paragraph in value.get("answer_paragraphs", ()):
                yield Judgement(value["question_id"], text_of(paragraph, ("paragraph_id",), *location), 1, *location)
