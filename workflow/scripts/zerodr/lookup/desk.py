"""Answer queries on one collection by several methods side by side, with texts, ranks, judgements and differences."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import pandas as pd

from zerodr.collections.access import qrels_files, read_qrels, read_queries
from zerodr.collections.audit import SURROGATE
from zerodr.config.measures import label_of
from zerodr.errors import ArtifactError, ConfigError, nearest
from zerodr.lexical.analysis import WORD as CJK_WORD
from zerodr.lexical.analysis import analyze_cjk, analyze_english, fold_width, in_bigrams, lower
from zerodr.lookup.documents import Documents
from zerodr.lookup.searchers import Opened, QuerySearcher, Ranked
from zerodr.lookup.sources import LEXICAL, Source, Sources, list_memories

DEPTH = 100  # ranks that are compared
MOST, LARGEST_COUNT = 100, 1000  # documents of an answer on the page, and of one for programs
METRIC, ENDING = "ndcg_cut_10", ".per_query.parquet"
ROWS = 5000  # queries in a list of differences
CHARACTERS = 400
LEAD = 80
"""Characters before the first match, where a text is too long to be shown."""
WORD = re.compile(r"\w+(?:['\u2019]\w+)?")
CJK = ("zh", "ja", "ko")
Segments = list[tuple[str, bool]]


class Desk:
    """Methods of one collection, each loaded when it is first asked.

    Args:
        sources: of the checkout.
        collection: manifest of the collection.
        others: methods that the checkout's records do not know, or in place of those of their names.
        alone: name of the collection, where no record knows it, so that there are no more methods; empty: they do.
    """

    def __init__(self, sources: Sources, collection: str, *others: Source, alone: str = "") -> None:
        self.sources, self.collection, self.alone = sources, collection, alone
        self.folder = Path(collection).parent
        known = () if alone else sources.on(collection)
        self.methods = {source.name: source for source in reversed(known)}  # of a method's rankings the first
        self.methods = {source.name: self.methods[source.name] for source in known} | {one.name: one for one in others}
        if not any(source.kind == LEXICAL for source in self.methods.values()):
            self.methods["bm25"] = sources.named("bm25", collection)
        self._opened = Opened()
        self._lock = Lock()

    @property
    def name(self) -> str:
        """Name of the collection."""
        return self.alone or self.folder.name

    @cached_property
    def documents(self) -> Documents:
        """Texts of the collection."""
        return Documents(self.folder)

    @cached_property
    def language(self) -> str:
        """Language that the collection's index was built for; English without one."""
        lexical = (source for source in self.methods.values() if source.kind == LEXICAL)
        return next((source.params.get("language", "en") for source in lexical), "en")

    @cached_property
    def queries(self) -> dict[str, str]:
        """Texts of the collection's queries by id."""
        table = read_queries(self.folder)
        return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))

    @cached_property
    def _known(self) -> dict[str, str]:
        return {text.strip(): key for key, text in self.queries.items()}

    @cached_property
    def _grades(self) -> dict[str, dict[str, int]]:
        grades: dict[str, dict[str, int]] = {}
        for split in qrels_files(self.folder):
            for query, document, grade in read_qrels(self.folder, split).itertuples(index=False):
                grades.setdefault(query, {})[document] = int(grade)
        return grades

    def source(self, name: str) -> Source:
        """Return a method by name; `bm25` is the first lexical one.

        Raises:
            ArtifactError: there is none.
        """
        if name == "bm25" and name not in self.methods:
            return next(source for source in self.methods.values() if source.kind == LEXICAL)
        if name not in self.methods and self.alone:
            raise ArtifactError(f"{name} on {self.name}", "is no part of this retriever", nearest(name, self.methods))
        return self.methods.get(name) or self.sources.named(name, self.collection)

    def described(self, source: Source) -> dict[str, Any]:
        """Describe a method for the page: its name, whether it was evaluated, the memories that it can read."""
        return {"name": source.name, "evaluated": bool(source.per_query), "memories": list_memories(source)}

    def searcher(self, name: str) -> QuerySearcher:
        """Return what answers for a method, and load it at the first call."""
        source = self.source(name)
        with self._lock:
            return self._opened.searcher(source)

    def answer(
        self, text: str, names: Sequence[str], count: int = 10, options: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Answer a query by one or two methods.

        Args:
            text: the query.
            names: of the methods.
            count: documents of each, at most MOST.
            options: of methods with memories.

        Returns:
            values for JSON: `query` with its id when the collection has this very query, and `columns`, one a method.

        Raises:
            ConfigError: no method, more than two, a count out of range, or half a character in the text.
        """
        if not 1 <= len(names) <= 2:
            raise ConfigError("methods", f"expected one or two, found {len(names)}", "choose one or two")
        if not 1 <= count <= MOST:
            raise ConfigError("documents", f"expected 1 to {MOST}, found {count}", "choose another number")
        text = composed(text)
        key = self._known.get(text.strip())
        grades = self._grades.get(key, {}) if key is not None else {}
        timed = [self._timed(name, text, max(count, DEPTH), options or {}) for name in names]
        ranks = [{document: rank for rank, document in enumerate(answer.ids, 1)} for answer, _ in timed]
        marker = Highlighter(text, self.language)
        columns = []
        for at, (name, (answer, milliseconds)) in enumerate(zip(names, timed, strict=True)):
            other = ranks[1 - at] if len(names) == 2 else None
            shown = self._shown(answer, count, marker, grades, other)
            facts = {"method": self.source(name).name, "milliseconds": milliseconds, "notice": answer.notice}
            columns.append(facts | {"documents": shown, "read": answer.read})
        query = {"id": key, "text": text, "judged": len(grades), "relevant": sum(g > 0 for g in grades.values())}
        return {"query": query, "columns": columns, "depth": DEPTH}

    def hits(self, text: str, name: str = "", count: int = 10) -> dict[str, Any]:
        """Answer a query by one method with whole texts, for programs.

        Returns:
            values for JSON: `query`, `method`, `notice` and `hits`, each with rank, id, score, title, text.

        Raises:
            ConfigError: a count out of range, or half a character in the text.
        """
        if not 1 <= count <= LARGEST_COUNT:
            raise ConfigError("k", f"expected 1 to {LARGEST_COUNT}, found {count}", "choose another number")
        source, text = self.source(name or next(iter(self.methods))), composed(text)
        answer = self.searcher(source.name).search(text, count, {})
        found = zip(answer.ids, answer.scores, self.documents.texts(answer.ids), strict=True)
        rows = [
            {"rank": rank, "id": key, "score": score, "title": title, "text": body}
            for rank, (key, score, (title, body)) in enumerate(found, 1)
        ]
        return {"query": text, "method": source.name, "notice": answer.notice, "hits": rows}

    def _timed(self, name: str, text: str, depth: int, options: dict[str, Any]) -> tuple[Ranked, float]:
        searcher = self.searcher(name)
        start = time.perf_counter()
        answer = searcher.search(text, depth, options)
        return answer, round(1000 * (time.perf_counter() - start), 1)

    def _shown(
        self, answer: Ranked, count: int, marker: Highlighter, grades: dict[str, int], other: dict[str, int] | None
    ) -> list[dict[str, Any]]:
        rows = []
        for rank, (key, score, (title, text)) in enumerate(
            zip(answer.ids[:count], answer.scores, self.documents.texts(answer.ids[:count]), strict=False), 1
        ):
            row: dict[str, Any] = {"rank": rank, "id": key, "score": round(score, 4), "grade": grades.get(key)}
            row |= {"title": marker.mark(title), "text": marker.mark(text)}
            missing = None if other is not None and len(other) >= DEPTH else 0  # 0: the other one does not find it
            rows.append(row | ({"other": other.get(key, missing)} if other is not None else {}))
        return rows

    def gains(self, left: str, right: str) -> dict[str, Any]:
        """Compare two methods by query: rows id, text, left, right, gain (right - left), largest gain first.

        Raises:
            ArtifactError: one has no evaluation by query, or both were evaluated under different protocols.
        """
        a, b = (self._values(name) for name in (left, right))
        first, second = (Path(self.source(name).per_query).name.removesuffix(ENDING) for name in (left, right))
        if first != second:
            problem = f"were evaluated under protocols {first} and {second}, whose numbers do not compare"
            raise ArtifactError(f"{left}, {right}", problem, "choose rankings of one protocol")
        frame = pd.DataFrame({"left": a, "right": b}).dropna()
        frame["gain"] = frame["right"] - frame["left"]
        frame = frame.sort_values("gain", ascending=False, kind="stable")
        half = ROWS // 2
        listed = frame if len(frame) <= ROWS else pd.concat([frame.head(half), frame.tail(half)])
        rows = [
            {"id": key, "text": self.queries.get(key, ""), "left": x, "right": y, "gain": gain}
            for key, x, y, gain in listed.itertuples()
        ]
        means = frame[["left", "right"]].mean().tolist() if len(frame) else [0.0, 0.0]
        return {"metric": label_of(METRIC), "rows": rows, "queries": len(frame), "means": means}

    def _values(self, name: str) -> pd.Series:
        from zerodr.evaluation.evaluate import read_measures  # brings SciPy

        source = self.source(name)
        if not source.per_query:
            step = "evaluate it: snakemake results/evaluation/METHOD/COLLECTION/PROTOCOL.summary.tsv"
            raise ArtifactError(f"{source.name} on {self.name}", "has no evaluation by query", step)
        return read_measures(Path(source.per_query), METRIC).set_index("query")[METRIC]


def composed(query: str) -> str:
    """Write letters and their accents as one character (NFC), as in the texts of users' own folders.

    Raises:
        ConfigError: a byte that is no UTF-8, such as a terminal with another encoding sends.
    """
    if SURROGATE.search(query):
        raise ConfigError("query", f"holds half a character, {query!r:.60}", "send it as UTF-8")
    return unicodedata.normalize("NFC", query)


class Highlighter:
    """Marks words of one query.

    Args:
        query: its text.
        language: of the collection.
    """

    def __init__(self, query: str, language: str) -> None:
        self._cjk = language in CJK
        self._english = language == "en"
        self._terms = set(analyze_cjk(query)) if self._cjk else {self._term(word) for word in WORD.findall(query)}
        self._terms -= {""}

    def _term(self, word: str) -> str:
        return "".join(analyze_english(word)) if self._english else word.casefold()

    def mark(self, text: str, characters: int = CHARACTERS) -> Segments:
        """Split a text, cut around its first match, into pieces that match and pieces that do not."""
        spans = list(self._spans(text))
        start = 0
        if len(text) > characters and spans and spans[0][1] > characters:
            start = max(0, spans[0][0] - LEAD)
        stop = min(len(text), start + characters)
        pieces: Segments = [("... ", False)] if start else []
        at = start
        for first, last in spans:
            if first >= at and last <= stop:
                pieces += [(text[at:first], False), (text[first:last], True)]
                at = last
        pieces.append((text[at:stop] + (" ..." if stop < len(text) else ""), False))
        return [piece for piece in pieces if piece[0]]

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of each match, in order, without overlap."""
        if self._cjk:
            yield from self._bigrams(text)
        else:
            yield from (match.span() for match in WORD.finditer(text) if self._term(match.group()) in self._terms)

    def _bigrams(self, text: str) -> Iterator[tuple[int, int]]:
        # Letter by letter, so that positions stay those of the text.
        letters = ((letter, letter.lower() if letter < "\uff00" else lower(fold_width(letter))) for letter in text)
        folded = "".join(low if len(low) == 1 else letter for letter, low in letters)
        spelled = any(map(str.isascii, "".join(self._terms)))  # only such words can be within others
        words, in_run, hit = set[tuple[int, int]](), [not spelled] * len(text), [False] * len(text)
        for match in CJK_WORD.finditer(text) if spelled else ():
            first, last = match.span()
            if in_bigrams(match):
                in_run[first:last] = [True] * (last - first)
            else:
                words.add((first, last))
        for term in self._terms:
            at = folded.find(term)
            while at >= 0:
                last = at + len(term)
                if (at, last) in words or all(in_run[at:last]):
                    hit[at:last] = [True] * len(term)
                at = folded.find(term, at + 1)
        at = 0
        while at < len(text):
            last = at
            while last < len(text) and hit[last]:
                last += 1
            if last > at:
                yield at, last
            at = max(last, at + 1)
