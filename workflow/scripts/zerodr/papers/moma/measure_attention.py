"""Stages `measure_attention` and `measure_shares`: how much a main model attends to documents, and of which memories.

A row of attention holds the attention that is learned from, counted as `memory.aggregation` says, and FidAtt itself
(MoMA eq. 9), whose values over a query and its documents sum to layers times heads: shares of attention follow from it
(MoMA figure 2).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.parquet import GroupWriter, list_array
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import MemoryTexts, memory_of, split_queries
from zerodr.config.base import Settings, validate
from zerodr.encoders.network.moving import features_on
from zerodr.errors import ModelError
from zerodr.mining.statistics import NAME
from zerodr.papers.moma.augmented_encoder import Grounded
from zerodr.papers.moma.fid_attention import Aggregation, fid_attention
from zerodr.papers.moma.fusion_encoder import FusionEncoder, cross_attention
from zerodr.papers.moma.grounding import Grounding, banned_documents, ground
from zerodr.papers.moma.joined_encoder import load_fusing
from zerodr.papers.moma.settings import TARGET

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
RELEVANT, OTHER = "relevant", "other"
CASE_COLUMNS = ["query", "text", "rank", "memory", "document", "attention", "retrieved_at", "relevant", "document_text"]
COLUMNS = ["memory", "documents", "document_share", "attention_share", "lift", "mean_tokens"]


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
        ArtifactError: a query has no ranking, or a document is in no memory.
    """
    settings = validate(AttentionSettings, stage.params, stage.spec.name())
    asked = split_queries(stage.path("collection"), settings.split)
    if "mined" in stage.spec.inputs:
        chosen = set(pq.read_table(stage.path("mined") / NAME, columns=["query"])["query"].to_pylist())
        asked = asked[asked["id"].isin(chosen)].reset_index(drop=True)
    queries = strings(asked["id"])
    judged = (stage.path("collection"), settings.split, settings.source) if settings.exclude_positives else None
    grounding = ground(stage, queries, settings.documents, settings.joins, judged)
    model = load_fusing(stage.path("model"), settings.precision, settings.documents, settings.document_tokens)
    if not isinstance(model, FusionEncoder):
        problem = "has no decoder, whose attention to documents is measured"
        raise ModelError(model.contract.source, problem, "name the model of a T5")
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
        _, attention, segments, mask = cross_attention(model, features, aggregation == "prob_valuenorm_sum")
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


class ShareSettings(Settings):
    """Params of rule measure_shares."""

    collection: str
    """Whose queries are augmented."""
    split: str
    """Their split; its judgements tell relevant documents."""
    evaluated: bool
    """These are evaluated queries: their collection as a memory is called `target`. Else they are learned from, and its
    relevant documents are told apart."""
    joins: dict[str, str | None]
    """Text that joins title and text, by memory. None: text alone."""
    cases: int = Field(20, ge=0)
    """Queries of the case studies, at equal distances."""
    shown: int = Field(3, ge=1)
    """Most attended documents of a case."""


class Attended(NamedTuple):
    """A query's augmentation documents, FidAtt of them, their tokens, and which are relevant."""

    documents: Sequence[str]
    attention: Sequence[float]
    tokens: Sequence[int]
    relevant: Sequence[bool]


def measure_shares(stage: Stage) -> None:
    """Inputs `attention`, `collection`, `memories`; outputs `shares` and `cases`, TSV."""
    settings = validate(ShareSettings, stage.params, stage.spec.name())
    folder = stage.path("collection")
    relevant = banned_documents(folder, settings.split, settings.collection)
    attended = read_attention(stage.path("attention")).to_pylist()
    hits = [[key in relevant.get(row["query"], ()) for key in row["documents"]] for row in attended]
    rows = [
        Attended(row["documents"], row["fid_attention"], row["tokens"], hit)
        for row, hit in zip(attended, hits, strict=True)
    ]
    table, facts = shares_of(rows, settings.collection if settings.evaluated else None), totals(rows, attended)
    table.to_csv(stage.output("shares"), sep="\t", index=False, float_format="%.6g")
    texts = MemoryTexts(stage.folders("memories"), settings.joins)
    asked = dict(split_queries(folder, settings.split)[["id", "text"]].itertuples(index=False))
    cases = cases_of(attended, asked, relevant, texts, settings, stage.path("attention"))
    cases.to_csv(stage.output("cases"), sep="\t", index=False, float_format="%.6g")
    stage.numbers(facts)
    for row in table.to_dict("records"):
        for name in ("document_share", "attention_share"):
            stage.metric(f"{name}.{row['memory']}", row[name])


def shares_of(rows: Sequence[Attended], target: str | None = None) -> pd.DataFrame:
    """By memory its share of documents and of FidAtt.

    Attention to the query itself is left out; shares sum to 1. `lift` is the share of attention over that of documents.
    `mean_tokens` is next to it because longer documents draw more attention.

    Args:
        target: the memory that is the evaluated collection, called `target`. None: of memories with relevant documents
            these and others have separate rows.
    """
    hits = {memory_of(key) for row in rows for key, hit in zip(row.documents, row.relevant, strict=True) if hit}
    known = hits if target is None else set()
    counts: dict[str, tuple[int, float, float]] = {}
    for row in rows:
        for key, weight, length, hit in zip(*row, strict=True):
            memory = memory_of(key)
            name = f"{memory}:{RELEVANT if hit else OTHER}" if memory in known else memory
            name = TARGET if memory == target else name
            documents, attention, tokens = counts.get(name, (0, 0.0, 0.0))
            counts[name] = documents + 1, attention + weight, tokens + length
    documents, attention, _ = map(sum, zip(*counts.values(), strict=True))
    lines = []
    for name, (count, weight, tokens) in sorted(counts.items()):
        share, attended = count / documents, weight / attention if attention else 0.0
        lines.append([name, int(count), share, attended, attended / share, tokens / count])
    return pd.DataFrame(lines, columns=COLUMNS)


def totals(rows: Sequence[Attended], attended: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Share of queries with a relevant document among their augmentation, and of attention that the query keeps."""
    shares = [row["query_attention"] / (row["query_attention"] + sum(row["fid_attention"])) for row in attended]
    return {
        "queries": float(len(rows)),
        "query_attention_share": float(np.mean(shares)),
        "queries_with_relevant_document": float(np.mean([any(row.relevant) for row in rows])),
    }


def cases_of(
    attended: Sequence[Mapping[str, Any]],
    asked: Mapping[str, str],
    relevant: Mapping[str, set[str]],
    texts: MemoryTexts,
    settings: ShareSettings,
    where: Path,
) -> pd.DataFrame:
    """Queries with their most attended documents, their memory and text."""
    step = max(1, len(attended) // max(settings.cases, 1))
    rows = list(attended[::step])[: settings.cases]
    orders = [np.argsort(-np.asarray(row["attention"]), kind="stable")[: settings.shown] for row in rows]
    keys = [row["documents"][index] for row, order in zip(rows, orders, strict=True) for index in order]
    contents = iter(texts.texts(pa.array(keys, pa.string()), where).to_pylist())  # one pass over each memory
    lines: list[dict[str, Any]] = []
    for row, order in zip(rows, orders, strict=True):
        for rank, index in enumerate(order, 1):
            key = row["documents"][index]
            lines.append(
                {
                    "query": row["query"],
                    "text": asked[row["query"]],
                    "rank": rank,
                    "memory": memory_of(key),
                    "document": key,
                    "attention": row["attention"][index],
                    "retrieved_at": int(index) + 1,
                    "relevant": key in relevant.get(row["query"], ()),
                    "document_text": " ".join(next(contents).split()),
                }
            )
    return pd.DataFrame(lines, columns=CASE_COLUMNS)
