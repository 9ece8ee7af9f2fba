"""Units and labels of the positives that a training learns from, by document number."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.parquet import open_parquet
from zerodr.errors import ArtifactError, ModelError
from zerodr.papers.berm.label_units import LABELS
from zerodr.papers.berm.label_units import SCHEMA as LABEL_SCHEMA
from zerodr.papers.berm.segment_units import SCHEMA as UNIT_SCHEMA
from zerodr.papers.berm.segment_units import UNITS, read_statistics, token_facts
from zerodr.training.data.examples import Examples, Ragged


@dataclass(frozen=True)
class UnitTable:
    """Units of the examples' positives.

    Attributes:
        first, stop: tokens [first, stop) of each document's units, by document number; empty lists for documents that
            are nobody's positive.
        labels: the essential unit of each positive, in the order of `Examples.positives`.
    """

    first: Ragged
    stop: Ragged
    labels: np.ndarray

    def labels_of(self, examples: Examples, rows: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return the essential unit of one positive of each of some queries, int64; rows, documents (B,)."""
        positives = examples.positives.take(rows)
        same = np.flatnonzero(positives.values == np.repeat(documents, positives.sizes))
        first = same[np.searchsorted(same, positives.offsets[:-1])]  # the first of each query
        return self.labels[examples.positives.offsets[rows] + first - positives.offsets[:-1]].astype(np.int64)


def load_units(units: Path, labels: Path, examples: Examples, model: Any, title_join: str | None) -> UnitTable:
    """Units and labels of the examples' positives, by id.

    Args:
        units: folder of segment_units.
        labels: folder of label_units, made from these units.
        model: the bi-encoder that is trained.
        title_join: of this training.

    Raises:
        ArtifactError: made for other tokens than this training reads, or without one of its pairs.
        ModelError: a decoder's vectors, which have no tokens of the passage.
    """
    check_tokens(units, labels, model, title_join)
    with open_parquet(units / UNITS, UNIT_SCHEMA) as file:
        table = file.read(columns=["document", "token_start", "token_end"])
    wanted = np.unique(examples.positives.values)
    rows = _rows_of(units / UNITS, examples.documents.take(pa.array(wanted)), table["document"], "positive")
    first, stop = (
        _spread(table[name].take(rows), wanted, len(examples.documents)) for name in ("token_start", "token_end")
    )
    return UnitTable(first, stop, _labels(labels / LABELS, examples))


def check_tokens(units: Path, labels: Path, model: Any, title_join: str | None) -> None:
    """Units, labels and training read the same tokens.

    Raises:
        ArtifactError, ModelError: see `load_units`.
    """
    if model.contract.pooling == "decoder_first":
        raise ModelError(
            model.contract.source,
            "gives the decoder's state, from which no unit can be pooled",
            "take a model with pooling cls or mean, or leave berm out",
        )
    expected = token_facts(model.contract, model.tokenizer, title_join)
    for folder in (units, labels):
        recorded = read_statistics(folder)["made_for"]
        differs = [key for key, value in expected.items() if recorded.get(key) != value]
        if differs:
            key = differs[0]
            raise ArtifactError(
                folder,
                f"was made for {key} {recorded.get(key)!r}, this training has {expected[key]!r}: "
                "units would cover other tokens",
                "cut and label the units for this model",
            )


def _spread(lists: pa.ChunkedArray, wanted: np.ndarray, documents: int) -> Ragged:
    """Lists of the documents `wanted` (ascending numbers) as lists of all documents."""
    column = lists.combine_chunks()
    column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    sizes = np.zeros(documents, np.int64)
    sizes[wanted] = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return Ragged(column.flatten().to_numpy().astype(np.int64), np.r_[0, np.cumsum(sizes)])


def _rows_of(path: Path, wanted: pa.Array, known: pa.ChunkedArray, kind: str) -> pa.Array:
    rows = pc.index_in(wanted, value_set=known)
    if rows.null_count:
        first = wanted.filter(pc.is_null(rows))[0]
        raise ArtifactError(
            path,
            f"lacks {rows.null_count} of the {len(wanted)} {kind}s of this training, the first is {first}",
            "make it from this source and split",
        )
    return rows


def _labels(path: Path, examples: Examples) -> np.ndarray:
    """Label of each positive, in the examples' order."""
    with open_parquet(path, LABEL_SCHEMA) as file:
        table = file.read(columns=["query", "document", "label"])
    queries = examples.queries.take(pa.array(np.repeat(np.arange(len(examples)), examples.positives.sizes)))
    documents = examples.documents.take(pa.array(examples.positives.values))
    known = pc.binary_join_element_wise(table["query"], table["document"], "\x1f")
    wanted = pc.binary_join_element_wise(queries.cast(pa.string()), documents.cast(pa.string()), "\x1f")
    return table["label"].to_numpy()[_rows_of(path, wanted, known, "pair").to_numpy()]
