"""The training data of a stage: mined queries with the texts of every document they name, in compact arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.collections.access import TEXT, corpus_ids, joined_texts, read_queries, read_rows
from zerodr.errors import ArtifactError
from zerodr.mining.statistics import JUDGED, SCORES

MINED, SCORED = "mined.parquet", "scored.parquet"


@dataclass(frozen=True)
class Ragged:
    """Lists of different lengths: values (total,), offsets (rows + 1,) int64."""

    values: np.ndarray
    offsets: np.ndarray

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def sizes(self) -> np.ndarray:
        """Length of each list, (rows,) int64."""
        return np.diff(self.offsets)

    def sizes_of(self, rows: np.ndarray) -> np.ndarray:
        """Length of some lists, (B,) int64."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def take(self, rows: np.ndarray) -> Ragged:
        """Return the lists of some rows."""
        first, last = self.offsets[rows], self.offsets[rows + 1]
        return Ragged(self.values[stretches(first, last)], np.r_[0, np.cumsum(last - first)])


@dataclass(frozen=True)
class Examples:
    """Queries with positives and negatives; documents are numbers into `documents`.

    Attributes:
        queries, query_texts: (N,) Arrow strings.
        documents, document_texts: (M,) Arrow strings, only documents that some query names.
        positives, negatives: document numbers (int32) of each query.
        judged: those of its judged documents, where not all positives are judged (D^{a+} of MoMA); else None.
        scores: teacher's scores (float32) of [first positive, *negatives], or None. NaN is only for the positive of
            a query that has none.
        groups: (N,) int32 cluster of each query, or None.
    """

    queries: pa.Array
    query_texts: pa.Array
    documents: pa.Array
    document_texts: pa.Array
    positives: Ragged
    negatives: Ragged
    scores: Ragged | None = None
    groups: np.ndarray | None = None
    judged: Ragged | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def document_ids(self, numbers: np.ndarray) -> list[str]:
        """Ids of document numbers, flattened in C order."""
        return self.documents.take(pa.array(np.ravel(numbers))).to_pylist()

    def texts_of_documents(self, numbers: np.ndarray) -> list[str]:
        """Texts of document numbers."""
        return self.document_texts.take(pa.array(numbers)).to_pylist()

    def texts_of_queries(self, rows: np.ndarray) -> list[str]:
        """Texts of query rows."""
        return self.query_texts.take(pa.array(rows)).to_pylist()


def stretches(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Join the ranges [first[i], last[i]) to one array of int64."""
    sizes = last - first
    return np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))


def known_positives(examples: Examples, rows: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Find the known positives of each query among the documents of all.

    Args:
        rows: (B,) of the queries; documents: (B, 1 + K) document numbers.

    Returns:
        (n, 2) int64: query, from 0 to B - 1, and place of the document in `documents`, row by row.
    """
    flat = documents.ravel()
    order = np.argsort(flat, kind="stable")
    wanted = examples.positives.take(rows)
    low = np.searchsorted(flat[order], wanted.values)
    high = np.searchsorted(flat[order], wanted.values, "right")
    queries = np.repeat(np.repeat(np.arange(len(rows)), wanted.sizes), high - low)
    return np.stack([queries, order[stretches(low, high)]], 1)


def load_examples(mined: Path, source: Path, title_join: str | None, scored: Path | None = None) -> Examples:
    """Load the mined queries with their texts.

    Args:
        mined: folder with mined.parquet, or the file.
        source: normalised collection that it was mined from.
        title_join: text between title and text; None leaves titles out.
        scored: folder with scored.parquet, or the file: the same rows with a teacher's scores.

    Raises:
        ArtifactError: no rows, ids that the collection does not hold, or scores of other rows.
    """
    path = scored or mined
    path = path / (SCORED if scored else MINED) if path.is_dir() else path
    table = pq.read_table(path)
    if not len(table):
        raise ArtifactError(path, "holds no query, expected training data", "check the mining stage and the split")
    queries = table["query"].combine_chunks()
    positives, negatives = _lists(table, "positives"), _lists(table, "negatives")
    judged = _lists(table, JUDGED) if JUDGED in table.column_names else None
    documents, numbers = _numbered(positives[0], negatives[0], *(judged[:1] if judged else ()))
    first, second = len(positives[0]), len(positives[0]) + len(negatives[0])
    scores = _scores(path, table, negatives[1]) if SCORES.name in table.column_names else None
    return Examples(
        queries,
        _query_texts(path, queries, source),
        documents,
        _document_texts(path, documents, source, title_join),
        Ragged(numbers[:first], positives[1]),
        Ragged(numbers[first:second], negatives[1]),
        scores,
        judged=Ragged(numbers[second:], judged[1]) if judged else None,
    )


def _lists(table: pa.Table, name: str) -> tuple[pa.Array, np.ndarray]:
    """Values and offsets of a list column."""
    column = table[name].combine_chunks()
    sizes = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return column.flatten(), np.r_[0, np.cumsum(sizes)].astype(np.int64)


def _numbered(*columns: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Distinct ids in order of first appearance, and the number of each id."""
    coded = pa.concat_arrays([column.cast(pa.string()) for column in columns]).dictionary_encode()
    return coded.dictionary, coded.indices.to_numpy().astype(np.int32)


def _scores(path: Path, table: pa.Table, offsets: np.ndarray) -> Ragged:
    values, starts = _lists(table, "scores")
    wrong = np.flatnonzero(np.diff(starts) != np.diff(offsets) + 1)
    if len(wrong):
        row = int(wrong[0])
        has, wants = np.diff(starts)[row], np.diff(offsets)[row] + 1
        raise ArtifactError(
            path,
            f"query {table['query'][row]} has {has} scores, expected {wants}: one for its first "
            "positive and one for each negative",
            "score the mined file again",
        )
    scores = Ragged(values.to_numpy(zero_copy_only=False).astype(np.float32), starts)
    _check_finite(path, table, scores)
    return scores


def _check_finite(path: Path, table: pa.Table, scores: Ragged) -> None:
    """All scores are finite but that of a first positive which does not exist."""
    wrong = ~np.isfinite(scores.values)
    bare = pc.list_value_length(table["positives"]).to_numpy() == 0
    wrong[scores.offsets[:-1][bare]] = False
    if wrong.any():
        row = int(np.searchsorted(scores.offsets, np.flatnonzero(wrong)[0], side="right")) - 1
        raise ArtifactError(
            path,
            f"query {table['query'][row]} has a score that is missing, NaN or infinite",
            "score the mined file again",
        )


def _query_texts(path: Path, queries: pa.Array, source: Path) -> pa.Array:
    table = read_queries(source)
    return table["text"].combine_chunks().take(_rows_in(path, "queries", queries, table["id"].combine_chunks(), source))


def _document_texts(path: Path, documents: pa.Array, source: Path, title_join: str | None) -> pa.Array:
    """Read texts of `documents` with one pass over the corpus."""
    rows = _rows_in(path, "documents", documents, corpus_ids(source), source).to_numpy()
    order = np.argsort(rows, kind="stable")
    chunks = [joined_texts(block, title_join) for block in read_rows(source, rows[order])]
    return pa.concat_arrays(chunks).take(pa.array(np.argsort(order))) if chunks else pa.array([], TEXT)


def _rows_in(path: Path, kind: str, wanted: pa.Array, known: pa.Array, source: Path) -> pa.Array:
    rows = pc.index_in(wanted, value_set=known)
    if rows.null_count:
        first = wanted.filter(pc.is_null(rows))[0]
        raise ArtifactError(
            path,
            f"{rows.null_count} of its {len(wanted)} {kind} are not in collection {source.name}, the first is {first}",
            "mine it from this collection",
        )
    return rows
