"""Read the known positives of a split's queries, as document numbers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.trec import strings
from zerodr.collections.access import qrels_files, read_qrels, split_queries
from zerodr.errors import ArtifactError, CollectionError

log = logging.getLogger("zerodr")


@dataclass(frozen=True)
class Positives:
    """Queries with a positive, and all their positives in the corpus, flat.

    Attributes:
        queries: (Q,) ids in the order of queries.parquet.
        sizes: (Q,) int64, positives of each query, at least 1.
        documents: (total,) int32 corpus rows: best grade first, then id ascending (by UTF-8 bytes).
        all_queries: ids of all the split's queries.
        missing: positive judgements of documents that the corpus lacks.
    """

    queries: pa.Array
    sizes: np.ndarray
    documents: np.ndarray
    all_queries: pa.Array
    missing: int

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sizes and documents of the queries `rows`."""
        sizes, ends = self.sizes[rows], np.cumsum(self.sizes)
        first = np.repeat(ends[rows] - sizes - (np.cumsum(sizes) - sizes), sizes)
        return sizes, self.documents[first + np.arange(len(first))]

    def select(self, rows: np.ndarray) -> Positives:
        """Return the positives of the queries `rows` only."""
        return Positives(self.queries.take(pa.array(rows)), *self.take(rows), self.all_queries, self.missing)


def known_positives(source: Path, split: str, corpus: pa.Array) -> Positives:
    """Read the positives (grade > 0) of a split.

    Args:
        source: normalised collection.
        split: of its judgements.
        corpus: ids of its documents.

    Raises:
        CollectionError: there are none.
    """
    qrels, queries = read_qrels(source, split), strings(split_queries(source, split)["id"])
    judged = qrels[qrels["grade"] > 0]
    row = rows_among(strings(judged["query"]), queries)
    document = rows_among(strings(judged["document"]), corpus)
    usable = (row >= 0) & (document >= 0)
    if not usable.any():
        splits = ", ".join(qrels_files(source))
        problem = f"none of its {len(qrels)} judgements names a positive document of the corpus"
        step = f"choose another source or source_split (available: {splits})"
        raise CollectionError(f"{source.name}/{split}", problem, step)
    frame = (
        judged[usable]
        .assign(row=row[usable], number=document[usable])
        .sort_values(["row", "grade", "document"], ascending=[True, False, True], kind="stable")
        .drop_duplicates(["row", "number"])
    )
    rows, sizes = np.unique(frame["row"].to_numpy(), return_counts=True)
    missing = int((document < 0).sum())
    if missing:
        log.warning("%s/%s: %d positives are not in the corpus", source.name, split, missing)
    return Positives(queries.take(pa.array(rows)), sizes, frame["number"].to_numpy(np.int32), queries, missing)


def rows_among(ids: pa.Array, table: pa.Array) -> np.ndarray:
    """Look up each id's row in `table`, int32; -1 where the table lacks it."""
    return pc.fill_null(pc.index_in(ids, value_set=table), -1).to_numpy()


def numbered(path: Path, documents: pa.Array, corpus: pa.Array, collection: str) -> np.ndarray:
    """Look up the corpus row of each document id that the file at `path` names, int32.

    Raises:
        ArtifactError: the corpus lacks one.
    """
    rows = rows_among(documents, corpus)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        first = documents[int(unknown[0])]
        problem = f"names documents that are not in collection {collection}, the first is {first}"
        raise ArtifactError(path, problem, "make it from this collection")
    return rows
