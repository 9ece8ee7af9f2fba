"""Analyse English and Chinese as Lucene does, without Java, for the backend bm25s and for mining.

English is Anserini's default: words without possessive, lower case, no stop words (33), Porter stem. Chinese is the
CJKAnalyzer of Lucene: words, widths folded, lower case, bigrams of adjacent characters, no stop words.
"""

import unicodedata
from collections.abc import Callable

import regex

from zerodr.errors import ConfigError, nearest
from zerodr.lexical.porter import stem
from zerodr.lexical.tokenizer import WORD, words

ENGLISH_STOP_WORDS = frozenset(
    """a an and are as at be but by for if in into is it no not of on or such that the their then there these they this
    to was will with""".split()
)
CJK_STOP_WORDS = frozenset(
    """a and are as at be but by for if in into is it no not of on or s such t that the their then there these they this
    to was will with www""".split()
) | {""}
_SCRIPT = regex.compile(r"[\p{Script=Han}\p{Script=Hiragana}\p{Script=Hangul}\p{WB=Katakana}]")
_POSSESSIVE = ("'s", "'S", "\u2019s", "\u2019S", "\uff07s", "\uff07S")
Analyzer = Callable[[str], list[str]]


class EnglishTerms(dict[str, str]):
    """A cache of word -> term; an empty term means a stop word."""

    def __missing__(self, word: str) -> str:
        short = word[:-2] if word.endswith(_POSSESSIVE) else word
        low = lower(short)
        term = self[word] = "" if low in ENGLISH_STOP_WORDS else stem(low)
        return term


_english = EnglishTerms()


def lower(word: str) -> str:
    """Lower the case one character at a time, as Java does (no final sigma, no combining dot)."""
    if word.isascii():
        return word.lower()
    return "".join("i" if letter == "\u0130" else letter.lower() for letter in word)


def analyze_english(text: str) -> list[str]:
    """Return the terms of an English text."""
    return [term for term in map(_english.__getitem__, words(text)) if term]


def analyze_cjk(text: str) -> list[str]:
    """Return the terms of a Chinese (Japanese, Korean) text: character bigrams, and words of other scripts."""
    terms: list[str] = []
    run, end = "", -1
    for match in WORD.finditer(text):
        word = lower(fold_width(match.group()))
        if not _SCRIPT.match(word):
            terms += _bigrams(run) + [word]
            run = ""
        elif run and match.start() == end:
            run += word
        else:
            terms += _bigrams(run)
            run = word
        end = match.end()
    return [term for term in terms + _bigrams(run) if term not in CJK_STOP_WORDS]


def fold_width(word: str) -> str:
    """Map full-width ASCII to ASCII, half-width Katakana to Katakana."""
    if not any("\uff01" <= letter <= "\uff9f" for letter in word):
        return word
    folded = "".join(unicodedata.normalize("NFKC", x) if "\uff01" <= x <= "\uff9f" else x for x in word)
    return unicodedata.normalize("NFC", folded)


def _bigrams(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] if len(run) > 1 else [run] if run else []


ANALYZERS: dict[str, Analyzer] = {"en": analyze_english, "zh": analyze_cjk}


def python_analyzer(language: str) -> Analyzer:
    """Return the analysis of a language.

    Raises:
        ConfigError: only English and Chinese are available without Java.
    """
    if language not in ANALYZERS:
        step = f"use backend: lucene, or {nearest(language, ANALYZERS)}"
        raise ConfigError(f"language {language!r}", "the backend bm25s analyses English and Chinese only", step)
    return ANALYZERS[language]
