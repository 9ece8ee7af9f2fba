"""Write mined queries batch by batch, and count them: ranks of negatives and positives, suspects, repeated ones."""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from zerodr.artifacts.parquet import list_array, open_parquet
from zerodr.collections.access import read_corpus
from zerodr.mining.negatives import PairSet
from zerodr.mining.positives import Positives, numbered, rows_among

NAME = "mined.parquet"
JUDGED = "judged"  # a further list column where not all positives are judged
STRINGS = pa.list_(pa.string())
COLUMNS = {"query": pa.string(), "positives": STRINGS, "negatives": STRINGS, "negative_ranks": pa.list_(pa.int32())}
SCHEMA = pa.schema(list(COLUMNS.items()))
SCORES = pa.field("scores", pa.list_(pa.float32()))
LED_SCHEMA = SCHEMA.append(SCORES)  # of rankings that teach
DICTIONARY = ["positives.list.element", "negatives.list.element"]
ROW_GROUP = 4096  # queries


@dataclass(frozen=True)
class Leaders:
    """First documents of Q rankings, which take the place of positives, with the scores of all chosen documents.

    Attributes:
        query: (m,) int64, which of the Q queries have a leader, ascending.
        document: (m,) int32, its corpus row.
        score: (m,) float32, its score.
        scores: (n,) float32, of the negatives.
    """

    query: np.ndarray
    document: np.ndarray
    score: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class MinedBatch:
    """Negatives of Q queries.

    Attributes:
        rows: (Q,) rows of the positives' queries.
        query: (n,) int64, which of the Q queries a negative belongs to, ascending.
        rank: (n,) int64, its rank among the candidates, from 1, ascending within a query.
        document: (n,) int32, its corpus row.
        best: (Q,) int64, rank of the query's best ranked positive; 0 where none is among the examined ranks.
        leaders: in place of the positives; None: the known ones.
    """

    rows: np.ndarray
    query: np.ndarray
    rank: np.ndarray
    document: np.ndarray
    best: np.ndarray
    leaders: Leaders | None = None

    @property
    def sizes(self) -> np.ndarray:
        """(Q,) int64, negatives of each query."""
        return np.bincount(self.query, minlength=len(self.rows))

    def table(self, positives: Positives, corpus: pa.Array) -> pa.Table:
        """Return rows of mined.parquet; `corpus` names the documents."""
        sizes, documents = positives.take(self.rows)
        if self.leaders is not None:
            sizes, documents = np.bincount(self.leaders.query, minlength=len(self.rows)), self.leaders.document
        lists = [
            list_array(sizes, corpus.take(pa.array(documents))),
            list_array(self.sizes, corpus.take(pa.array(self.document))),
            list_array(self.sizes, pa.array(self.rank, pa.int32())),
        ]
        columns = [positives.queries.take(pa.array(self.rows)), *lists]
        if self.leaders is None:
            return pa.table(columns, schema=SCHEMA)
        return pa.table([*columns, self._scores(self.leaders)], schema=LED_SCHEMA)

    def _scores(self, leaders: Leaders) -> pa.Array:
        """Scores of each query's leader (NaN where it has none), then of its negatives."""
        first = np.full(len(self.rows), np.nan, np.float32)
        first[leaders.query] = leaders.score
        owner = np.r_[np.arange(len(self.rows)), self.query]
        order = np.argsort(owner, kind="stable")
        return list_array(self.sizes + 1, pa.array(np.r_[first, leaders.scores][order], pa.float32()))


def bare_batch(queries: int) -> MinedBatch:
    """Return all queries without negatives."""
    empty = np.zeros(0, np.int64)
    return MinedBatch(np.arange(queries), empty, empty, empty.astype(np.int32), np.zeros(queries, np.int64))


log = logging.getLogger("zerodr")
BINS, TOP = 10, 10
BLOCK = 1 << 16  # queries of the previous stage in memory as text


class Previous:
    """Negatives of the chain's previous stage, as pairs (query row, corpus row).

    Raises:
        ArtifactError: the file is no mined file, or names documents that the corpus lacks.
    """

    def __init__(self, path: Path, queries: pa.Array, corpus: pa.Array, collection: str) -> None:
        rows, documents = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        self.common = np.zeros(len(queries), bool)
        with open_parquet(path, SCHEMA, LED_SCHEMA) as file:
            for batch in file.iter_batches(batch_size=BLOCK, columns=["query", "negatives"]):
                row, lists = rows_among(batch.column("query"), queries), batch.column("negatives")
                lists, row = lists.filter(pa.array(row >= 0)), row[row >= 0]
                self.common[row] = True
                rows.append(np.repeat(row, lists.value_lengths().to_numpy(zero_copy_only=False)))
                documents.append(numbered(path, lists.flatten(), corpus, collection))
        self.pairs = PairSet(np.concatenate(rows), np.concatenate(documents), len(corpus))


class MiningTally:
    """Statistics of a stage.

    Args:
        positives: of the mined queries.
        depth, count: upper limits of examined ranks, and of negatives of a query.
        texts: (M,) number of each document's text (`text_numbers`).
        previous: negatives of the chain's previous stage.
    """

    def __init__(
        self, positives: Positives, depth: int, count: int, texts: np.ndarray, previous: Previous | None
    ) -> None:
        self._positives, self._count, self._texts, self._previous = positives, count, texts, previous
        self._ranks, self._best = np.zeros(depth + 1, np.int64), np.zeros(depth + 1, np.int64)
        self._used = np.zeros(len(texts), bool)
        self._counts = dict.fromkeys(("short", "empty", "above", "known", "copies", "common"), 0)
        self._overlap = 0.0

    def add(self, batch: MinedBatch) -> None:
        """Count a batch."""
        sizes, counts = batch.sizes, self._counts
        positives, documents = self._positives.take(batch.rows)
        owner = np.repeat(np.arange(len(positives)), positives)
        known = PairSet(owner, documents, len(self._texts)).contains(batch.query, batch.document)
        same = PairSet(owner, self._texts[documents], len(self._texts))
        self._ranks += np.bincount(batch.rank, minlength=len(self._ranks))
        self._best += np.bincount(batch.best, minlength=len(self._best))
        self._used[batch.document] = True
        counts["short"] += int(((sizes > 0) & (sizes < self._count)).sum())
        counts["empty"] += int((sizes == 0).sum())
        counts["above"] += int((batch.rank < batch.best[batch.query]).sum())
        counts["known"] += int(known.sum())
        counts["copies"] += int((same.contains(batch.query, self._texts[batch.document]) & ~known).sum())
        if self._previous is not None:
            repeated = self._previous.pairs.contains(batch.rows[batch.query], batch.document)
            common = self._previous.common[batch.rows] & (sizes > 0)
            counts["common"] += int(common.sum())
            repeats = np.bincount(batch.query[repeated], minlength=len(sizes))
            self._overlap += float((repeats[common] / sizes[common]).sum())

    def facts(self, skip: int) -> dict[str, Any]:
        """Return all counts as JSON values; None where there is nothing to measure."""
        negatives, queries, counts = int(self._ranks.sum()), int(self._best.sum()), self._counts
        ranked, ranks = self._best.copy(), np.arange(len(self._ranks))
        ranked[0] = 0
        overlap = {"common": counts["common"], "share": _ratio(self._overlap, counts["common"])}
        sizes = {"asked": len(self._positives.all_queries), "mined": queries}
        return {
            "queries": sizes | {name: counts[name] for name in ("short", "empty")},
            "positives": {"known": len(self._positives.documents), "missing": self._positives.missing},
            "negatives": {
                "kept": negatives,
                "distinct": int(self._used.sum()),
                "mean_rank": _ratio(int(self._ranks @ ranks), negatives),
                "median_rank": _median(self._ranks),
                "top10_share": _ratio(int(self._ranks[: TOP + 1].sum()), negatives),
            },
            "best_positive": {
                "found_share": _ratio(int(ranked.sum()), queries),
                "median_rank": _median(ranked),
                "reciprocal_rank": _ratio(float(ranked[1:] @ (1 / ranks[1:])), queries),
            },
            "suspects": {
                "above_best_positive": counts["above"],
                "above_share": _ratio(counts["above"], negatives),
                "copies_of_positives": counts["copies"],
                "known_positives": counts["known"],
            },
            "previous": overlap if self._previous else None,
            "histogram": histogram(self._ranks, skip),
        }


def histogram(counts: np.ndarray, skip: int) -> list[dict[str, int]]:
    """Count negatives by rank in at most ten bins of (nearly) equal width over the ranks skip + 1 to depth.

    Args:
        counts: (depth + 1,) negatives of each rank.
        skip: top ranks that mining ignored.
    """
    width = len(counts) - 1 - skip
    edges = skip + np.arange(min(BINS, width) + 1) * width // min(BINS, width)
    bins = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [{"from": low + 1, "to": high, "negatives": int(counts[low + 1 : high + 1].sum())} for low, high in bins]


def _ratio(amount: float, total: int) -> float | None:
    return amount / total if total else None


def _median(counts: np.ndarray) -> float | None:
    """Compute the median of values given by how often each occurs."""
    total = int(counts.sum())
    if not total:
        return None
    middle = np.searchsorted(np.cumsum(counts), [(total - 1) // 2, total // 2], side="right")
    return float(middle.mean())


def text_numbers(source: Path) -> np.ndarray:
    """Number the documents' texts, int64 (M,): equal numbers mean equal texts.

    White space around a text does not count. A blank text is replaced by its title.
    Texts are compared by 64 bits of BLAKE2b: two different ones of 10 million share them with a probability of 3e-6.
    """
    digests = bytearray()
    for block in read_corpus(source, columns=("title", "text")):
        for title, text in zip(*(block.column(name).to_pylist() for name in ("title", "text")), strict=True):
            content = (text or "").strip() or f"title: {title}"
            digests += hashlib.blake2b(content.encode(), digest_size=8).digest()
    return np.unique(np.frombuffer(bytes(digests), "<u8"), return_inverse=True)[1].astype(np.int64)
