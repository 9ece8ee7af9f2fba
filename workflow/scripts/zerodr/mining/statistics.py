"""What mining found, counted batch by batch: ranks of negatives and positives, suspects, overlap with another stage."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from zerodr.artifacts.parquet import open_parquet
from zerodr.mining.batch import SCHEMA, MinedBatch
from zerodr.mining.negatives import PairSet
from zerodr.mining.positives import Positives, numbered, rows_among

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
        with open_parquet(path, SCHEMA) as file:
            for batch in file.iter_batches(batch_size=BLOCK, columns=["query", "negatives"]):
                row, lists = rows_among(batch.column("query"), queries), batch.column("negatives")
                lists, row = lists.filter(pa.array(row >= 0)), row[row >= 0]
                self.common[row] = True
                rows.append(np.repeat(row, lists.value_lengths().to_numpy(zero_copy_only=False)))
                documents.append(numbered(path, lists.flatten(), corpus, collection))
        self.pairs = PairSet(np.concatenate(rows), np.concatenate(documents), len(corpus))


class Tally:
    """Statistics of a stage.

    Args:
        known: positives of the mined queries.
        depth, count: ranks that are looked at, negatives that a query keeps.
        texts: (M,) number of each document's text (`text_numbers`).
        previous: negatives of the chain's previous stage.
    """

    def __init__(self, known: Positives, depth: int, count: int, texts: np.ndarray, previous: Previous | None) -> None:
        self._known, self._count, self._texts, self._previous = known, count, texts, previous
        self._ranks, self._best = np.zeros(depth + 1, np.int64), np.zeros(depth + 1, np.int64)
        self._used = np.zeros(len(texts), bool)
        self._seen = dict.fromkeys(("short", "empty", "above", "known", "copies", "common"), 0)
        self._kept = 0.0

    def add(self, batch: MinedBatch) -> None:
        """Count a batch."""
        sizes, seen = batch.sizes, self._seen
        own, documents = self._known.take(batch.rows)
        owner = np.repeat(np.arange(len(own)), own)
        known = PairSet(owner, documents, len(self._texts)).contains(batch.query, batch.document)
        same = PairSet(owner, self._texts[documents], len(self._texts))
        self._ranks += np.bincount(batch.rank, minlength=len(self._ranks))
        self._best += np.bincount(batch.best, minlength=len(self._best))
        self._used[batch.document] = True
        seen["short"] += int(((sizes > 0) & (sizes < self._count)).sum())
        seen["empty"] += int((sizes == 0).sum())
        seen["above"] += int((batch.rank < batch.best[batch.query]).sum())
        seen["known"] += int(known.sum())
        seen["copies"] += int((same.contains(batch.query, self._texts[batch.document]) & ~known).sum())
        if self._previous is not None:
            again = self._previous.pairs.contains(batch.rows[batch.query], batch.document)
            counted = self._previous.common[batch.rows] & (sizes > 0)
            seen["common"] += int(counted.sum())
            kept = np.bincount(batch.query[again], minlength=len(sizes))
            self._kept += float((kept[counted] / sizes[counted]).sum())

    def facts(self, skip: int) -> dict[str, Any]:
        """All of it, as JSON values; None where there is nothing to measure."""
        negatives, queries, seen = int(self._ranks.sum()), int(self._best.sum()), self._seen
        found, ranks = self._best.copy(), np.arange(len(self._ranks))
        found[0] = 0
        asked = len(self._known.asked)
        overlap = {"common": seen["common"], "share": _ratio(self._kept, seen["common"])}
        return {
            "queries": {"asked": asked, "mined": queries, "short": seen["short"], "empty": seen["empty"]},
            "positives": {"known": len(self._known.documents), "missing": self._known.missing},
            "negatives": {
                "kept": negatives,
                "distinct": int(self._used.sum()),
                "mean_rank": _ratio(int(self._ranks @ ranks), negatives),
                "median_rank": _median(self._ranks),
                "top10_share": _ratio(int(self._ranks[: TOP + 1].sum()), negatives),
            },
            "best_positive": {
                "found_share": _ratio(int(found.sum()), queries),
                "median_rank": _median(found),
                "reciprocal_rank": _ratio(float(found[1:] @ (1 / ranks[1:])), queries),
            },
            "suspects": {
                "above_best_positive": seen["above"],
                "above_share": _ratio(seen["above"], negatives),
                "copies_of_positives": seen["copies"],
                "known_positives": seen["known"],
            },
            "previous": overlap if self._previous is not None else None,
            "histogram": histogram(self._ranks, skip),
        }


def histogram(counts: np.ndarray, skip: int) -> list[dict[str, int]]:
    """Negatives by rank in at most ten bins of (nearly) equal width over the ranks skip + 1 to depth.

    Args:
        counts: (depth + 1,) negatives of each rank.
        skip: top ranks that were left out.
    """
    width = len(counts) - 1 - skip
    edges = skip + np.arange(min(BINS, width) + 1) * width // min(BINS, width)
    return [
        {"from": int(low) + 1, "to": int(high), "negatives": int(counts[low + 1 : high + 1].sum())}
        for low, high in zip(edges[:-1], edges[1:], strict=True)
    ]


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _median(counts: np.ndarray) -> float | None:
    """Median of values given by how often each occurs."""
    total = int(counts.sum())
    if not total:
        return None
    middle = np.searchsorted(np.cumsum(counts), [(total - 1) // 2, total // 2], side="right")
    return float(middle.mean())
