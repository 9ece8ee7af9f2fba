"""Mined queries on their way from the candidates to the file: a batch of them in flat arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from zerodr.artifacts.parquet import list_array
from zerodr.mining.positives import Positives

NAME = "mined.parquet"
JUDGED = "judged"  # a further list column where not all positives are judged
SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("positives", pa.list_(pa.string())),
        ("negatives", pa.list_(pa.string())),
        ("negative_ranks", pa.list_(pa.int32())),
    ]
)
DICTIONARY = ["positives.list.element", "negatives.list.element"]
ROW_GROUP = 4096  # queries


@dataclass(frozen=True)
class MinedBatch:
    """Negatives of Q queries.

    Attributes:
        rows: (Q,) rows of the positives' queries.
        query: (n,) int64, which of the Q queries a negative belongs to, ascending.
        rank: (n,) int64, its rank among the candidates, from 1, ascending within a query.
        document: (n,) int32, its corpus row.
        best: (Q,) int64, rank of the query's best ranked positive; 0 where none is among the ranks looked at.
    """

    rows: np.ndarray
    query: np.ndarray
    rank: np.ndarray
    document: np.ndarray
    best: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """(Q,) int64, negatives of each query."""
        return np.bincount(self.query, minlength=len(self.rows))

    def table(self, known: Positives, corpus: pa.Array) -> pa.Table:
        """Rows of mined.parquet; `corpus` names the documents."""
        own, documents = known.take(self.rows)
        lists = [
            list_array(own, corpus.take(pa.array(documents))),
            list_array(self.sizes, corpus.take(pa.array(self.document))),
            list_array(self.sizes, pa.array(self.rank, pa.int32())),
        ]
        return pa.table([known.queries.take(pa.array(self.rows)), *lists], schema=SCHEMA)


def bare_batch(queries: int) -> MinedBatch:
    """All queries without negatives."""
    nothing = np.zeros(0, np.int64)
    return MinedBatch(np.arange(queries), nothing, nothing, nothing.astype(np.int32), np.zeros(queries, np.int64))
