"""Check a run against the judgements of a split, and hold both as arrays: the only input of the measures."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from zerodr.artifacts.trec import strings
from zerodr.errors import ArtifactError, ProtocolError

STEP = "write runs through artifacts.trec.total_order"


class EncodedColumn(NamedTuple):
    """A column of ids: codes (N,) int of names (V,) object."""

    codes: np.ndarray
    names: np.ndarray


@dataclass(frozen=True)
class JudgedRun:
    """One row an entry of the run; rows of a query are contiguous and in total order.

    Attributes:
        queries: ids of the split's judged queries, (Q,). The denominator of every mean.
        query: row of `queries`, (N,) int.
        document: document ids, (N,).
        score: (N,) float32.
        rank: rank within the query, from 0, (N,) int.
        grade: relevance grade, negative labels raised to 0; 0 where there is no judgement, (N,) int.
        judged: the query-document pair has a judgement, (N,) bool.
        known: some query of the split has judged the document, (N,) bool.
        qrels: columns `query`, `document`, `grade` (negative labels raised to 0), of the split's queries.
    """

    queries: np.ndarray
    query: np.ndarray
    document: np.ndarray
    score: np.ndarray
    rank: np.ndarray
    grade: np.ndarray
    judged: np.ndarray
    known: np.ndarray
    qrels: pd.DataFrame

    @property
    def results(self) -> np.ndarray:
        """Number of documents retrieved for each query, (Q,) int."""
        return np.bincount(self.query, minlength=len(self.queries))

    @property
    def positives(self) -> np.ndarray:
        """Number of documents with a positive grade for each query, (Q,) int."""
        positive = self.qrels.loc[self.qrels["grade"] > 0, "query"]
        return positive.value_counts().reindex(self.queries, fill_value=0).to_numpy()


def judge(run: pd.DataFrame, qrels: pd.DataFrame, queries: list[str], where: str = "run") -> JudgedRun:
    """Join the judgements with the run. Neither frame is changed.

    Args:
        run: columns `query`, `document`, `score`, in total order (score descending, then document id descending).
        qrels: columns `query`, `document`, `grade`.
        queries: the judged queries of the split; the run may lack some of them, but holds no others.
        where: the run's name in errors.

    Raises:
        ProtocolError: the run has a query that is not of the split.
        ArtifactError: the run is not in total order, has a document twice for a query or a score that is no number;
            the judgements have a pair twice.
    """
    ids, query_ids, document_ids = pd.Index(queries), _encoded(run["query"]), _encoded(run["document"])
    query = ids.get_indexer(query_ids.names)[query_ids.codes]
    if (query < 0).any():
        names = run["query"][query < 0].unique()
        problem = f"{len(names)} queries are not of the evaluated split ({names[0]}, ...)"
        raise ProtocolError(where, problem, "search and evaluate the same split of the same collection")
    document, score = document_ids.names[document_ids.codes], run["score"].to_numpy(np.float32)
    _check_order(run, query, document, score, where)
    pairs = np.sort(query.astype(np.int64) * len(document_ids.names) + document_ids.codes)
    if (pairs[1:] == pairs[:-1]).any():
        raise ArtifactError(where, "a query has the same document twice", STEP)
    qrels = qrels.assign(grade=qrels["grade"].clip(lower=0))[qrels["query"].isin(ids)].reset_index(drop=True)
    documents = pd.Index(qrels["document"].unique())
    column = documents.get_indexer(document_ids.names)[document_ids.codes]
    width = len(documents)
    keys = ids.get_indexer(qrels["query"]).astype(np.int64) * width + documents.get_indexer(qrels["document"])
    grade, judged = _look_up(query.astype(np.int64) * width + column, keys, qrels["grade"].to_numpy(np.int64), where)
    grade, judged = np.where(column >= 0, grade, 0), judged & (column >= 0)
    first = np.searchsorted(np.flatnonzero(_starts(query)), np.arange(len(query)), side="right") - 1
    rank = np.arange(len(query)) - np.flatnonzero(_starts(query))[first]
    return JudgedRun(ids.to_numpy(object), query, document, score, rank, grade, judged, column >= 0, qrels)


def _encoded(column: pd.Series) -> EncodedColumn:
    words = strings(column).dictionary_encode()
    return EncodedColumn(words.indices.to_numpy(), words.dictionary.to_numpy(zero_copy_only=False))


def _starts(query: np.ndarray) -> np.ndarray:
    """Mark the first row of each query, (N,) bool."""
    return np.r_[True, query[1:] != query[:-1]] if len(query) else np.zeros(0, bool)


def _check_order(run: pd.DataFrame, query: np.ndarray, document: np.ndarray, score: np.ndarray, where: str) -> None:
    if not np.isfinite(score).all():
        row = int(np.flatnonzero(~np.isfinite(score))[0])
        raise ArtifactError(where, f"the score in line {row + 1} is no finite number", STEP)
    same = ~_starts(query)[1:]
    tied = np.flatnonzero(same & (score[1:] == score[:-1]))
    wrong = same & (score[1:] > score[:-1])
    wrong[tied] |= document[tied + 1] >= document[tied]
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0]) + 1
        problem = f"line {row + 1} (query {run['query'].iloc[row]}, document {document[row]}) is out of order"
        raise ArtifactError(where, f"{problem}; expected score descending, then document id descending", STEP)
    if len(np.unique(query)) != _starts(query).sum():
        raise ArtifactError(where, "the lines of a query are not contiguous", STEP)


def _look_up(pairs: np.ndarray, keys: np.ndarray, grades: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the grade (0 without one) of each pair, and whether `keys`, the judged pairs, contain it."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if (keys[1:] == keys[:-1]).any():
        raise ArtifactError(where, "the judgements have a query-document pair twice", "remove one of them")
    if not len(keys):
        return np.zeros(len(pairs), np.int64), np.zeros(len(pairs), bool)
    row = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
    judged = keys[row] == pairs
    return np.where(judged, grades[order][row], 0), judged
