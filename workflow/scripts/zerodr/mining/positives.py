"""The known positives of a split's queries, as document numbers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.trec import strings
from zerodr.collections.access import read_qrels, split_queries
from zerodr.errors import ArtifactError, CollectionError

log = logging.getLogger("zerodr")


@dataclass(frozen=True)
class Positives:
    """Queries with a positive, and all their positives that the corpus holds, flat.

    Attributes:
        queries: (Q,) ids in the order of queries.parquet.
        sizes: (Q,) int64, positives of each query, at least 1.
        documents: (total,) int32 corpus rows: best grade first, then id ascending (by UTF-8 bytes).
        asked: ids of all the split's queries.
        missing: positive judgements of documents that the corpus lacks.
    """

    queries: pa.Array
    sizes: np.ndarray
    documents: np.ndarray
    asked: pa.Array
    missing: int

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and documents of the queries `rows`."""
        sizes, ends = self.sizes[rows], np.cumsum(self.sizes)
        first = np.repeat(ends[rows] - sizes - (np.cumsum(sizes) - sizes), sizes)
        return sizes, self.documents[first + np.arange(len(first))]

    def chosen(self, rows: np.ndarray) -> Positives:
        """The same for the queries `rows` alone."""
        return Positives(self.queries.take(pa.array(rows)), *self.take(rows), self.asked, self.missing)


def known_positives(source: Path, split: str, corpus: pa.Array) -> Positives:
    """Positives (grade > 0) of a split.

    Args:
        source: normalised collection.
        split: of its judgements.
        corpus: ids of its documents.

    Raises:
        CollectionError: there are none.
    """
    qrels, asked = read_qrels(source, split), strings(split_queries(source, split)["id"])
    judged = qrels[qrels["grade"] > 0]
    row = rows_among(strings(judged["query"]), asked)
    document = rows_among(strings(judged["document"]), corpus)
    there = (row >= 0) & (document >= 0)
    if not there.any():
        have = ", ".join(sorted(path.name[6:-4] for path in source.glob("qrels.*.tsv")))
        raise CollectionError(
            f"{source.name}/{split}",
            f"none of its {len(qrels)} judgements names a positive "
            "document of the corpus, there is nothing to learn from",
            f"choose another source or source_split (have: {have})",
        )
    frame = (
        judged[there]
        .assign(row=row[there], number=document[there])
        .sort_values(["row", "grade", "document"], ascending=[True, False, True], kind="stable")
        .drop_duplicates(["row", "number"])
    )
    rows, sizes = np.unique(frame["row"].to_numpy(), return_counts=True)
    missing = int((document < 0).sum())
    if missing:
        log.warning("%s/%s: %d positives are not in the corpus", source.name, split, missing)
    return Positives(asked.take(pa.array(rows)), sizes, frame["number"].to_numpy(np.int32), asked, missing)


def rows_among(wanted: pa.Array, known: pa.Array) -> np.ndarray:
    """Place of each wanted id among the known ones, int32; -1 where it is not there."""
    return pc.fill_null(pc.index_in(wanted, value_set=known), -1).to_numpy()


def numbered(path: Path, documents: pa.Array, corpus: pa.Array, collection: str) -> np.ndarray:
    """Corpus row of each document id that the file at `path` names, int32.

    Raises:
        ArtifactError: the corpus lacks one.
    """
    rows = rows_among(documents, corpus)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        raise ArtifactError(
            path,
            f"names documents that are not in collection {collection}, the first is {documents[int(unknown[0])]}",
            "make it from this collection",
        )
    return rows
