"""Read answers that came with a collection, as characters of passages, and questions that a reader learns from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from zerodr.collections.access import read_corpus, read_queries
from zerodr.errors import CollectionError, ConfigError
from zerodr.papers.berm.losses import IGNORED
from zerodr.papers.berm.reader import AnswerReader, ReadTokens
from zerodr.papers.berm.unit_table import joined
from zerodr.training.data.batches import epoch_order
from zerodr.training.data.tokens import SharedTokens

log = logging.getLogger("zerodr")
FILE = "answers.parquet"
Pair = tuple[str, str]
Answer = tuple[str, int]


@dataclass(frozen=True)
class Answers:
    """Answers by (query, document): (text, first character in the document's text).

    Attributes:
        spans: of answers whose text is at the offset that is recorded for it.
        texts: all answers of a query, for exact match and F1.
        displaced: answers whose text is not there; they are left out of `spans`.
    """

    spans: dict[Pair, list[Answer]]
    texts: dict[str, list[str]]
    displaced: int


def has_answers(collection: Path, split: str | None = None) -> bool:
    """Tell whether a normalised collection came with answers: any, or some of `split`."""
    if not (collection / FILE).exists():
        return False
    return split is None or split in pq.read_table(collection / FILE, columns=["split"])["split"].unique().to_pylist()


def read_answers(collection: Path, split: str, texts: dict[str, str]) -> Answers:
    """Answers of a split, each checked against its document.

    Args:
        collection: normalised, with answers.parquet.
        split: whose answers.
        texts: text of each document (without title) by id; answers in other documents are left out.

    Raises:
        CollectionError: no answers came along, the split has none, or none is at the offset that is recorded for it.
    """
    if not has_answers(collection):
        problem = f"has no {FILE}, so that there are no answers to learn from"
        raise CollectionError(collection.name, problem, "take a source with answers, such as squad-v1.1")
    rows = pq.read_table(collection / FILE, filters=[("split", "=", split)]).to_pylist()
    if not rows:
        available = ", ".join(sorted(set(pq.read_table(collection / FILE, columns=["split"])["split"].to_pylist())))
        raise CollectionError(f"{collection.name}/{split}", f"has no answers (have: {available})", "take another split")
    spans: dict[Pair, list[Answer]] = {}
    gold: dict[str, list[str]] = {}
    displaced, first = 0, ""
    for row in rows:
        if row["corpus_id"] not in texts:
            continue
        text, pair = texts[row["corpus_id"]], (row["query_id"], row["corpus_id"])
        for answer in row["answers"]:
            gold.setdefault(row["query_id"], []).append(answer["text"])
            if matches(text, answer):
                spans.setdefault(pair, []).append((answer["text"], answer["start"]))
            else:
                displaced += 1
                first = first or f"{row['query_id']}: {answer['text']!r} at {answer['start']}"
    where = f"{collection.name}/{split}"
    if displaced and not spans:
        problem = (
            f"none of its {displaced} answers stands in its document where it is said to stand, the first is {first}"
        )
        raise CollectionError(where, problem, "correct the starts (characters of the text without title, from 0)")
    if displaced:
        problem = "answers do not stand where they are said to stand and are left out, the first is"
        log.warning("%s: %d %s %s", where, displaced, problem, first)
    return Answers(spans, gold, displaced)


def matches(text: str, answer: dict[str, Any]) -> bool:
    """Check that a text has an answer at its recorded offset."""
    start = answer["start"]
    return bool(answer["text"]) and start is not None and start >= 0 and text.startswith(answer["text"], start)


@dataclass(frozen=True)
class AnsweredQuestions:
    """Questions with their passage and a gold answer.

    Attributes:
        ids, questions: of N questions.
        passages: distinct texts; owner: (N,) which one a question is about.
        spans: (N, 2) first and last-plus-one character of the first answer in the passage.
        answers: all gold answers of each question.
    """

    ids: list[str]
    questions: list[str]
    passages: list[str]
    owner: np.ndarray
    spans: np.ndarray
    answers: list[list[str]]

    def __len__(self) -> int:
        return len(self.ids)

    def tokens(self, reader: AnswerReader, rows: Sequence[int], shared: SharedTokens | None = None) -> list[ReadTokens]:
        """Token ids of some questions with their passages; `shared`: of texts that were asked for before."""
        passages = [self.passages[self.owner[row]] for row in rows]
        return reader.tokenize([self.questions[row] for row in rows], passages, shared)

    def targets(self, row: int, pair: ReadTokens) -> tuple[int, int]:
        """First and last token of the answer among the passage's tokens; -100 where truncation cut it off."""
        start, end = self.spans[row]
        inside = np.flatnonzero((pair.offsets[:, 1] > start) & (pair.offsets[:, 0] < end))
        whole = len(inside) and pair.offsets[inside[-1], 1] >= end
        return (int(inside[0]), int(inside[-1])) if whole else (IGNORED, IGNORED)


def load_questions(source: Path, split: str, title_join: str | None) -> tuple[AnsweredQuestions, int]:
    """Questions of a split whose answer is in its passage, and how many answers did not.

    Raises:
        CollectionError: no answers, or none at its stated position.
    """
    documents = {}
    for block in read_corpus(source):
        for key, title, text in zip(*(block.column(i).to_pylist() for i in range(3)), strict=True):
            documents[key] = (title or "", text or "")
    answers = read_answers(source, split, {key: text for key, (_, text) in documents.items()})
    table = read_queries(source)
    asked = dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    numbers: dict[str, int] = {}
    passages: list[str] = []
    begins: list[int] = []
    ids, owner, spans = [], [], []
    for (query, document), gold in answers.spans.items():
        if document not in numbers:
            numbers[document] = len(passages)
            text, begin = joined(*documents[document], title_join)
            passages.append(text)
            begins.append(begin)
        text, start = gold[0]
        begin = begins[numbers[document]] + start
        ids.append(query)
        owner.append(numbers[document])
        spans.append((begin, begin + len(text)))
    questions = AnsweredQuestions(
        ids,
        [asked.get(key) or "" for key in ids],
        passages,
        np.array(owner, np.int64),
        np.array(spans, np.int64),
        [answers.texts[key] for key in ids],
    )
    return questions, answers.displaced


@dataclass(frozen=True)
class QuestionBatch:
    """Rows of the questions of one step, or of a part of them."""

    step: int
    rows: np.ndarray

    def shard(self, number: int, shards: int) -> QuestionBatch:
        """Return the `number`-th of `shards` equal slices, in order."""
        size = len(self.rows) // shards
        return QuestionBatch(self.step, self.rows[number * size : (number + 1) * size])


@dataclass(frozen=True)
class QuestionStream:
    """The batches of a stage: pure functions of (seed, step)."""

    count: int
    size: int
    seed: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.size > self.count:
            problem = f"a batch of {self.size} questions is larger than the {self.count} that there are"
            raise ConfigError("training.batch_queries", problem, f"set it to at most {self.count}")

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of an epoch."""
        return self.count // self.size

    def batch(self, step: int) -> QuestionBatch:
        """The batch of step `step`."""
        epoch, index = divmod(step, self.steps_per_epoch)
        order = epoch_order(self.seed, epoch, self.count)
        return QuestionBatch(step, order[index * self.size : (index + 1) * self.size])
