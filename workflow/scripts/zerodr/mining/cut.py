"""Cut a document into spans of about a sentence, as COCO pretraining reads them (COCO-DR section 4.1)."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from unicodedata import category

from zerodr.collections.cutting import SPACED_END

EAST_ASIAN_END = re.compile(r"(?<=[。！？｡])(?![。！？｡”’」』）])")  # no space follows, so syntok sees no end there
IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff"
AFTER_STOP = re.compile(r"""[.!?]["')\]]*\s+["'(\[]*[^\W\d_]""")  # as far as the next sentence's first letter
Sentences = list[str]


class Words:
    """Find words: in writing without spaces each character, in scripts whose letters carry marks these with them.

    A mark is no letter to Python's patterns, so each would end a word of Hindi or Bengali. A text counts as of such a
    script where one character of `SELDOM` is a mark; a name in it within another language's text changes nothing.

    >>> Words().findall("two words"), Words().findall("बिल्ली है")
    (['two', 'words'], ['बिल्ली', 'है'])
    """

    SELDOM = 6
    plain = re.compile(rf"[{IDEOGRAPHS}]|[^\W{IDEOGRAPHS}]+")

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Find the words of a text."""
        if text.isascii():
            return self.plain.finditer(text)
        mark, marked = _with_marks()
        return (marked if len(mark.findall(text)) * self.SELDOM > len(text) else self.plain).finditer(text)

    def findall(self, text: str) -> list[str]:
        """List the words of a text."""
        return [match[0] for match in self.finditer(text)]


@cache
def _with_marks() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile the patterns of marks, and of words with the marks of their letters and with joiners."""
    marks = "".join(letter for letter in map(chr, range(0x300, 0x10000)) if category(letter)[0] == "M")
    word = rf"[{IDEOGRAPHS}]|[^\W{IDEOGRAPHS}](?:[^\W{IDEOGRAPHS}]|[{marks}\u200c\u200d])*"
    return re.compile(f"[{marks}]"), re.compile(word)


WORD = Words()


def sentences_of(text: str) -> Sentences:
    """Split a text into sentences, in order, with single spaces; a blank line ends a sentence, too.

    Where a text has no capital letter, any letter after a full stop begins a sentence.
    """
    from syntok import segmenter

    sentences = []
    for paragraph in segmenter.analyze(with_capitals(text)):
        for tokens in paragraph:
            passage = text[tokens[0].offset : tokens[-1].offset + len(tokens[-1].value)]
            for piece in EAST_ASIAN_END.split(passage):
                sentences += [" ".join(one.split()) for one in SPACED_END.split(piece)]
    return [sentence for sentence in sentences if sentence]


def with_capitals(text: str) -> str:
    """Capitalise the letter after each full stop of a text without capitals: syntok ends sentences only before one."""
    return AFTER_STOP.sub(_capital, text) if text == text.lower() else text


def _capital(match: re.Match[str]) -> str:
    """Capitalise the last letter of a match, unless its capital is two letters: offsets into the text must stay."""
    letter = match[0][-1].upper()
    return match[0][:-1] + letter if len(letter) == 1 else match[0]


def sentences_of_all(texts: Sequence[tuple[str, str]]) -> list[Sentences]:
    """Split many (title, text) pairs into sentences; a title that is not empty is the first."""
    return [([" ".join(title.split())] if title.strip() else []) + sentences_of(text) for title, text in texts]


def merge(lengths: Sequence[int], max_tokens: int, early_split: float, draw: Callable[[], float]) -> list[range]:
    """Merge sentences to spans; return the sentences' numbers of each span.

    A sentence starts a new span when the current one would grow beyond `max_tokens`, or else with probability
    `early_split`. So only a single sentence can be a span of more than `max_tokens`.

    Args:
        lengths: tokens of each sentence.
        draw: gives a number in [0, 1) for each sentence but the first.
    """
    starts, size = [0], 0
    for number, length in enumerate(lengths):
        if number and (draw() < early_split or size + length > max_tokens):
            starts.append(number)
            size = 0
        size += length
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], len(lengths)], strict=True)]


def draws_for(document: str, seed: int) -> Callable[[], float]:
    """Return a source of numbers in [0, 1) that depend on the document's id and the seed only."""
    return random.Random(f"spans {seed} {document}").random


def joined(sentences: Sentences) -> str:
    """Join neighbouring sentences to one text, East Asian ones without a space between them."""
    text = ""
    for sentence in sentences:
        text += sentence if not text or EAST_ASIAN_END.search(text, len(text)) else f" {sentence}"
    return text
