"""Stage `learn_mixture`: MoMA's episodes over vectors that stay (Ge et al. 2023, section 3.2).

An episode searches the memories with the augmenter's projection of each question, learns to read what was found
(eq. 7, with negatives of its own ranking, eq. 8), then lets this attention teach the projection (eq. 9 to 12).
Questions of another split of the source show what each episode changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import corpus_ids, split_queries
from zerodr.config.base import validate
from zerodr.config.feedback import MixtureTraining
from zerodr.errors import CollectionError
from zerodr.losses.contrastive import info_nce
from zerodr.mining.positives import known_positives, rows_among
from zerodr.papers.moma.losses import attention_distillation
from zerodr.papers.moma.mixture import Mixture, Ranked, Reader
from zerodr.papers.moma.search_memory import check_size
from zerodr.retrieval.learn_attention import PROJECTION_RATE
from zerodr.retrieval.search import self_rows
from zerodr.retrieval.vectors import Vectors

FACTS = "episodes.tsv"
SOURCE = "source"


class LearnMixtureSettings(MixtureTraining):
    """Params of rule learn_mixture."""

    collection: str
    """Name of the source."""
    held_out_split: str
    """Its split whose questions show what an episode changed."""
    exclude_self: bool = False
    """The source's document with a question's id is the question itself: it is not read, and no negative."""


class Questions(NamedTuple):
    """Questions with their judged documents.

    Attributes:
        vectors: float32 [n, d].
        positives: rows of the pool, an array a question, the one that is learned from first.
        itself: row of the pool that is the question itself, -1 for none; None where no document is.
    """

    vectors: np.ndarray
    positives: list[np.ndarray]
    itself: np.ndarray | None = None

    def skipped(self, start: int, stop: int) -> np.ndarray | None:
        """Return the questions' own rows among those from `start` to `stop`, from 0, -1 for none."""
        if self.itself is None:
            return None
        return np.where((self.itself >= start) & (self.itself < stop), self.itself - start, -1)


class Pool(NamedTuple):
    """Vectors of all documents: the memories', then the source's where it is no memory.

    Attributes:
        mixture: what is searched for documents to read.
        source: what is searched for negatives of the main model.
        vectors: float32 [n, d].
        start: row of the source's first document.
    """

    mixture: Mixture
    source: Mixture
    vectors: np.ndarray
    start: int

    @classmethod
    def open(cls, stage: Stage, settings: LearnMixtureSettings) -> Pool:
        """Read the inputs `memories`, `collections`, `corpus` and `collection`."""
        names = list(dict.fromkeys(settings.collection if name == SOURCE else name for name in settings.memories))
        mixture = Mixture.open(stage, names)
        vectors = np.concatenate([Vectors.open(path).array for path in stage.paths("corpus")])
        ids = corpus_ids(stage.path("collection"))
        source = Mixture(vectors, ids, [settings.collection], np.array([len(ids)]))
        if settings.collection not in names:
            return cls(mixture, source, np.concatenate([mixture.vectors, vectors]), len(mixture.vectors))
        index = names.index(settings.collection)
        return cls(mixture, source, mixture.vectors, int(mixture.ends[index]) - len(vectors))

    def questions(
        self, stage: Stage, split: str, queries: str, most: int, draw: np.random.Generator | None, exclude_self: bool
    ) -> Questions:
        """Read questions of a split that have a judged document: drawn ones, or such at equal distances."""
        folder = stage.path("collection")
        names = strings(split_queries(folder, split)["id"])
        positives = known_positives(folder, split, self.source.ids)
        rows = rows_among(positives.queries, names)
        count = min(most, len(rows))
        every = np.linspace(0, len(rows) - 1, count).astype(np.int64)
        chosen = every if draw is None else np.sort(draw.choice(len(rows), count, replace=False))
        sizes, documents = positives.take(chosen)
        known = np.split(documents.astype(np.int64) + self.start, np.cumsum(sizes)[:-1])
        same = self_rows(names.take(pa.array(rows[chosen])), self.source.ids) if exclude_self else None
        itself = None if same is None else np.where(same < 0, -1, same + self.start)
        return Questions(Vectors.open(stage.path(queries)).array[rows[chosen]], known, itself)

    def depth(self, settings: LearnMixtureSettings, banned: list[np.ndarray]) -> int:
        """Compute ranks of the augmenter's ranking that leave each question its documents without the banned ones.

        Raises:
            CollectionError: the mixture holds fewer.
        """
        most = max(int((rows < self.mixture.ends[-1]).sum()) for rows in banned)
        if most:
            sizes = np.diff(self.mixture.ends, prepend=0).tolist()
            check_size(dict(zip(self.mixture.names, sizes, strict=True)), settings.documents + most)
        return max(settings.augmenter.depth, settings.documents + most)


def learn_mixture(stage: Stage) -> None:
    """Read `queries`, `held_out`, `corpus`, `collection`, `memories` and `collections`; write the folder `attention`.

    Raises:
        CollectionError: fewer questions have a judged document than a batch holds, or the mixture is too small.
    """
    settings = validate(LearnMixtureSettings, stage.params, stage.spec.rule)
    training, draw = settings.attention, np.random.default_rng(stage.seed)
    torch.manual_seed(stage.seed)
    pool = Pool.open(stage, settings)
    alone = settings.exclude_self
    taught = pool.questions(stage, training.source_split, "queries", settings.questions, draw, alone)
    held = pool.questions(stage, settings.held_out_split, "held_out", training.dev_queries, None, alone)
    if len(taught.positives) < training.batch_queries:
        problem = f"has {len(taught.positives)} questions with a judged document, expected {training.batch_queries}"
        raise CollectionError(f"{settings.collection}/{training.source_split}", problem, "set batch_queries lower")
    banned = taught.positives if settings.exclude_positives else [np.zeros(0, np.int64)] * len(taught.positives)
    depth = pool.depth(settings, banned)
    starts = settings.inverse_temperature, settings.weight
    network = Reader(taught.vectors.shape[1], training.width, *starts)
    progress = Progress(f"learn to read memories on {settings.collection}", settings.episodes, "episodes")
    facts, retrieved, negatives = list[dict[str, object]](), None, None
    for episode in range(settings.episodes + 1):
        if retrieved is None or settings.augmenter.labels != "frozen":
            retrieved = _retrieved(stage, pool.mixture, network, taught, depth)
            shown = _retrieved(stage, pool.mixture, network, held, settings.documents)
        facts += _facts(episode, pool, network, held, shown)
        if episode == settings.episodes:
            break
        read = retrieved.without(banned, settings.documents)
        vectors = network.read(pool.mixture, taught.vectors, read)[0] if episode else taught.vectors
        skip = taught.skipped(pool.start, pool.start + len(pool.source.vectors))
        negatives = pool.source.search(stage, vectors, training.first + 1, skip).rows + pool.start
        losses = learn_to_read(network, pool, taught, read, negatives, settings, draw)
        _record(stage, "loss", losses, episode + 1)
        if settings.augmenter.labels != "frozen":
            shares = network.read(pool.mixture, taught.vectors, read)[1]
            losses = learn_to_find(network, pool, taught, retrieved, read, shares, settings, draw)
            _record(stage, "augmenter_loss", losses, episode + 1)
        progress.add(1)
    progress.finish()
    folder = stage.output("attention")
    network.save(folder)
    pd.DataFrame(facts).to_csv(folder / FACTS, sep="\t", index=False)
    stage.metric("weight", network.weight.item())
    stage.metric("inverse_temperature", network.inverse_temperature.item())
    stage.note(questions=len(taught.positives), held_out=len(held.positives))


def _record(stage: Stage, name: str, losses: list[float], episode: int) -> None:
    if losses:
        stage.metric(name, float(np.mean(losses)), episode)


def _retrieved(stage: Stage, mixture: Mixture, network: Reader, questions: Questions, depth: int) -> Ranked:
    with torch.no_grad():
        asked = network.asked(torch.from_numpy(questions.vectors)).numpy()
    return mixture.search(stage, asked, depth, questions.skipped(0, len(mixture.vectors)))


def _facts(episode: int, pool: Pool, network: Reader, held: Questions, retrieved: Ranked) -> list[dict[str, object]]:
    """Return, by memory, shares of documents and attention, and how many questions read a judged document."""
    attention = network.read(pool.mixture, held.vectors, retrieved)[1]
    relevant = np.mean([np.isin(known, rows).any() for known, rows in zip(held.positives, retrieved.rows, strict=True)])
    documents = pool.mixture.shares(retrieved.rows, np.ones_like(attention))
    attended = pool.mixture.shares(retrieved.rows, attention)
    about = {"episode": episode, "questions": len(held.positives), "relevant": float(relevant)}
    return [about | {"memory": name, "documents": documents[name], "attention": attended[name]} for name in documents]


def learn_to_read(
    network: Reader,
    pool: Pool,
    taught: Questions,
    read: Ranked,
    ranked: np.ndarray,
    settings: MixtureTraining,
    draw: np.random.Generator,
) -> list[float]:
    """Learn attention, values and weight by the cross entropy of a judged document (MoMA eq. 7); return the losses.

    Args:
        read: documents of each question.
        ranked: rows of the pool that the main model ranks first for each question, negatives but for judged ones.
    """
    training, rate = settings.attention, settings.attention.learning_rate
    numbers, projections = [network.inverse_temperature, network.weight], [network.queries, network.documents]
    groups = [
        {"params": numbers, "lr": rate, "weight_decay": 0.0},
        {"params": projections, "lr": PROJECTION_RATE * rate, "weight_decay": training.weight_decay},
        {"params": [network.values], "lr": PROJECTION_RATE * rate, "weight_decay": 0.0},  # it starts as the identity
    ]

    def loss(rows: np.ndarray) -> Tensor:
        known = [taught.positives[row] for row in rows]
        hard = [
            _drawn(one[~np.isin(one, out)], training.negatives_per_query, draw)
            for one, out in zip(ranked[rows], known, strict=True)
        ]
        candidates = np.concatenate([[one[0] for one in known], *hard])
        masked = np.stack([np.isin(candidates, one) for one in known])
        np.fill_diagonal(masked, False)  # the first candidate of a question is its target
        documents = torch.from_numpy(pool.vectors[read.rows[rows]])
        vectors = network(torch.from_numpy(taught.vectors[rows]), documents, torch.from_numpy(read.scores[rows]))[0]
        scores = vectors @ torch.from_numpy(pool.vectors[candidates]).T
        positive = torch.arange(len(rows))
        return info_nce(scores, positive, torch.from_numpy(masked), training.inverse_temperature)

    return _steps(groups, loss, len(taught.positives), settings, draw)


def learn_to_find(
    network: Reader,
    pool: Pool,
    taught: Questions,
    retrieved: Ranked,
    read: Ranked,
    shares: np.ndarray,
    settings: MixtureTraining,
    draw: np.random.Generator,
) -> list[float]:
    """Learn the projection that finds documents from the attention to those that were read; return the losses.

    Args:
        retrieved: the augmenter's own ranking, among which negatives are drawn (MoMA eq. 12).
        read: documents of each question, with their shares of attention [n, k].
    """
    augmenter, heat = settings.augmenter, settings.attention.inverse_temperature
    most = np.argsort(-shares, axis=1, kind="stable")[:, : augmenter.selected]
    chosen = np.take_along_axis(read.rows, most, 1)
    labels = {
        "attention": lambda row: np.union1d(taught.positives[row], chosen[row]),
        "attention_alone": lambda row: chosen[row],
        "judged": lambda row: taught.positives[row],
    }

    def contrast(rows: np.ndarray) -> Tensor:
        candidates = []
        for row in rows:
            positives = labels[augmenter.labels](row)
            out = np.union1d(positives, taught.positives[row])
            ranked = retrieved.rows[row, : augmenter.depth]
            free = ranked[~np.isin(ranked, out)]
            if not len(free):  # all that was found is judged relevant
                free = np.setdiff1d(np.arange(len(pool.mixture.vectors)), out)
            negatives = _drawn(free, augmenter.negatives_per_query, draw)
            candidates.append(np.concatenate([draw.choice(positives, 1), negatives]))
        asked = network.asked(torch.from_numpy(taught.vectors[rows]))
        scores = torch.einsum("nd,nkd->nk", asked, torch.from_numpy(pool.vectors[np.stack(candidates)]))
        return info_nce(scores, torch.zeros(len(rows), dtype=torch.int64), None, heat)

    def distil(rows: np.ndarray) -> Tensor:
        asked = network.asked(torch.from_numpy(taught.vectors[rows]))
        scores = torch.einsum("nd,nkd->nk", asked, torch.from_numpy(pool.vectors[read.rows[rows]]))
        return attention_distillation(heat * scores, torch.from_numpy(np.log(shares[rows])))

    groups = [{"params": [network.augmenter], "lr": augmenter.learning_rate, "weight_decay": 0.0}]
    return _steps(groups, distil if augmenter.labels == "adist" else contrast, len(shares), settings, draw)


def _steps(
    groups: list[dict[str, Any]],
    loss_of: Callable[[np.ndarray], Tensor],
    questions: int,
    settings: MixtureTraining,
    draw: np.random.Generator,
) -> list[float]:
    training = settings.attention
    optimizer, losses = torch.optim.AdamW(groups), list[float]()
    rates = [group["lr"] for group in optimizer.param_groups]
    for step in range(training.steps):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (1 - step / training.steps)
        loss = loss_of(draw.choice(questions, training.batch_queries, replace=False))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _drawn(rows: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """Draw rows, some twice where there are fewer; none where there is none."""
    return draw.choice(rows, count, replace=len(rows) < count) if len(rows) else rows
