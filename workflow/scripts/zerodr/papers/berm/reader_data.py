"""Data and measures of a reader: questions with answers, the loss of spans, exact match and F1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from zerodr.collections.access import read_corpus, read_queries
from zerodr.encoders.network.moving import Features, features_on, on_device
from zerodr.errors import ConfigError
from zerodr.papers.berm.answers import read_answers
from zerodr.papers.berm.reader_network import Reader, ReadTokens
from zerodr.papers.berm.segment_units import joined
from zerodr.training.data.batches import epoch_order
from zerodr.training.data.grouping import WASTE, length_groups
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, Share, set_random

IGNORED = -100
BATCH_PAIRS = 64
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Questions:
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

    def tokens(self, reader: Reader, rows: Sequence[int], shared: SharedTokens | None = None) -> list[ReadTokens]:
        """Token ids of some questions with their passages; `shared`: of texts that were asked for before."""
        passages = [self.passages[self.owner[row]] for row in rows]
        return reader.tokenize([self.questions[row] for row in rows], passages, shared)

    def targets(self, row: int, pair: ReadTokens) -> tuple[int, int]:
        """First and last token of the answer among the passage's tokens; -100 where truncation cut it off."""
        start, end = self.spans[row]
        inside = np.flatnonzero((pair.offsets[:, 1] > start) & (pair.offsets[:, 0] < end))
        whole = len(inside) and pair.offsets[inside[-1], 1] >= end
        return (int(inside[0]), int(inside[-1])) if whole else (IGNORED, IGNORED)


def load_questions(source: Path, split: str, title_join: str | None) -> tuple[Questions, int]:
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
    questions = Questions(
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
            raise ConfigError(
                "training.batch_queries",
                f"a batch of {self.size} questions is larger than the {self.count} that there are",
                f"set it to at most {self.count}",
            )

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of an epoch."""
        return self.count // self.size

    def batch(self, step: int) -> QuestionBatch:
        """The batch of step `step`."""
        epoch, index = divmod(step, self.steps_per_epoch)
        order = epoch_order(self.seed, epoch, self.count)
        return QuestionBatch(step, order[index * self.size : (index + 1) * self.size])


@dataclass(frozen=True)
class Spans:
    """Token ids of (a process's part of) a batch, and the first and last token of each answer; padded by group."""

    tokens: list[ReadTokens]
    targets: np.ndarray
    groups: list[tuple[str, list[int]]]
    features: list[Features] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)


class ReadForward(Forward):
    """How a reader is trained: mean over the answers of all processes of -(log p(first) + log p(last)) / 2."""

    unit = "questions"
    has_vectors = False

    def prepare(self, batch: QuestionBatch, group: Group) -> Share:
        """This process's questions of a micro-batch."""
        share = batch.shard(group.rank, group.world)
        pairs = self.examples.tokens(self.model, share.rows.tolist(), self.shared)
        targets = [self.examples.targets(int(row), pair) for row, pair in zip(share.rows, pairs, strict=True)]
        waste = WASTE[torch.device(self.device).type]
        groups = [("pair", indices) for indices in length_groups([len(pair) for pair in pairs], waste)]
        return Share(batch, self.padded(Spans(pairs, np.array(targets), groups)))

    def features(self, texts: Spans, number: int) -> Features:
        """Pad one group, with the `targets` (n, 2)."""
        indices = texts.groups[number][1]
        targets = torch.from_numpy(texts.targets[indices])
        return self.model.features([texts.tokens[index] for index in indices]) | {"targets": targets}

    def names(self, batch: QuestionBatch, count: int) -> list[str]:
        """Look up the ids of the first `count` questions."""
        return [self.examples.ids[int(row)] for row in batch.rows[:count]]

    def totals(self, texts: Spans, group: Group) -> dict[str, float | Tensor]:
        """Answers of all processes that truncation left; of several processes on the device."""
        answers = float((texts.targets[:, 0] != IGNORED).sum())
        if group.world == 1:
            return {"span": max(answers, 1.0)}
        return {"span": group.total(on_device(torch.tensor(answers), self.device)).clamp(min=1.0)}

    def run(
        self, texts: Spans, number: int, seed: Sequence[int], totals: Mapping[str, float | Tensor]
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """One group's share of the loss."""
        set_random(seed, number)
        features = features_on(texts.features[number], self.device)
        targets = features.pop("targets")
        both = self.model.logits(features)
        first, last = (
            functional.cross_entropy(both[side], targets[:, side], ignore_index=IGNORED, reduction="sum")
            for side in (0, 1)
        )
        return None, {"span": (first + last) / 2 / totals["span"]}


def best_spans(both: Tensor, longest: int) -> Tensor:
    """First and last token of the best span of at most `longest` tokens. (2, B, P) logits -> (B, 2) int64."""
    count = both.shape[2]
    scores = both[0][:, :, None] + both[1][:, None, :]  # (B, first, last)
    allowed = torch.ones(count, count, dtype=torch.bool, device=both.device).triu().tril(longest - 1)
    best = scores.masked_fill(~allowed, -torch.inf).flatten(1).argmax(1)
    return torch.stack([best // count, best % count], 1)


def plain(answer: str) -> str:
    """An answer without case, punctuation, articles and extra white space, as SQuAD compares them."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, gold: Sequence[str]) -> float:
    """1 when the answer is one of the gold ones."""
    return float(any(plain(answer) == plain(one) for one in gold))


def f1(answer: str, gold: Sequence[str]) -> float:
    """Best overlap of words with a gold answer, in [0, 1]."""
    return max((_overlap(plain(answer).split(), plain(one).split()) for one in gold), default=0.0)


def _overlap(words: list[str], gold: list[str]) -> float:
    common = sum((Counter(words) & Counter(gold)).values())
    if not words or not gold:
        return float(words == gold)
    return 2 * common / (len(words) + len(gold))


def evaluate_reader(
    forward: Forward, questions: Questions, rows: Sequence[int], negatives: int, group: Group
) -> dict[str, float]:
    """Exact match and F1, means over questions, and the share whose answer truncation cut off; each process a part.

    It takes what every kind's evaluation is given; `negatives` are not for readers.
    """
    reader, device = forward.model, forward.device
    was_training = reader.training
    reader.eval()
    mine = list(rows)[group.rank :: group.world]
    sums = torch.zeros(3, dtype=torch.float64)
    for first in range(0, len(mine), BATCH_PAIRS):
        batch = mine[first : first + BATCH_PAIRS]
        pairs = questions.tokens(reader, batch, forward.shared)
        for row, pair, answer in zip(batch, pairs, predict(reader, questions, batch, pairs, device), strict=True):
            gold = questions.answers[row]
            cut = questions.targets(row, pair)[0] == IGNORED
            sums += torch.tensor([exact_match(answer, gold), f1(answer, gold), float(cut)], dtype=torch.float64)
    reader.train(was_training)
    means = [float(group.total(value.to(device, torch.float32))) / max(len(rows), 1) for value in sums]
    return dict(zip(("exact_match", "f1", "cut_off"), means, strict=True))


def predict(
    reader: Any, questions: Questions, rows: Sequence[int], pairs: Sequence[ReadTokens], device: str
) -> list[str]:
    """The best answer to each question, empty where the passage has no token."""
    with torch.no_grad():
        logits = reader.logits(features_on(reader.features(pairs), device))
        spans = best_spans(logits, reader.contract.answer_tokens).tolist()
    answers = []
    for row, pair, (first, last) in zip(rows, pairs, spans, strict=True):
        text = questions.passages[questions.owner[row]]
        answers.append(text[pair.offsets[first, 0] : pair.offsets[last, 1]] if len(pair.offsets) else "")
    return answers
