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
