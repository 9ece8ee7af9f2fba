"""Read the documents that augment queries: the first of each ranking over a mixture, with their texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.rankings import read_depth, read_rankings
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import COLON, MemoryTexts, corpus_ids, read_qrels
from zerodr.errors import ArtifactError

Barred = tuple[Path, str, str] | None


@dataclass(frozen=True)
class Grounding:
    """Augmentation documents of Q queries, as numbers into the M distinct ones.

    Attributes:
        offsets: (Q + 1,) int64, where a query's documents begin.
        numbers: (offsets[-1],) int32, best first.
        documents: (M,) namespaced ids.
        texts: (M,) their texts.
    """

    offsets: np.ndarray
    numbers: np.ndarray
    documents: pa.Array
    texts: pa.Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, row: int) -> np.ndarray:
        """Return the numbers of the documents of query `row`, best first."""
        return self.numbers[self.offsets[row] : self.offsets[row + 1]]

    def ids(self, row: int) -> list[str]:
        """Return the ids of the documents of query `row`, best first."""
        return self.documents.take(pa.array(self.of(row))).to_pylist()


def ground(
    stage: Stage, queries: pa.Array, count: int, joins: dict[str, str | None], barred: Barred = None
) -> Grounding:
    """Read the first `count` documents of each query of a stage (inputs `rankings`, `memories`).

    Args:
        queries: (Q,) ids.
        joins: text that joins title and text, by memory.
        barred: collection, its split and name, whose judged documents a query does not get; None: no such limit.

    Raises:
        ArtifactError: as `read_grounding`.
    """
    texts = MemoryTexts(stage.folders("memories"), joins)
    return read_grounding(stage.path("rankings"), queries, count, texts, banned_documents(*barred) if barred else None)


def read_grounding(
    rankings: Path, queries: pa.Array, count: int, texts: MemoryTexts, banned: Mapping[str, set[str]] | None = None
) -> Grounding:
    """Read the first `count` documents of each query.

    Args:
        rankings: of a mixture, for at least these queries.
        queries: (Q,) ids.
        banned: namespaced documents that a query must not receive.

    Raises:
        ArtifactError: a query has no ranking, rankings are too shallow, or a document is in no memory.
    """
    if read_depth(rankings) < count:
        raise ArtifactError(rankings, f"is ranked to depth {read_depth(rankings)}, expected at least {count}", AGAIN)
    ranked = read_rankings(rankings)
    rows = pc.index_in(queries, value_set=ranked.queries)
    if rows.null_count:
        first = queries.filter(pc.is_null(rows))[0]
        raise ArtifactError(rankings, f"lacks {rows.null_count} of {len(queries)} queries, the first is {first}", AGAIN)
    ends, order = np.cumsum(ranked.sizes), rows.to_numpy()
    coded = ranked.documents.dictionary_encode()
    numbers, names = coded.indices.to_numpy(), coded.dictionary
    lists = []
    for row, query in zip(order, queries.to_pylist(), strict=True):
        ranking = numbers[ends[row] - ranked.sizes[row] : ends[row]]
        if excluded := (banned or {}).get(query):
            excluded_numbers = pc.index_in(pa.array(sorted(excluded)), value_set=names).drop_null().to_numpy()
            ranking = ranking[~np.isin(ranking, excluded_numbers)]
        lists.append(ranking[:count])
    distinct, flat = np.unique(np.concatenate(lists or [np.zeros(0, np.int32)]), return_inverse=True)
    documents = names.take(pa.array(distinct))
    offsets = np.r_[0, np.cumsum([len(ranking) for ranking in lists])].astype(np.int64)
    return Grounding(offsets, flat.astype(np.int32), documents, texts.texts(documents, rankings))


def banned_documents(folder: Path, split: str, source: str) -> dict[str, set[str]]:
    """Namespaced documents of the corpus that are judged relevant, by query."""
    qrels = read_qrels(folder, split)
    judged = qrels[qrels["grade"] > 0]
    there = pc.is_in(strings(judged["document"]), value_set=corpus_ids(folder)).to_numpy(zero_copy_only=False)
    relevant: dict[str, set[str]] = {}
    for query, document in judged.loc[there, ["query", "document"]].itertuples(index=False):
        relevant.setdefault(query, set()).add(f"{source}{COLON}{document}")
    return relevant
