"""Stage `score_pairs`: score mined pairs by a cross-encoder, for distillation: distinct pairs once, in blocks.

The plan of blocks and batches follows from the mined file and the settings alone, so a run that was killed and
continued gives the same bytes.
"""

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import Field

from zerodr.artifacts.progress import Progress, log_waiting
from zerodr.artifacts.record import read_state, write_json
from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.training import JoinedTexts
from zerodr.encoders.cross_encoder.network import CrossEncoder, Scorer
from zerodr.encoders.cross_encoder.pair_model import PairTokens
from zerodr.encoders.inference.encoder import encode_batches
from zerodr.encoders.inference.processor import keep_freed_memory
from zerodr.encoders.inference.token_store import TOKENS
from zerodr.errors import ArtifactError, NonFiniteScore
from zerodr.training.data.batches import WASTE, length_groups
from zerodr.training.data.examples import MINED, SCORED, Examples, load_examples
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.loop.feed import Feed
from zerodr.training.teaching.pairs import pair_tokens

log = logging.getLogger("zerodr")
HARDLY = 0.1  # of the way from chance to always; a teacher below it causes a warning
BLOCK = 2048  # pairs between two records of progress


@dataclass(frozen=True)
class ScoredPairs:
    """The pairs of a mined file.

    Attributes:
        rows, documents: (P,) row and document number of each distinct (query, document), equal queries together.
        offsets: (N + 1,) slots of each row: its first positive, then its negatives.
        known: (S,) False for the slot of a positive that does not exist.
        indices: (known slots,) which distinct pair each is.
    """

    rows: np.ndarray
    documents: np.ndarray
    offsets: np.ndarray
    known: np.ndarray
    indices: np.ndarray

    def spread(self, scores: np.ndarray) -> np.ndarray:
        """Scores of distinct pairs (P,) in slots (S,) float32; NaN where not known."""
        by_slot = np.full(len(self.known), np.nan, np.float32)
        by_slot[self.known] = scores[self.indices]
        return by_slot

    def column(self, slots: np.ndarray) -> pa.Array:
        """Scores by slot as list<float32>, null where not known."""
        values = pa.array(slots, pa.float32(), mask=~self.known)
        return pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), values)


def pairs_of(examples: Examples) -> ScoredPairs:
    """Hold the pairs to score. Rows of the same query id share their pairs."""
    positives, negatives = examples.positives, examples.negatives
    offsets = np.r_[0, np.cumsum(negatives.sizes + 1)].astype(np.int64)
    first, has = offsets[:-1], positives.sizes > 0
    is_first = np.zeros(offsets[-1], bool)
    is_first[first] = True
    documents = np.zeros(offsets[-1], np.int64)
    documents[~is_first] = negatives.values
    documents[first[has]] = positives.values[positives.offsets[:-1][has]]
    known = np.ones(offsets[-1], bool)
    known[first[~has]] = False
    rows = np.repeat(np.arange(len(examples)), negatives.sizes + 1)
    names = examples.queries.dictionary_encode().indices.to_numpy().astype(np.int64)
    codes = names[rows] * len(examples.documents) + documents
    _, index, indices = np.unique(codes[known], return_index=True, return_inverse=True)
    return ScoredPairs(rows[known][index], documents[known][index], offsets, known, indices)


class ScoreStore:
    """Scores of pairs in order, appended block by block; `progress.json` speaks only of what is on the disk.

    Args:
        folder: the stage's state.
        key: what must be equal for an earlier try's scores to be kept.

    Attributes:
        done: pairs that are scored.
        totals: counters that survive a kill with them.
    """

    def __init__(self, folder: Path, key: dict[str, Any]) -> None:
        self.path, self._progress, self.key = folder / "scores.f32", folder / "progress.json", key
        earlier = (read_state(self._progress) if self.path.exists() else None) or {}
        if earlier and earlier["key"] != key:
            log.info("an earlier try is not continued: device, version or batches changed")
            earlier = {}
        self.done, self.totals = earlier.get("done", 0), earlier.get("totals", {})
        with open(self.path, "ab") as stream:
            stream.truncate(4 * self.done)

    def add(self, scores: np.ndarray, counts: dict[str, int]) -> None:
        """Append a block of float32 scores."""
        with open(self.path, "ab") as stream:
            stream.write(scores.astype("<f4").tobytes())
            stream.flush()
            os.fsync(stream.fileno())
        self.done += len(scores)
        self.totals = {name: self.totals.get(name, 0) + count for name, count in counts.items()}
        write_json(self._progress, {"key": self.key, "done": self.done, "totals": self.totals})

    def scores(self) -> np.ndarray:
        """All scores, (done,) float32."""
        return np.fromfile(self.path, "<f4")


@dataclass(frozen=True)
class Scoring:
    """Settings of scoring pairs.

    Attributes:
        name: for messages.
        batch: most pairs of a batch.
        threads: cores to use.
        shared: tokens of texts that were asked for before.
    """

    name: str
    batch: int
    threads: int
    shared: SharedTokens


def score_all(
    scorer: Scorer, examples: Examples, pairs: ScoredPairs, store: ScoreStore, how: Scoring
) -> tuple[np.ndarray, float]:
    """Score every distinct pair, from where `store` ended; the next blocks are tokenised meanwhile.

    Returns:
        scores (P,) float32, and the share of the time that waited for tokens.

    Raises:
        NonFiniteScore: names the first pair whose score is NaN or infinite.
    """
    total, limit = len(pairs.rows), scorer.max_tokens

    def tokenized(number: int) -> list[PairTokens]:
        rows, documents = (of[number * BLOCK : (number + 1) * BLOCK] for of in (pairs.rows, pairs.documents))
        texts = examples.texts_of_queries(rows), examples.texts_of_documents(documents)
        return pair_tokens(scorer.model, how.shared, *texts)

    progress, started = Progress(how.name, total, "pairs", store.done), time.monotonic()
    feed = Feed(tokenized, -(-total // BLOCK))
    try:
        while store.done < total:
            block, tokens = slice(store.done, store.done + BLOCK), feed.get(store.done // BLOCK)
            scores = _scores(scorer, tokens, how, progress)
            _check(scores, examples, pairs.rows[block], pairs.documents[block])
            counts = {
                "tokens": sum(map(len, tokens)),
                "pairs_at_length_limit": sum(len(one) == limit for one in tokens),
            }
            store.add(scores, counts)
    finally:
        feed.close()
    how.shared.close()
    progress.finish()
    share = feed.waited / max(time.monotonic() - started, 1e-9)
    log_waiting(how.name, share)
    return store.scores(), share


def _scores(scorer: Scorer, tokens: list[PairTokens], how: Scoring, progress: Progress) -> np.ndarray:
    """Score the pairs of a block, (n,) float32."""
    waste, scores = WASTE[torch.device(scorer.device).type], np.empty(len(tokens), np.float32)
    groups = [np.array(group) for group in length_groups([len(pair) for pair in tokens], waste, how.batch)]
    for indices, encoded in encode_batches(scorer, tokens, groups, how.threads):
        scores[indices] = encoded
        progress.add(len(indices))
    return scores


def _check(scores: np.ndarray, examples: Examples, rows: np.ndarray, documents: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        query, document = examples.queries[int(rows[bad[0]])], examples.document_ids(documents[bad[:1]])[0]
        raise NonFiniteScore(
            f"query {query}, document {document}",
            f"the teacher gave {scores[bad[0]]} for the pair ({len(bad)} such pairs nearby)",
            "use precision: fp32, or another teacher",
        )


def score_statistics(slots: np.ndarray, pairs: ScoredPairs) -> dict[str, float]:
    """How well the teacher separates first positives from mined negatives; {} where no query has both.

    Args:
        slots: scores by slot, (S,).

    Returns:
        `mean_margin`, `margin_deviation`: of s(positive) - s(negative) over all negatives, in logits;
        `teacher_accuracy`: share of queries whose positive scores above all its negatives; `chance_accuracy`: what
        scores drawn at random would reach, the mean of 1 / (1 + negatives).
    """
    first, last = pairs.offsets[:-1], pairs.offsets[1:]
    whole = pairs.known[first] & (last - first > 1)
    if not whole.any():
        return {}
    sizes = (last - first - 1)[whole]
    inside = np.repeat(whole, last - first)
    inside[first] = False
    margins = np.repeat(slots[first[whole]].astype(np.float64), sizes) - slots[inside]
    least = np.minimum.reduceat(margins, np.r_[0, np.cumsum(sizes)[:-1]])
    return {
        "mean_margin": float(margins.mean()),
        "margin_deviation": float(margins.std()),
        "teacher_accuracy": float((least > 0).mean()),
        "chance_accuracy": float((1 / (1 + sizes)).mean()),
    }


def warn_of_guessing(name: str, statistics: dict[str, float]) -> None:
    """Warn when a teacher is hardly better than chance: its student would forget what it knew."""
    accuracy, chance = statistics.get("teacher_accuracy", 1.0), statistics.get("chance_accuracy", 0.0)
    if accuracy - chance < HARDLY * (1 - chance):
        log.warning(
            "%s: the teacher puts the labelled document first for %.1f %% of queries, scores drawn at random "
            "for %.1f %% (its margins deviate by %.2g). A student of this teacher learns nothing of use: train "
            "the teacher longer, or take one that is trained",
            name,
            100 * accuracy,
            100 * chance,
            statistics["margin_deviation"],
        )


class ScorePairsSettings(JoinedTexts):
    """Params of rule score_pairs."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the network; what comes out is float32."""
    batch_pairs: int = Field(64, ge=1)
    """Most pairs of a batch."""


def score_pairs(stage: Stage) -> None:
    """Stage: inputs `teacher`, `mined`, `source`; output `scored`: scored.parquet, the mined rows with `scores`.

    Raises:
        ModelError: the teacher was never trained.
        ArtifactError: the mined file is of another corpus, or has scores already.
        NonFiniteScore: names the first pair that has no finite score.
    """
    settings = validate(ScorePairsSettings, stage.params, stage.spec.name())
    os.environ.setdefault("RAYON_NUM_THREADS", str(stage.threads))  # threads of the tokenizer
    keep_freed_memory()
    model = CrossEncoder.load_trained(stage.path("teacher"), settings.precision)
    file = stage.path("mined") / MINED
    examples = load_examples(stage.path("mined"), stage.path("source"), settings.title_join)
    table, pairs = pq.read_table(file), pairs_of(examples)
    if "scores" in table.column_names:
        raise ArtifactError(file, "has a column scores already", "give the mining stage's own output")
    scorer = Scorer(model, "cuda" if torch.cuda.is_available() else "cpu")
    facts = {"device": scorer.device, "backend": scorer.backend}
    store = ScoreStore(stage.state, facts | {"torch": torch.__version__, "pairs": len(pairs.rows)})
    resumed, started = store.done, time.monotonic()
    how = Scoring(stage.spec.name(), settings.batch_pairs, stage.threads, SharedTokens(TOKENS))
    scores, waited = score_all(scorer, examples, pairs, store, how)
    slots = pairs.spread(scores)
    pq.write_table(table.append_column("scores", pairs.column(slots)), stage.output("scored") / SCORED)
    stage.metric("pairs_per_second", (len(scores) - resumed) / max(time.monotonic() - started, 1e-9))
    statistics = score_statistics(slots, pairs)
    for name, value in statistics.items():
        stage.metric(name, value)
    warn_of_guessing(stage.spec.name(), statistics)
    stage.note(
        **facts,
        precision=settings.precision,
        queries=len(examples),
        pairs=int(pairs.known.sum()),
        distinct_pairs=len(scores),
        queries_without_positive=int((examples.positives.sizes == 0).sum()),
        queries_without_negative=int((examples.negatives.sizes == 0).sum()),
        resumed_at=resumed,
        waited_for_data=round(waited, 4),
        **store.totals,
    )
