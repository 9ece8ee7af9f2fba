"""Compare a collection with its registry row: refuse what contradicts it, count the rest.

Refused: wrong counts, duplicate or unusable ids, judgements of absent documents beyond `known_gaps`, judged queries
without text, an empty corpus. Counted: empty texts, overlap of queries with the corpus, grades. Grades stay as they
are: one above 0 is relevant, 0 and below (TREC's -1) is judged and not relevant.
"""

import logging
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zerodr.collections.readers.base import Judgement
from zerodr.config.registry import Content
from zerodr.errors import CollectionError

log = logging.getLogger("zerodr")
LISTED = 20
USER_FOLDER = "folder"  # the format of users' own folders
BLANKS = r"[\s\ufeff\u200b-\u200d\u2060\u00ad]+"  # with marks of encodings, and characters without width
ENDS = re.compile(f"^{BLANKS}|{BLANKS}$")
PADDED = 16  # digits of ids that lost leading zeros
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SURROGATE = re.compile(r"[\ud800-\udfff]")


class IdIndex:
    """A set of ids in bounded memory: 8 bytes an id for Python's 64-bit string hash, 12 for its file and line.

    Two different ids share a hash with a probability below 1e-4 for 20 million ids; `duplicates` then lists both, and
    the caller compares them by value.
    """

    def __init__(self) -> None:
        self._hashes, self._lines, self._files = array("q"), array("L"), array("I")
        self._names: list[str] = []
        self._sorted: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, key: str, file: str, line: int) -> None:
        """Add `key`.

        Raises:
            CollectionError: it is empty, or holds what no line of a table can hold.
        """
        if not key:
            raise CollectionError(f"{file}:{line}", "id is empty, expected a word", "give it a name")
        if CONTROL.search(key):
            problem = f"id {key!r} holds a tab, the end of a line or another control character"
            raise CollectionError(f"{file}:{line}", problem, "replace it, in judgements too: they are lines with tabs")
        if SURROGATE.search(key):
            problem = f"id {key!r} holds half a character (a lone surrogate), which no file in UTF-8 can hold"
            raise CollectionError(f"{file}:{line}", problem, "replace it, in judgements too")
        if not self._names or self._names[-1] != file:
            self._names.append(file)
        self._hashes.append(hash(key))  # differs between processes, so an index never leaves its own
        self._lines.append(line)
        self._files.append(len(self._names) - 1)
        self._sorted = None

    def duplicates(self) -> list[list[int]]:
        """Group the rows (from 0, in order of addition) that share a hash, in order of the second occurrence."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")
        same = hashes[order][1:] == hashes[order][:-1]
        groups: dict[int, list[int]] = {}
        for left, right in zip(order[:-1][same], order[1:][same], strict=True):
            groups.setdefault(int(hashes[left]), [int(left)]).append(int(right))
        return sorted(groups.values(), key=lambda rows: rows[1])

    def position(self, row: int) -> str:
        """Return `file:line` of a row."""
        return f"{self._names[self._files[row]]}:{self._lines[row]}"

    def __contains__(self, key: object) -> bool:
        if self._sorted is None:
            self._sorted = np.sort(np.frombuffer(self._hashes, dtype=np.int64))
        # Equal hashes of different ids count as equal here; see the class for how unlikely that is.
        value = hash(key)
        row = int(np.searchsorted(self._sorted, value))
        return row < len(self._sorted) and int(self._sorted[row]) == value


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
        """Return the values for JSON."""
        return {"count": self.count, "first": self.first}


class TextScan:
    """Find texts that occur more than once: of documents, and of queries that are documents themselves.

    It holds 16 bytes a document: the hashes of its id and of its text.

    Args:
        queries: their texts by id.
    """

    def __init__(self, queries: dict[str, str]) -> None:
        self._queries = {key: fold(text) for key, text in queries.items()}
        self._asked = set(self._queries.values()) - {""}
        self._ids, self._texts = array("q"), array("q")
        self._copied: set[str] = set()
        self._identical: set[str] = set()

    def add(self, key: str, title: str, text: str) -> None:
        """Add a document."""
        whole = f"{title} {text}".strip()
        if not whole:
            return
        self._ids.append(hash(key))
        self._texts.append(hash(whole))
        if self._asked:
            folded = {fold(text), fold(whole)}
            if self._queries.get(key) in folded:
                self._identical.add(key)
            else:
                self._copied |= folded & self._asked

    def facts(self, judgements: Sequence[Judgement]) -> dict[str, int]:
        """Count what the judgements of a split meet; counts of 0 are absent."""
        queries, judged = {row.query for row in judgements}, {row.document for row in judgements}
        identical = queries & self._identical
        copied = {key for key in queries - identical if self._queries.get(key) in self._copied}
        equal = self._equal()
        counts = {"identical_documents": len(identical), "copied_queries": len(copied), "equal_documents": len(equal)}
        if len(equal):
            hashes = np.fromiter(map(hash, judged), np.int64, len(judged))
            counts |= {"equal_judged": int(np.isin(hashes, equal).sum()), "judged_documents": len(judged)}
        return {name: count for name, count in counts.items() if count}

    def _equal(self) -> np.ndarray:
        """Return the hashes of the ids of documents whose text another one has."""
        texts = np.frombuffer(self._texts, np.int64)
        _, group, sizes = np.unique(texts, return_inverse=True, return_counts=True)
        return np.frombuffer(self._ids, np.int64)[sizes[group] > 1]


def fold(text: str) -> str:
    """Remove what does not matter when texts are compared: blanks at the ends, capital letters."""
    return text.strip().casefold()


def check_count(where: str, what: str, expected: int | None, count: int) -> None:
    """Raise a CollectionError when `expected` is given and differs."""
    if expected is not None and expected != count:
        step = "the archive is another version than the registry says: replace it or correct the row"
        raise CollectionError(where, f"expected {expected} {what}, found {count}", step)


@dataclass
class SplitAudit:
    """The judgements of a split that remain, and their counts."""

    judgements: list[Judgement]
    facts: dict[str, Any]


def audit_split(
    split: str,
    rows: Iterable[Judgement],
    documents: IdIndex,
    texts: dict[str, str],
    expected: Content,
    scan: TextScan | None = None,
) -> SplitAudit:
    """Check the judgements of one split.

    A pair that is judged twice stays at its first position with the last grade, as BEIR's loader does.

    Args:
        split: its name.
        rows: the judgements, in source order.
        documents: ids of the corpus.
        texts: query texts by id.
        expected: the registry row.
        scan: of the documents, whose counts are added.

    Raises:
        CollectionError: absent documents beyond `known_gaps` or unknown queries (unless `drop_missing`), a judged query
            without text, no judgement with a grade above 0, or another number of queries with a positive than promised.
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
        first = ", ".join(judged_twice.first[:3])
        log.warning("%s: %d pairs have two grades, the last one counts: %s", where, conflicting, first)
    judgements = list(pairs.values())
    missing = _first_unknown(judgements, "document", documents)
    unknown = _first_unknown(judgements, "query", texts)
    _refuse_changed(where, "query", unknown, texts)
    _refuse_changed(where, "document", missing, documents)
    if expected.drop_missing:
        judgements = [row for row in judgements if row.document not in missing and row.query not in unknown]
    else:
        _refuse_missing(where, missing, unknown, expected)
    if not judgements:
        problem = f"holds no judgement{f' but {len(pairs)} of absent documents or queries' if pairs else ''}"
        raise CollectionError(where, problem, "remove the split or correct its file")
    if empty := next((row for row in judgements if not without_blanks(texts[row.query])), None):
        problem = f"judged query {empty.query!r} ({empty.file}:{empty.line}) has an empty text"
        raise CollectionError(where, problem, "add its text")
    positive = {row.query for row in judgements if row.grade > 0}
    if not positive:
        _refuse_no_positive(where, pairs.values(), judgements)
    lost = len({row.query for row in pairs.values() if row.grade > 0} - positive)
    check_count(where, "queries with a positive", expected.splits.get(split), len(positive))
    grades = Counter(row.grade for row in judgements)
    facts = {
        "judgements": len(judgements),
        "queries": len({row.query for row in judgements}),
        "queries_with_positive": len(positive),
        "grades": {str(grade): grades[grade] for grade in sorted(grades)},
        "negative_grades": sum(n for grade, n in grades.items() if grade < 0),
        "repeated": repeated,
        "conflicting": conflicting,
        "missing_documents": {"count": len(missing), "first": list(missing)[:LISTED]},
        "unknown_queries": {"count": len(unknown), "first": list(unknown)[:LISTED]},
        "dropped": len(pairs) - len(judgements),
    }
    facts |= {"lost_queries": lost} if lost else {}
    asked = Counter(fold(texts[key]) for key in {row.query for row in judgements})
    facts |= {"equal_queries": equal} if (equal := sum(n for n in asked.values() if n > 1)) else {}
    facts |= scan.facts(judgements) if scan else {}
    return SplitAudit(judgements, facts)


def without_blanks(text: str) -> str:
    """Remove what nobody sees from the ends of a text."""
    return ENDS.sub("", text)


def near_id(key: str, known: Container[str]) -> str:
    """Return the id of `known` that `key` was before a spreadsheet or a copy changed it; empty: there is none."""
    changed = [
        without_blanks(key),
        key.strip(),
        key.removesuffix(".0"),
        key.lstrip("0") or "0",
        key.lower(),
        key.upper(),
    ]
    changed += [unicodedata.normalize(form, key) for form in ("NFC", "NFD")]
    changed += [key.zfill(width) for width in range(len(key) + 1, PADDED + 1)] if key.isdecimal() else []
    return next((one for one in changed if one != key and one in known), "")


def _refuse_changed(where: str, noun: str, absent: dict[str, Judgement], known: Container[str]) -> None:
    """Refuse ids that a spreadsheet has changed: what they name is not absent."""
    changed = {key: near for key in absent if (near := near_id(key, known))}
    if changed:
        key, near = next(iter(changed.items()))
        location = f"{absent[key].file}:{absent[key].line}"
        problem = f"{len(changed)} {noun} ids are nearly known ones: {key!r} at {location}, expected {near!r}"
        raise CollectionError(where, problem, "write ids as they were: a spreadsheet drops leading zeros")


def _refuse_no_positive(where: str, stated: Iterable[Judgement], judgements: Sequence[Judgement]) -> None:
    dropped = sum(row.grade > 0 for row in stated)
    problem = f"none of its {len(judgements)} judgements has a grade above 0, so that nothing can be measured"
    problem += f" ({dropped} with one name absent documents or queries, and are dropped)" if dropped else ""
    raise CollectionError(where, problem, "grade relevant documents 1 or more, or remove the split's file")


def _first_unknown(rows: Iterable[Judgement], column: str, known: Container[str]) -> dict[str, Judgement]:
    """Return the first judgement of each id in `column` that `known` lacks."""
    unknown: dict[str, Judgement] = {}
    for row in rows:
        if getattr(row, column) not in known:
            unknown.setdefault(getattr(row, column), row)
    return unknown


def _refuse_missing(
    where: str, missing: dict[str, Judgement], unknown: dict[str, Judgement], expected: Content
) -> None:
    brought, known_gaps = expected.format == USER_FOLDER, expected.known_gaps
    step = "leave them out: --config byo_drop_missing=true" if brought else "set drop_missing: true in its row"
    if len(missing) > known_gaps:
        noun = "document is" if len(missing) == 1 else "documents are"
        problem = f"{len(missing)} judged {noun} missing from the corpus ({_named(missing)})"
        problem += "" if brought else f", known_gaps is {known_gaps}"
        raise CollectionError(where, problem, f"{'add them' if brought else 'raise known_gaps'} or {step}")
    if len(missing) < known_gaps:
        log.info("%s: %d judged documents are missing, known_gaps allows %d", where, len(missing), known_gaps)
    if unknown:
        problem = f"{len(unknown)} judged queries have no text ({_named(unknown)})"
        raise CollectionError(where, problem, f"add them or {step}")


def _named(rows: dict[str, Judgement]) -> str:
    names = [f"{key!r} at {row.file}:{row.line}" for key, row in list(rows.items())[:3]]
    return ", ".join(names) + (", ..." if len(rows) > 3 else "")
