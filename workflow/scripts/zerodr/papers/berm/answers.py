"""Answers that came with a collection, as characters of the passages that hold them."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from zerodr.errors import CollectionError

log = logging.getLogger("zerodr")
FILE = "answers.parquet"
Pair = tuple[str, str]
Answer = tuple[str, int]


@dataclass(frozen=True)
class Answers:
    """Answers by (query, document): (text, first character in the document's text).

    Attributes:
        spans: of answers whose text is at the offset that is recorded for it.
        texts: all answers of a query, for exact match and F1.
        displaced: answers whose text is not there; they are left out of `spans`.
    """

    spans: dict[Pair, list[Answer]]
    texts: dict[str, list[str]]
    displaced: int


def has_answers(collection: Path, split: str | None = None) -> bool:
    """Tell whether a normalised collection came with answers: any, or some of `split`."""
    if not (collection / FILE).exists():
        return False
    return split is None or split in pq.read_table(collection / FILE, columns=["split"])["split"].unique().to_pylist()


def read_answers(collection: Path, split: str, texts: dict[str, str]) -> Answers:
    """Answers of a split, each checked against its document.

    Args:
        collection: normalised, with answers.parquet.
        split: whose answers.
        texts: text of each document (without title) by id; answers in other documents are left out.

    Raises:
        CollectionError: no answers came along, the split has none, or none is at the offset that is recorded for it.
    """
    if not has_answers(collection):
        raise CollectionError(
            collection.name,
            f"has no {FILE}, so that there are no answers to learn from",
            "take a source with answers, such as squad-v1.1",
        )
    rows = pq.read_table(collection / FILE, filters=[("split", "=", split)]).to_pylist()
    if not rows:
        available = ", ".join(sorted(set(pq.read_table(collection / FILE, columns=["split"])["split"].to_pylist())))
        raise CollectionError(f"{collection.name}/{split}", f"has no answers (have: {available})", "take another split")
    spans: dict[Pair, list[Answer]] = {}
    gold: dict[str, list[str]] = {}
    displaced, first = 0, ""
    for row in rows:
        if row["corpus_id"] not in texts:
            continue
        text, pair = texts[row["corpus_id"]], (row["query_id"], row["corpus_id"])
        for answer in row["answers"]:
            gold.setdefault(row["query_id"], []).append(answer["text"])
            if matches(text, answer):
                spans.setdefault(pair, []).append((answer["text"], answer["start"]))
            else:
                displaced += 1
                first = first or f"{row['query_id']}: {answer['text']!r} at {answer['start']}"
    where = f"{collection.name}/{split}"
    if displaced and not spans:
        raise CollectionError(
            where,
            f"none of its {displaced} answers stands in its document where it is said to stand, the first is {first}",
            "correct the starts (characters of the text without title, from 0)",
        )
    if displaced:
        log.warning(
            "%s: %d answers do not stand where they are said to stand and are left out, the first is %s",
            where,
            displaced,
            first,
        )
    return Answers(spans, gold, displaced)


def matches(text: str, answer: dict[str, Any]) -> bool:
    """Whether a text has an answer at its offset."""
    start = answer["start"]
    return bool(answer["text"]) and start is not None and start >= 0 and text.startswith(answer["text"], start)
