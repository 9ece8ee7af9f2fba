"""Stage `learn_attention`: learn a query's attention to documents from the source; no vector of the bi-encoder changes.

An encoder-only form of MoMA (Ge et al. 2023, eq. 6 to 8): documents that a ranking finds are read with the query. The
weight of what is read starts where the recipe says; at 0 the first step is the plain bi-encoder.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.rankings import iterate_rankings
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import corpus_ids, split_queries
from zerodr.config.base import validate
from zerodr.config.feedback import AttentionTraining, Feedback
from zerodr.encoders.folder.attention import Attention
from zerodr.errors import ArtifactError, CollectionError
from zerodr.losses.contrastive import info_nce
from zerodr.mining.positives import known_positives, numbered, rows_among
from zerodr.retrieval.feedback import open_embeddings, vectors_of
from zerodr.retrieval.vectors import Vectors

BLOCK = 2048  # queries in memory at once
EVERY = 100  # steps between points of the curve
PROJECTION_RATE = 0.1  # of the learning rate


class LearnSettings(Feedback):
    """Settings of `learn_attention`."""

    collection: str
    """Name of the source."""
    attention: AttentionTraining
    """How it is learned."""
    exclude_self: bool = False
    """The document with a question's id is the question itself: it is not read, and no negative."""


class TaughtQuestions(NamedTuple):
    """Questions of the source with what was found for them.

    Attributes:
        vectors: float32 [n, d].
        ranked: corpus rows int64 [n, depth], best first; -1 where a ranking is shorter.
        scores: float32 [n, documents] of the first documents, 0 where there is none.
        positives: corpus rows of each question's positives, the one that is learned from first.
    """

    vectors: np.ndarray
    ranked: np.ndarray
    scores: np.ndarray
    positives: list[np.ndarray]


class AttentionBatch(NamedTuple):
    """Tensors of one step.

    Attributes:
        queries: [n, d].
        documents: [n, k, d].
        scores: [n, k].
        missing: [n, k], True where there is no document.
        candidates: [m, d]; the first n are the positives.
        masked: [n, m], candidates that are other positives of a question.
    """

    queries: Tensor
    documents: Tensor
    scores: Tensor
    missing: Tensor
    candidates: Tensor
    masked: Tensor


class LearnedAttention(nn.Module):
    """The formula of `zerodr.encoders.folder.attention` with gradients.

    Args:
        start: where temperature and weight start.
        dimension: of vectors.
        width: of projections.
    """

    def __init__(self, start: Feedback, dimension: int, width: int) -> None:
        super().__init__()
        self.inverse_temperature = nn.Parameter(torch.tensor(float(start.inverse_temperature)))
        self.weight = nn.Parameter(torch.tensor(float(start.weight)))
        bound = dimension**-0.5
        self.queries = nn.Parameter(torch.empty(width, dimension).uniform_(-bound, bound))
        self.documents = nn.Parameter(torch.empty(width, dimension).uniform_(-bound, bound))

    def forward(self, batch: AttentionBatch) -> Tensor:
        """Augment the queries of a batch; return vectors of length 1 [n, d]."""
        queries, documents, scores, missing = batch[:4]
        logits = self.inverse_temperature * scores
        logits = logits + torch.einsum("nkh,nh->nk", documents @ self.documents.T, queries @ self.queries.T)
        shares = logits.masked_fill(missing, float("-inf")).softmax(-1)
        read = torch.einsum("nk,nkd->nd", shares, documents)
        return F.normalize(queries + self.weight * read, dim=-1)

    def attention(self) -> Attention:
        """Return the learned numbers."""
        queries, documents = (one.detach().numpy().copy() for one in (self.queries, self.documents))
        return Attention(self.inverse_temperature.item(), self.weight.item(), queries, documents)


def learn_attention(stage: Stage) -> None:
    """Read inputs `queries`, `corpus`, `ranking` and `collection`; write the folder `attention`.

    Raises:
        ArtifactError: embeddings or ranking don't fit the collection.
        CollectionError: too few of the split's questions have a positive.
    """
    settings = validate(LearnSettings, stage.params, stage.spec.rule)
    training = settings.attention
    shards = [Vectors.open(path) for path in stage.paths("corpus")]
    questions = read_questions(stage, settings)
    draw = np.random.default_rng(stage.seed)
    order = draw.permutation(len(questions.positives))
    held_out, taught = order[: training.dev_queries], order[training.dev_queries :]
    if len(taught) < training.batch_queries:
        problem = f"has {len(order)} questions with a positive, expected at least {training.dev_queries} held out and"
        where = f"{settings.collection}/{training.source_split}"
        raise CollectionError(where, f"{problem} {training.batch_queries} to learn from", "set dev_queries lower")
    torch.manual_seed(stage.seed)
    network = LearnedAttention(settings, shards[0].dimension, training.width)
    optimizer = make_optimizer(network, training)
    rates = [group["lr"] for group in optimizer.param_groups]
    dev = np.random.default_rng(stage.seed + 1)
    held = make_batch(questions, shards, held_out, settings, dev)
    before = _loss(network, held, training)
    stage.metric("dev_loss", before, 0)
    progress = Progress(f"learn attention on {settings.collection}", training.steps, "steps")
    losses: list[float] = []
    for step in range(training.steps):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (1 - step / training.steps)
        rows = draw.choice(taught, training.batch_queries, replace=False)
        loss = loss_of(network, make_batch(questions, shards, rows, settings, draw), training)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % EVERY == 0 or step + 1 == training.steps:
            stage.metric("loss", float(np.mean(losses)), step + 1)
            stage.metric("dev_loss", _loss(network, held, training), step + 1)
            losses = []
        progress.add(1)
    progress.finish()
    learned = network.attention()
    folder = stage.output("attention")
    learned.save(folder)
    stage.metric("weight", learned.weight)
    stage.metric("inverse_temperature", learned.inverse_temperature)
    stage.note(questions=len(order), dev_loss_before=before, dev_loss=_loss(network, held, training))


def make_optimizer(network: LearnedAttention, training: AttentionTraining) -> torch.optim.Optimizer:
    """Return AdamW; projections have a tenth of the rate, the two numbers no decay."""
    numbers = [network.inverse_temperature, network.weight]
    projections = [network.queries, network.documents]
    rate = training.learning_rate
    return torch.optim.AdamW(
        [
            {"params": numbers, "lr": rate, "weight_decay": 0.0},
            {"params": projections, "lr": PROJECTION_RATE * rate, "weight_decay": training.weight_decay},
        ]
    )


def loss_of(network: LearnedAttention, batch: AttentionBatch, training: AttentionTraining) -> Tensor:
    """Cross entropy of each question's positive among all candidates of the batch, in nats (MoMA eq. 7)."""
    augmented = network(batch)
    positive = torch.arange(len(batch.queries))
    return info_nce(augmented @ batch.candidates.T, positive, batch.masked, training.inverse_temperature)


def _loss(network: LearnedAttention, batch: AttentionBatch, training: AttentionTraining) -> float:
    with torch.no_grad():
        return loss_of(network, batch, training).item()


def read_questions(stage: Stage, settings: LearnSettings) -> TaughtQuestions:
    """Read the split's questions that have a positive and for which documents were found.

    Raises:
        ArtifactError: embeddings or ranking don't fit the collection.
    """
    training, folder, path = settings.attention, stage.path("collection"), stage.path("ranking")
    ids, names = corpus_ids(folder), strings(split_queries(folder, training.source_split)["id"])
    vectors, _ = open_embeddings(stage, len(names), len(ids))
    positives = known_positives(folder, training.source_split, ids)
    ends = np.cumsum(positives.sizes)
    of_query = dict(zip(positives.queries.to_pylist(), np.split(positives.documents, ends[:-1]), strict=True))
    rows, ranked, scores, taught = [], [], [], []
    for block in iterate_rankings(path, BLOCK):
        at = rows_among(block.queries, names)
        if (at < 0).any():
            unknown = block.queries[int(np.flatnonzero(at < 0)[0])]
            raise ArtifactError(path, f"query {unknown} is none of split {training.source_split}", AGAIN)
        numbers = numbered(path, block.documents, ids, settings.collection)
        owner = np.repeat(np.arange(len(at)), block.sizes)
        itself = rows_among(block.queries, ids)[owner] if settings.exclude_self else np.full(len(owner), -1)
        others = np.flatnonzero(numbers != itself)
        stops = np.cumsum(np.bincount(owner[others], minlength=len(at)))
        for row, name, entries in zip(at, block.queries.to_pylist(), np.split(others, stops[:-1]), strict=True):
            if name in of_query and len(entries):
                rows.append(row)
                ranked.append(_filled(numbers[entries], training.depth, -1))
                scores.append(_filled(block.scores[entries], settings.documents, 0))
                taught.append(of_query[name])
    if not rows:
        raise ArtifactError(path, "found nothing for any question that has a positive", AGAIN)
    return TaughtQuestions(vectors.array[rows], np.stack(ranked).astype(np.int64), np.stack(scores), taught)


def _filled(values: np.ndarray, size: int, rest: float) -> np.ndarray:
    cut = values[:size]
    return np.concatenate([cut, np.full(size - len(cut), rest, cut.dtype)])


def make_batch(
    questions: TaughtQuestions,
    shards: list[Vectors],
    rows: np.ndarray,
    settings: LearnSettings,
    draw: np.random.Generator,
) -> AttentionBatch:
    """Gather the tensors of questions `rows`; negatives are drawn from the first documents that are no positive."""
    training = settings.attention
    ranked, positives = questions.ranked[rows], [questions.positives[row] for row in rows]
    width = min(settings.documents, ranked.shape[1])
    read = ranked[:, :width]
    negatives = []
    for one, known in zip(ranked[:, : training.first], positives, strict=True):
        free = one[(one >= 0) & ~np.isin(one, known)]
        count = min(training.negatives_per_query, len(free))
        negatives.append(draw.choice(free, count, replace=False) if count else free[:0])
    firsts = np.array([known[0] for known in positives], np.int64)
    candidates = np.concatenate([firsts, *negatives])
    masked = np.stack([np.isin(candidates, known) for known in positives])
    np.fill_diagonal(masked, False)  # the first candidate of a question is its target
    vectors = vectors_of(shards, np.maximum(read, 0).ravel()).reshape(*read.shape, -1)
    return AttentionBatch(
        torch.from_numpy(questions.vectors[rows]),
        torch.from_numpy(vectors),
        torch.from_numpy(questions.scores[rows][:, :width]),
        torch.from_numpy(read < 0),
        torch.from_numpy(vectors_of(shards, candidates)),
        torch.from_numpy(masked),
    )
