"""Tables of units and their labels: the files that stages write, and what training reads by document number.

Units are kept as characters of the passage and as tokens of the model that will train on it. What decides the tokens
(tokenizer, length, prefix, title join) is in statistics.json, and training refuses units made for other tokens.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.artifacts.manifest import object_digest
from zerodr.artifacts.parquet import open_parquet
from zerodr.artifacts.trec import strings
from zerodr.collections.access import read_queries, read_rows
from zerodr.encoders.folder.contract import EncoderContract
from zerodr.errors import ArtifactError, ModelError
from zerodr.mining.positives import Positives, known_positives, rows_among
from zerodr.mining.statistics import NAME
from zerodr.training.data.examples import Examples, Ragged

UNITS, STATISTICS = "units.parquet", "statistics.json"
SPAN_COLUMNS = ("char_start", "char_end", "token_start", "token_end")
UNIT_SCHEMA = pa.schema([("document", pa.string()), *((name, pa.list_(pa.int32())) for name in SPAN_COLUMNS)])
BLOCK = 512
LABELS, READ = "labels.parquet", "reader_scores.parquet"
SCORES = pa.list_(pa.float32())
LABEL_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("document", pa.string()),
        ("bm25", SCORES),
        ("reader", SCORES),
        ("hybrid", SCORES),
        ("label", pa.int32()),
        ("units", pa.int32()),
    ]
)
READ_SCHEMA = pa.schema([("query", pa.string()), ("document", pa.string()), ("scores", SCORES)])


def positives_of(source: Path, split: str, corpus: pa.Array, mined: Path | None) -> Positives:
    """Positives of a split; given a folder of mine_negatives, of the queries that were mined.

    Raises:
        CollectionError: there are none.
        ArtifactError: queries of another split were mined.
    """
    known = known_positives(source, split, corpus)
    if mined is None:
        return known
    rows = rows_among(strings(pq.read_table(mined / NAME, columns=["query"])["query"]), known.queries)
    if len(rows) == 0 or rows.min() < 0:
        problem = f"holds {(rows < 0).sum()} of {len(rows)} queries that have no positive in split {split}"
        raise ArtifactError(mined, problem, "mine this source and split")
    return known.select(np.sort(rows))


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
        problem = "gives the decoder's state, from which no unit can be pooled"
        raise ModelError(model.contract.source, problem, "take a model with pooling cls or mean, or leave berm out")
    expected = token_facts(model.contract, model.tokenizer, title_join)
    for folder in (units, labels):
        recorded = read_statistics(folder)["made_for"]
        differs = [key for key, value in expected.items() if recorded.get(key) != value]
        if differs:
            key = differs[0]
            problem = (
                f"was made for {key} {recorded.get(key)!r}, this training has {expected[key]!r}: "
                "units would cover other tokens"
            )
            raise ArtifactError(folder, problem, "cut and label the units for this model")


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
        problem = f"lacks {rows.null_count} of the {len(wanted)} {kind}s of this training, the first is {first}"
        raise ArtifactError(path, problem, "make it from this source and split")
    return rows


def _labels(path: Path, examples: Examples) -> np.ndarray:
    """Label of each positive, in the examples' order."""
    with open_parquet(path, LABEL_SCHEMA) as file:
        table = file.read(columns=["query", "document", "label"])
    queries = examples.queries.take(pa.array(np.repeat(np.arange(len(examples)), examples.positives.sizes)))
    documents = examples.documents.take(pa.array(examples.positives.values))
    # a separator that no id holds, or pairs of other ids could become one string
    known = pc.binary_join_element_wise(table["query"], table["document"], "\x1f")
    wanted = pc.binary_join_element_wise(queries.cast(pa.string()), documents.cast(pa.string()), "\x1f")
    return table["label"].to_numpy()[_rows_of(path, wanted, known, "pair").to_numpy()]


def passages_of(source: Path, rows: np.ndarray) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Ids, titles and texts of the corpus rows `rows` (ascending), some hundred at once."""
    for block in read_rows(source, rows, ("id", "title", "text"), BLOCK):
        ids, titles, texts = (column.to_pylist() for column in block.columns)
        yield ids, [title or "" for title in titles], [text or "" for text in texts]


def passage_texts(source: Path, rows: np.ndarray, title_join: str | None) -> dict[str, tuple[str, int]]:
    """Passages of the corpus rows `rows` (ascending) by id, each as `joined`."""
    return {
        key: joined(title, text, title_join)
        for block in passages_of(source, rows)
        for key, title, text in zip(*block, strict=True)
    }


def joined(title: str, text: str, title_join: str | None) -> tuple[str, int]:
    """A passage as training reads it, and the offset at which its text begins."""
    if title_join is None or not title:
        return text, 0
    return f"{title}{title_join}{text}", len(title) + len(title_join)


def token_facts(contract: EncoderContract, tokenizer: Any, title_join: str | None) -> dict[str, Any]:
    """Facts that decide the tokens of a passage; equal facts mean equal tokens."""
    vocabulary = object_digest(sorted(tokenizer.get_vocab().items()))
    return {
        "vocabulary": vocabulary,
        "tokens": contract.tokens("document"),
        "prefix": contract.prefix("document"),
        "lowercase": contract.lowercase,
        "title_join": title_join,
    }


def read_statistics(folder: Path) -> dict[str, Any]:
    """statistics.json of a folder of this stage."""
    return json.loads((folder / STATISTICS).read_text(encoding="utf-8"))


def query_texts(source: Path, ids: pa.Array) -> list[str]:
    """Texts of queries by id."""
    table = read_queries(source)
    texts = dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return [texts[key] or "" for key in ids.to_pylist()]


def read_unit_spans(folder: Path, of: str = "char") -> dict[str, np.ndarray]:
    """Read first and last-plus-one characters (`char`) or tokens (`token`) of units: (units, 2) int64 by document."""
    with open_parquet(folder / UNITS, UNIT_SCHEMA) as file:
        names = ("document", f"{of}_start", f"{of}_end")
        table = file.read(columns=names)
    columns = (table[name].to_pylist() for name in names)
    return {key: np.array([first, last], np.int64).reshape(2, -1).T for key, first, last in zip(*columns, strict=True)}
