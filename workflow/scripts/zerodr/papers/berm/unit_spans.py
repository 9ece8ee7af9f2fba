"""Units of a passage: character spans by rules, and the tokens that each one has. Pure functions  # BERM eq. 1

A token belongs to the unit in which its first character that is no white space lies; special tokens, prefixes and
padding belong to none.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from zerodr.collections.cutting import SPACED_END
from zerodr.mining.cut import with_capitals

NO_SPACE_END = r"(?:(?<=[。！？｡])|(?<=[\u3040-\u30ff\u3400-\u9fff][!?]))(?![。！？｡!?”’」』）])"
FURTHER_END = re.compile(f"{NO_SPACE_END}|{SPACED_END.pattern}")  # of sentences that syntok does not end
LINE = re.compile(r"[^\r\n\u2028\u2029]+")
Span = tuple[int, int]


class Unit(NamedTuple):
    """A unit: characters [start, end) of the passage, and tokens [first, stop) of its token sequence."""

    start: int
    end: int
    first: int
    stop: int


class Token(NamedTuple):
    """A token of the passage that is no special one: its position in the sequence, its id and its characters."""

    position: int
    id: int
    start: int
    end: int


def sentence_starts(text: str) -> list[int]:
    """Offsets at which each sentence of a text begins, ascending.

    Ends are . ! ? (syntok's rules: abbreviations, decimals and addresses are none), those of other scripts (। ؟) and
    line breaks; where no space follows, as in Chinese, full-width punctuation alone. In a line without a capital letter
    any letter after an end begins a sentence.
    """
    from syntok import segmenter

    starts: list[int] = []
    for line in LINE.finditer(text):
        for paragraph in segmenter.analyze(with_capitals(line.group())):
            for tokens in paragraph:
                first, last = tokens[0], tokens[-1]
                low, high = first.offset, last.offset + len(last.value)
                cuts = [low + match.end() for match in FURTHER_END.finditer(line.group()[low:high])]
                starts += [line.start() + low, *(line.start() + cut for cut in cuts if cut < high)]
    return starts


def tile(starts: Sequence[int], begin: int, end: int) -> list[Span]:
    """Spans from each start to the next; together they are [begin, end)."""
    if begin >= end:
        return []
    bounds = [begin, *sorted({start for start in starts if begin < start < end} - {min(starts, default=begin)}), end]
    return list(zip(bounds, bounds[1:], strict=False))


def rule_spans(text: str, begin: int = 0) -> list[Span]:
    """Sentences of text[begin:] as spans that cover it without a gap; a tail without an end is a sentence."""
    return tile([begin + start for start in sentence_starts(text[begin:])], begin, len(text))


def first_letters(text: str, offsets: Sequence[Span]) -> list[int]:
    """First character of each span that is no white space (tokens of some tokenizers begin with the space before)."""
    letters = []
    for start, end in offsets:
        while start < end - 1 and text[start].isspace():
            start += 1
        letters.append(start)
    return letters


def by_spans(tokens: Sequence[Token], spans: Sequence[Span], text: str) -> list[Unit]:
    """Tokens of each span that has any; the last characters of a cut span are those of its last token."""
    starts = [start for start, _ in spans]
    by_unit: dict[int, list[Token]] = {}
    for token, letter in zip(tokens, first_letters(text, [(t.start, t.end) for t in tokens]), strict=True):
        number = bisect_right(starts, letter) - 1
        if number >= 0 and letter < spans[number][1]:
            by_unit.setdefault(number, []).append(token)
    units = []
    for number, unit_tokens in sorted(by_unit.items()):
        (start, end), last = spans[number], unit_tokens[-1]
        cut = last is tokens[-1] and text[last.end : end].strip() != ""
        units.append(Unit(start, last.end if cut else end, unit_tokens[0].position, last.position + 1))
    return units


def by_full_stop(tokens: Sequence[Token], full_stop: int) -> list[Unit]:
    """Runs of tokens up to each full stop token, which they do not hold; what follows the last one is left out.

    A full stop that follows another, or is the first token, is a unit itself, as in the released code.
    """
    units: list[Unit] = []
    run: list[Token] = []
    for token in tokens:
        if token.id != full_stop:
            run.append(token)
            continue
        units.append(_unit(run or [token]))
        run = []
    return units


def by_count(tokens: Sequence[Token], size: int) -> list[Unit]:
    """Runs of `size` tokens, the last one may be shorter."""
    return [_unit(tokens[first : first + size]) for first in range(0, len(tokens), size)]


def _unit(tokens: Sequence[Token]) -> Unit:
    return Unit(tokens[0].start, tokens[-1].end, tokens[0].position, tokens[-1].position + 1)


def merged(units: Sequence[Unit], most: int) -> list[Unit]:
    """At most `most` units: the last one takes in what lies behind."""
    if len(units) <= most:
        return list(units)
    first, last = units[most - 1], units[-1]
    return [*units[: most - 1], Unit(first.start, last.end, first.first, last.stop)]
