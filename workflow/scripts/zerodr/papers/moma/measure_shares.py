"""Stage `measure_shares`: which memories augment queries and which of them the main model attends to (MoMA fig. 2)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import split_queries
from zerodr.collections.memories import MemoryTexts, memory_of
from zerodr.config.base import Settings, validate
from zerodr.papers.moma.attention_labels import banned_documents
from zerodr.papers.moma.measure_attention import read_attention
from zerodr.papers.moma.settings import TARGET

RELEVANT, OTHER = "relevant", "other"
COLUMNS = ["memory", "documents", "document_share", "attention_share", "lift", "mean_tokens"]


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


class Row(NamedTuple):
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
    rows = [
        Row(
            row["documents"],
            row["fid_attention"],
            row["tokens"],
            [key in relevant.get(row["query"], ()) for key in row["documents"]],
        )
        for row in attended
    ]
    table, facts = shares_of(rows, settings.collection if settings.evaluated else None), totals(rows, attended)
    table.to_csv(stage.output("shares"), sep="\t", index=False, float_format="%.6g")
    texts = MemoryTexts({path.parent.name: path.parent for path in stage.paths("memories")}, settings.joins)
    asked = dict(split_queries(folder, settings.split)[["id", "text"]].itertuples(index=False))
    cases_of(attended, asked, relevant, texts, settings, stage.path("attention")).to_csv(
        stage.output("cases"), sep="\t", index=False, float_format="%.6g"
    )
    for name, value in facts.items():
        stage.metric(name, value)
    for row in table.to_dict("records"):
        for name in ("document_share", "attention_share"):
            stage.metric(f"{name}.{row['memory']}", row[name])


def shares_of(rows: Sequence[Row], target: str | None = None) -> pd.DataFrame:
    """By memory its share of documents and of FidAtt.

    Attention to the query itself is left out; shares sum to 1. `lift` is the share of attention over that of documents.
    `mean_tokens` is next to it because longer documents draw more attention.

    Args:
        target: the memory that is the evaluated collection, called `target`. None: of memories with relevant documents
            these and others have separate rows.
    """
    hits = {memory_of(key) for row in rows for key, hit in zip(row.documents, row.relevant, strict=True) if hit}
    known = hits if target is None else set()
    counts: dict[str, list[float]] = {}
    for row in rows:
        for key, weight, length, hit in zip(*row, strict=True):
            memory = memory_of(key)
            name = f"{memory}:{RELEVANT if hit else OTHER}" if memory in known else memory
            name = TARGET if memory == target else name
            entry = counts.setdefault(name, [0.0, 0.0, 0.0])
            entry[0], entry[1], entry[2] = entry[0] + 1, entry[1] + weight, entry[2] + length
    documents, attention = (sum(entry[column] for entry in counts.values()) for column in (0, 1))
    lines = []
    for name, (count, weight, tokens) in sorted(counts.items()):
        share, attended = count / documents, weight / attention if attention else 0.0
        lines.append([name, int(count), share, attended, attended / share, tokens / count])
    return pd.DataFrame(lines, columns=COLUMNS)


def totals(rows: Sequence[Row], attended: Sequence[Mapping[str, Any]]) -> dict[str, float]:
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
    lines: list[dict[str, Any]] = []
    for row in list(attended[::step])[: settings.cases]:
        order = np.argsort(-np.asarray(row["attention"]), kind="stable")[: settings.shown]
        keys = [row["documents"][index] for index in order]
        contents = texts.texts(pa.array(keys, pa.string()), where).to_pylist()
        for rank, (index, key, text) in enumerate(zip(order, keys, contents, strict=True), 1):
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
                    "document_text": " ".join(text.split()),
                }
            )
    return pd.DataFrame(
        lines,
        columns=[
            "query",
            "text",
            "rank",
            "memory",
            "document",
            "attention",
            "retrieved_at",
            "relevant",
            "document_text",
        ],
    )
