"""Make up documents and questions: sentences of made-up words; a question asks for words of its document."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

VOCABULARY, SENTENCES, WORDS = 2000, 3, 8
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
CHINESE = "zh"
IDEOGRAPHS = range(0x4E00, 0x4E00 + 2 * VOCABULARY, 2)  # the first ones of words of two


class InventedText(NamedTuple):
    """A made-up document and the question that it answers."""

    title: str
    text: str
    question: str


@cache
def vocabulary(language: str) -> list[str]:
    """List the words of a language. Those of Chinese have two ideographs: an analyser may index pairs of them."""
    if language == CHINESE:
        return [chr(code) + chr(code + 1) for code in IDEOGRAPHS]
    drawn = random.Random(language)
    return ["".join(drawn.choice(CONSONANTS) + drawn.choice(VOWELS) for _ in range(3)) for _ in range(VOCABULARY)]


def make_texts(name: str, count: int, language: str = "en") -> Iterator[InventedText]:
    """Make up the documents of a collection. The same name gives the same texts."""
    drawn, words = random.Random(name), vocabulary(language)
    blank, end = ("", "。") if language == CHINESE else (" ", ". ")
    for _ in range(count):
        sentences = [drawn.choices(words, k=WORDS) for _ in range(SENTENCES)]
        title, asked = blank.join(sentences[0][:2]), blank.join(drawn.sample(sum(sentences, []), 4))
        text = "".join(blank.join(sentence).capitalize() + end for sentence in sentences).strip()
        yield InventedText(title.capitalize(), text, asked if language == CHINESE else f"what is {asked}")
