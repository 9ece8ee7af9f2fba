"""Train a reader: the loss of spans, exact match and F1, and how a stage makes, runs and evaluates it."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from zerodr.encoders.cross_encoder.initial import init_pair_model
from zerodr.encoders.network.moving import Features, features_on, on_device
from zerodr.papers.berm.answers import AnsweredQuestions, QuestionBatch, QuestionStream, load_questions
from zerodr.papers.berm.losses import IGNORED
from zerodr.papers.berm.reader import AnswerReader, ReadTokens
from zerodr.papers.berm.settings import AnswerStage, ReaderSettings
from zerodr.training.data.batches import WASTE, length_groups
from zerodr.training.distributed.processes import Group
from zerodr.training.finetune import FinetuneTask
from zerodr.training.kinds import Lessons, ModelKind
from zerodr.training.loop.gradcache import Forward, Share, set_random

BATCH_PAIRS = 64
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
HELD_OUT = 3  # first word of a seed: which dev questions are asked


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
    count, (starts, ends) = both.shape[2], both
    scores = starts[:, :, None] + ends[:, None, :]  # (B, first, last)
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
    forward: Forward, questions: AnsweredQuestions, rows: Sequence[int], negatives: int, group: Group
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
            cut = IGNORED in questions.targets(row, pair)
            sums += torch.tensor([exact_match(answer, gold), f1(answer, gold), float(cut)], dtype=torch.float64)
    reader.train(was_training)
    means = [float(group.total(value.to(device, torch.float32))) / max(len(rows), 1) for value in sums]
    return dict(zip(("exact_match", "f1", "cut_off"), means, strict=True))


def predict(
    reader: Any, questions: AnsweredQuestions, rows: Sequence[int], pairs: Sequence[ReadTokens], device: str
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


def answers(task: FinetuneTask, model: Any) -> Lessons:
    """Questions with answers of the source.

    Raises:
        CollectionError: a split has no answer that its passage holds at the recorded offset.
        ConfigError: fewer questions than a batch.
    """
    params, settings = task.params, task.params.settings
    assert isinstance(settings, AnswerStage), "only such stages train readers"
    training, seed = settings.training, task.stage.seed
    questions, displaced = load_questions(task.source, params.source_split, params.title_join)
    dev, rows = questions, np.zeros(0, np.int64)
    if training.dev_queries:
        dev, _ = load_questions(task.source, settings.dev_split, params.title_join)
        count = min(training.dev_queries, len(dev))
        rows = np.sort(np.random.default_rng([HELD_OUT, seed]).choice(len(dev), count, replace=False))
    facts = {"training_questions": len(questions), "displaced_answers": displaced, "dev_questions": len(rows)}
    stream = QuestionStream(len(questions), training.batch_queries, (seed, params.schedule.stage_index))
    return Lessons(questions, np.arange(len(questions)), dev, rows, stream, facts)


CREATE = partial(init_pair_model, model_type=AnswerReader, settings_type=ReaderSettings)
READER = ModelKind(CREATE, AnswerReader.load_to_train, ReadForward, evaluate_reader, answers)
