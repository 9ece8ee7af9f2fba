"""What is compared with the registry row, what is refused, and what is counted.

Refused: wrong counts, duplicate or unusable ids, judgements of absent documents beyond `known_gaps`, judged queries
without text, an empty corpus. Counted: empty texts, overlap of queries with the corpus, grades. Grades stay as they
are: one above 0 is relevant, 0 and below (TREC's -1) is judged and not relevant.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from zerodr.collections.ids import IdIndex
from zerodr.collections.readers.base import Judgement
from zerodr.errors import CollectionError

log = logging.getLogger("zerodr")
LISTED = 20


@dataclass
class Listing:
    """A count with its first few members."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, key: str) -> None:
        """Count `key`."""
        self.count += 1
        if len(self.first) < LISTED:
            self.first.append(key)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"count": self.count, "first": self.first}


@dataclass(frozen=True)
class Expected:
    """What the registry row promises. None: not promised."""

    name: str
    documents: int | None = None
    queries: int | None = None
    splits: dict[str, int | None] = field(default_factory=dict)
    known_gaps: int = 0
    drop_missing: bool = False


def check_count(where: str, what: str, expected: int | None, found: int) -> None:
    """Raises:
    CollectionError: `expected` is given and differs.
    """
    if expected is not None and expected != found:
        raise CollectionError(
            where,
            f"expected {expected} {what}, found {found}",
            "the archive is another version than the registry says: replace it or mend the row",
        )


@dataclass
class SplitAudit:
    """The judgements of a split that are kept, and what was counted on the way."""

    kept: list[Judgement]
    facts: dict[str, Any]


def audit_split(
    split: str, rows: Iterable[Judgement], documents: IdIndex, texts: dict[str, str], expected: Expected
) -> SplitAudit:
    """Check the judgements of one split.

    A pair that is judged twice keeps its place and takes the last grade, as BEIR's loader does.

    Args:
        split: its name.
        rows: the judgements, in source order.
        documents: ids of the corpus.
        texts: query texts by id.
        expected: the registry row.

    Raises:
        CollectionError: absent documents beyond `known_gaps` or unknown queries (unless `drop_missing`), a judged query
            without text, no judgement at all, or another number of queries with a positive than promised.
    """
    where = f"{expected.name}/{split}"
    pairs: dict[tuple[str, str], Judgement] = {}
    repeated, conflicting, judged_twice = 0, 0, Listing()
    for row in rows:
        pair = row.query, row.document
        if pair in pairs:
            repeated += 1
            if pairs[pair].grade != row.grade:
                conflicting += 1
                judged_twice.add(f"{row.file}:{row.line}")
        pairs[pair] = row
    if conflicting:
        log.warning(
            "%s: %d pairs have two grades, the last one counts: %s",
            where,
            conflicting,
            ", ".join(judged_twice.first[:3]),
        )
    missing = _missing_documents(pairs.values(), documents)
    unknown = _unknown_queries(pairs.values(), texts)
    kept = list(pairs.values())
    if expected.drop_missing:
        kept = [row for row in kept if row.document not in missing and row.query not in unknown]
    else:
        _refuse_missing(where, missing, unknown, expected.known_gaps)
    if not kept:
        raise CollectionError(where, "holds no judgement", "remove the split or mend its file")
    _refuse_empty_queries(where, kept, texts)
    positive = {row.query for row in kept if row.grade > 0}
    check_count(where, "queries with a positive", expected.splits.get(split), len(positive))
    grades = Counter(row.grade for row in kept)
    return SplitAudit(
        kept,
        {
            "judgements": len(kept),
            "queries": len({row.query for row in kept}),
            "queries_with_positive": len(positive),
            "grades": {str(grade): grades[grade] for grade in sorted(grades)},
            "negative_grades": sum(n for grade, n in grades.items() if grade < 0),
            "repeated": repeated,
            "conflicting": conflicting,
            "missing_documents": {"count": len(missing), "first": list(missing)[:LISTED]},
            "unknown_queries": {"count": len(unknown), "first": list(unknown)[:LISTED]},
            "dropped": len(pairs) - len(kept),
        },
    )


def _missing_documents(rows: Iterable[Judgement], documents: IdIndex) -> dict[str, Judgement]:
    """First judgement of each document that the corpus lacks."""
    found: dict[str, Judgement] = {}
    for row in rows:
        if row.document not in documents:
            found.setdefault(row.document, row)
    return found


def _unknown_queries(rows: Iterable[Judgement], texts: dict[str, str]) -> dict[str, Judgement]:
    found: dict[str, Judgement] = {}
    for row in rows:
        if row.query not in texts:
            found.setdefault(row.query, row)
    return found


def _refuse_missing(where: str, missing: dict[str, Judgement], unknown: dict[str, Judgement], known_gaps: int) -> None:
    step = "set drop_missing: true in its row"
    if len(missing) > known_gaps:
        noun = "document is" if len(missing) == 1 else "documents are"
        raise CollectionError(
            where,
            f"{len(missing)} judged {noun} missing from the corpus ({_named(missing)}), known_gaps is {known_gaps}",
            f"raise known_gaps or {step}",
        )
    if len(missing) < known_gaps:
        log.info("%s: %d judged documents are missing, known_gaps allows %d", where, len(missing), known_gaps)
    if unknown:
        raise CollectionError(
            where, f"{len(unknown)} judged queries have no text ({_named(unknown)})", f"add them or {step}"
        )


def _refuse_empty_queries(where: str, rows: list[Judgement], texts: dict[str, str]) -> None:
    for row in rows:
        if not texts[row.query].strip():
            raise CollectionError(
                where, f"judged query {row.query!r} ({row.file}:{row.line}) has an empty text", "give it a text"
            )


def _named(rows: dict[str, Judgement]) -> str:
    parts = [f"{key!r} at {row.file}:{row.line}" for key, row in list(rows.items())[:3]]
    return ", ".join(parts) + (", ..." if len(rows) > 3 else "")
