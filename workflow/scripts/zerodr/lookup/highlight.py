"""Mark the words of a text that a query has too, by the terms of BM25's analysis."""

import re
from collections.abc import Iterator

from zerodr.lexical.analysis import analyze_cjk, analyze_english

CHARACTERS = 400
LEAD = 80
"""Characters before the first match, where a text is too long to be shown."""
WORD = re.compile(r"\w+(?:['\u2019]\w+)?")
CJK = ("zh", "ja", "ko")
Segments = list[tuple[str, bool]]


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
        folded = text.lower()
        terms = sorted(self._terms, key=len, reverse=True)
        hit = [False] * len(text)
        for term in terms:
            at = folded.find(term)
            while at >= 0 and len(folded) == len(text):
                hit[at : at + len(term)] = [True] * len(term)
                at = folded.find(term, at + 1)
        at = 0
        while at < len(text):
            last = at
            while last < len(text) and hit[last]:
                last += 1
            if last > at:
                yield at, last
            at = max(last, at + 1)
