"""Hold a batch of mined queries in flat arrays, from the candidates to the file."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from zerodr.artifacts.parquet import list_array
from zerodr.mining.positives import Positives

NAME = "mined.parquet"
JUDGED = "judged"  # a further list column where not all positives are judged
STRINGS = pa.list_(pa.string())
COLUMNS = {"query": pa.string(), "positives": STRINGS, "negatives": STRINGS, "negative_ranks": pa.list_(pa.int32())}
SCHEMA = pa.schema(list(COLUMNS.items()))
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
        best: (Q,) int64, rank of the query's best ranked positive; 0 where none is among the examined ranks.
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

    def table(self, positives: Positives, corpus: pa.Array) -> pa.Table:
        """Return rows of mined.parquet; `corpus` names the documents."""
        sizes, documents = positives.take(self.rows)
        lists = [
            list_array(sizes, corpus.take(pa.array(documents))),
            list_array(self.sizes, corpus.take(pa.array(self.document))),
            list_array(self.sizes, pa.array(self.rank, pa.int32())),
        ]
        return pa.table([positives.queries.take(pa.array(self.rows)), *lists], schema=SCHEMA)


def bare_batch(queries: int) -> MinedBatch:
    """Return all queries without negatives."""
    empty = np.zeros(0, np.int64)
    return MinedBatch(np.arange(queries), empty, empty, empty.astype(np.int32), np.zeros(queries, np.int64))
