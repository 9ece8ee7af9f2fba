"""Stage `measure_attention`: how much a main model attends to each document that augments a query (MoMA eq. 9).

A row holds the attention that is learned from, counted as `memory.aggregation` says, and FidAtt itself, whose values
over a query and its documents sum to layers times heads: shares of attention follow from it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import Field

from zerodr.artifacts.parquet import GroupWriter, list_array
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import split_queries
from zerodr.collections.memories import MemoryTexts
from zerodr.config.base import Settings, validate
from zerodr.encoders.network.moving import features_on
from zerodr.mining.batch import NAME
from zerodr.papers.moma.attention_labels import banned_documents
from zerodr.papers.moma.fid_attention import Aggregation, fid_attention
from zerodr.papers.moma.fusion_encoder import FusionContract, FusionEncoder, Grounded, cross_attention
from zerodr.papers.moma.grounding import Grounding, read_grounding

SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("query_attention", pa.float32()),
        ("documents", pa.list_(pa.string())),
        ("attention", pa.list_(pa.float32())),
        ("fid_attention", pa.list_(pa.float32())),
        ("tokens", pa.list_(pa.int32())),
    ]
)
ROW_GROUP = 4096
BATCH_TOKENS = 16384  # of queries and documents that are looked at together


class AttentionSettings(Settings):
    """Params of rule measure_attention."""

    split: str
    """Split of the queries."""
    joins: dict[str, str | None]
    """Text that joins title and text, by memory. None: text alone."""
    documents: int = Field(ge=1)
    """K: documents of a query."""
    document_tokens: int = Field(ge=2)
    """Longest of them."""
    aggregation: Aggregation
    """Aggregation of the attention that is learned from."""
    exclude_positives: bool
    """Training left documents out that are judged relevant."""
    source: str
    """Name of the collection whose judgements count."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic."""


def measure_attention(stage: Stage) -> None:
    """Inputs `model`, `rankings`, `memories`, `collection`, optional `mined`: these queries alone; output `attention`.

    Raises:
        ModelError: the model gives no attention, or can't fuse.
        ArtifactError: a query has no ranking, or a document stands in no memory.
    """
    settings = validate(AttentionSettings, stage.params, stage.spec.name())
    asked = split_queries(stage.path("collection"), settings.split)
    if "mined" in stage.spec.inputs:
        chosen = set(pq.read_table(stage.path("mined") / NAME, columns=["query"])["query"].to_pylist())
        asked = asked[asked["id"].isin(chosen)].reset_index(drop=True)
    texts = MemoryTexts({path.parent.name: path.parent for path in stage.paths("memories")}, settings.joins)
    queries, banned = strings(asked["id"]), None
    if settings.exclude_positives:
        banned = banned_documents(stage.path("collection"), settings.split, settings.source)
    grounding = read_grounding(stage.path("rankings"), queries, settings.documents, texts, banned)
    model = FusionEncoder.load(stage.path("model"), settings.precision)
    model.fusion = FusionContract(documents=settings.documents, document_tokens=settings.document_tokens)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    progress = Progress(f"attention of {settings.source}/{settings.split}", len(queries), "queries")
    with GroupWriter(stage.output("attention"), SCHEMA, ROW_GROUP, ["documents.list.element"]) as writer:
        for piece in attended(model, queries, asked["text"].tolist(), grounding, settings.aggregation):
            writer.write(piece)
            progress.add(len(piece))
    progress.finish()
    stage.metric("queries", len(queries))


def attended(
    model: FusionEncoder, queries: pa.Array, texts: list[str], grounding: Grounding, aggregation: Aggregation
) -> Iterator[pa.Table]:
    """Rows of `SCHEMA` for consecutive queries."""
    device = next(model.parameters()).device
    asked = model.tokenize(texts, "query")
    given = model.tokenize_augmentations(grounding.texts.to_pylist())
    rows = [Grounded(ids, [given[number] for number in grounding.of(row)]) for row, ids in enumerate(asked)]
    for start, stop in _cuts([len(row) for row in rows]):
        batch = rows[start:stop]
        features = features_on(model.pad(batch), device)
        wants = {"logits": aggregation == "logit_mean", "value_norms": aggregation == "prob_valuenorm_sum"}
        _, attention, segments, mask = cross_attention(model, features, **wants)
        width = max(len(row.documents) for row in batch)
        counted = fid_attention(attention, segments, mask, width, aggregation)[:, 1:].cpu().numpy()
        mass = fid_attention(attention, segments, mask, width).cpu().numpy()
        sizes = np.array([len(row.documents) for row in batch])
        there = np.arange(width) < sizes[:, None]
        span = slice(grounding.offsets[start], grounding.offsets[stop])
        tokens = [len(ids) for row in batch for ids in row.documents]
        columns = [
            queries[start:stop],
            pa.array(mass[:, 0]),
            list_array(sizes, grounding.documents.take(pa.array(grounding.numbers[span]))),
            list_array(sizes, pa.array(counted[there])),
            list_array(sizes, pa.array(mass[:, 1:][there])),
            list_array(sizes, pa.array(tokens, pa.int32())),
        ]
        yield pa.table(columns, schema=SCHEMA)


def _cuts(lengths: list[int]) -> Iterator[tuple[int, int]]:
    """Consecutive rows with at most BATCH_TOKENS padded tokens, at least one row each."""
    start, longest = 0, 0
    for row, length in enumerate(lengths):
        longest = max(longest, length)
        if row > start and longest * (row + 1 - start) > BATCH_TOKENS:
            yield start, row
            start, longest = row, length
    if lengths:
        yield start, len(lengths)


def read_attention(path: Path) -> pa.Table:
    """Rows of an attention file."""
    return pq.read_table(path, schema=SCHEMA)
