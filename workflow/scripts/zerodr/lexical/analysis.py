"""Analyse texts as Lucene does, for the backend bm25s and for mining: English and Chinese without Java.

English is Anserini's default: words without possessive, lower case, no stop words (33), Porter stem. Chinese is the
CJKAnalyzer of Lucene: words, widths folded, lower case, bigrams of adjacent characters, no stop words. Words are those
of Lucene's StandardTokenizer: Unicode word breaks (UAX #29), no punctuation. Further languages are analysed by Lucene
itself; Thai, and languages that it does not know, by words and pairs of letters.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence

import regex
import Stemmer

from zerodr.config.registry import WITHOUT_LUCENE

LONGEST = 255
"""Lucene cuts longer words into pieces of this length."""


_NO_LETTER = "\u00b8\u02e5-\u02eb\u055a\u058a\ua708-\ua716"
"""Letters of today's Unicode that Lucene's older tables don't count as such."""
_OLD_PICTURES = (
    "\u2388\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2763-\u2767"
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f12f\U0001f16c-\U0001f16f\U0001f1ad\U0001f249-\U0001f3ff"
    "\U0001f400-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff\U0001f7d5-\U0001f7ff\U0001f8b0-\U0001f8b1"
    "\U0001fa00-\U0001fbff"
)
"""Pictures of Lucene's older tables (among them signs and reserved places)."""


_EXTENDER = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]"
"""A character that rule WB4 (UAX #29) lets the one before absorb."""
_AFTER_PICTURE = rf"(?:(?![\uFE0E\uFE0F]){_EXTENDER})*"
"""Such characters after a picture, without the two that choose its form, as text or as a picture."""
_MIDDLE = r"\p{WB=MidNumLet}\p{WB=Single_Quote}"
_MODIFIER = r"\p{Emoji_Modifier}"
_TAGS = r"(?:[\U000E0020-\U000E007E]+\U000E007F)?"  # of flags of regions
_SIGN = rf"(?!{_MODIFIER})[\p{{Extended_Pictographic}}{_OLD_PICTURES}]{_AFTER_PICTURE}\uFE0F?{_TAGS}"
_PICTURE = rf"(?:{_SIGN}|{_MODIFIER}{_AFTER_PICTURE})"
_PICTURES = rf"(?:\u200D+(?!{_MODIFIER}))?{_PICTURE}(?:(?:\u200D|(?<=\u200D)){_PICTURE})*"
_KEYCAP = rf"[0-9\#*]{_AFTER_PICTURE}\uFE0F?\u20E3{_AFTER_PICTURE}"
_FLAG = rf"(?:\p{{WB=Regional_Indicator}}{_EXTENDER}*){{2}}"
_ASCII_CORE = r"(?:[0-9]+(?:_*[0-9]+|[.,;'][0-9]+)*|[A-Za-z]+(?:_*[A-Za-z]+|[.:'][A-Za-z]+)*)+"
ASCII_WORD = re.compile(rf"(?:(?<!_)_+)?{_ASCII_CORE}(?:_+{_ASCII_CORE})*_*")
ENGLISH_STOP_WORDS = frozenset(
    """a an and are as at be but by for if in into is it no not of on or such that the their then there these they this
    to was will with""".split()
)
CJK_STOP_WORDS = frozenset(
    """a and are as at be but by for if in into is it no not of on or s such t that the their then there these they this
    to was will with www""".split()
) | {""}
_UNSPACED = regex.compile(r"\p{Line_Break=Complex_Context}")
_POSSESSIVE = ("'s", "'S", "\u2019s", "\u2019S", "\uff07s", "\uff07S")
Analyzer = Callable[[str], list[str]]
_PORTER = Stemmer.Stemmer("porter", 0)
_SYLLABLE = re.compile(r"[aeiou][^aeiou]|(?<!^)(?<![aeiouy])y[^aeiou]|^yy[^aeiou]")
_REVISED = re.compile(r"(.+)(?:(bl|log)(?:[yi](?:ed|ing|s)?|ies)|([chjkqvwx])\3(?:ed|ing))")


def _spelled(letters: str) -> str:
    """Return the pattern of a Word_Break class (UAX #29) and the characters that rule WB4 lets it absorb."""
    return rf"(?![{_NO_LETTER}])[{letters}]{_EXTENDER}*"


_LINK = _spelled(r"\p{WB=ExtendNumLet}")
_START = rf"(?:(?<!\p{{WB=ExtendNumLet}})(?:{_LINK})+)?"
_HEBREW = _spelled(r"\p{WB=Hebrew_Letter}")
_ANY_LETTER = _spelled(r"\p{WB=ALetter}\p{WB=Hebrew_Letter}")
_DIGIT = _spelled(r"\p{WB=Numeric}０-９")
_KATAKANA = _spelled(r"\p{WB=Katakana}")
_MID_LETTER = _spelled(rf":\p{{WB=MidLetter}}{_MIDDLE}")
_MID_DIGIT = _spelled(rf"\p{{WB=MidNum}}{_MIDDLE}")
_QUOTE, _QUOTES = _spelled("'"), _spelled('"')
_CORE = rf"""(?:{_KATAKANA}(?:(?:{_LINK})*{_KATAKANA})*
    |(?:{_HEBREW}(?:{_QUOTES}{_HEBREW}|{_QUOTE}(?!{_ANY_LETTER}))
       |{_DIGIT}(?:(?:(?:{_LINK})*|{_MID_DIGIT}){_DIGIT})*
       |{_ANY_LETTER}(?:(?:(?:{_LINK})*|{_MID_LETTER}){_ANY_LETTER})*)+)"""
_COMPLEX, _HAN = _spelled(r"\p{Line_Break=Complex_Context}"), _spelled(r"\p{Script=Han}")
_HIRAGANA, _HANGUL = _spelled(r"\p{Script=Hiragana}"), _spelled(r"\p{Script=Hangul}")
_ONE_SCRIPT = regex.compile(rf"(?:{_HANGUL})+|(?:{_KATAKANA})+")
WORD = regex.compile(
    rf"""(?P<word>{_START}{_CORE}(?:(?:{_LINK})+{_CORE})*(?:{_LINK})*)
    |(?P<complex>(?:{_COMPLEX})+)
    |(?P<emoji>{_KEYCAP}|{_FLAG}|{_PICTURES})
    |(?P<han>{_HAN})
    |(?P<hiragana>{_HIRAGANA})""",
    regex.VERBOSE,
)


def words(text: str) -> list[str]:
    """Return the words of `text` in order, unchanged."""
    matches = ASCII_WORD.findall(text) if text.isascii() else [match.group() for match in WORD.finditer(text)]
    if len(text) <= LONGEST:
        return matches
    return [word[first : first + LONGEST] for word in matches for first in range(0, len(word), LONGEST)]


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
    """Return the terms of a Chinese (Japanese, Korean) text: character bigrams, and words of other scripts.

    A word of Hangul and other letters is no bigrams, nor is the repetition mark, which is a letter to Lucene.

    >>> analyze_cjk("한국어ABC 佐々木")
    ['한국어abc', '佐', '々', '木']
    """
    terms: list[str] = []
    run, end = "", -1
    for match in WORD.finditer(text):
        word = lower(fold_width(match.group()))
        if not in_bigrams(match):
            terms += _bigrams(run) + [word[first : first + LONGEST] for first in range(0, len(word), LONGEST)]
            run = ""
        elif run and match.start() == end:
            run += word
        else:
            terms += _bigrams(run)
            run = word
        end = match.end()
    return [term for term in terms + _bigrams(run) if term not in CJK_STOP_WORDS]


def in_bigrams(match: regex.Match[str]) -> bool:
    """Test whether a match of WORD is read in pairs of letters with its neighbours."""
    return match.lastgroup in ("han", "hiragana") or _ONE_SCRIPT.fullmatch(match.group()) is not None


def fold_width(word: str) -> str:
    """Map full-width ASCII to ASCII, half-width Katakana to Katakana."""
    if not any("\uff01" <= letter <= "\uff9f" for letter in word):
        return word
    folded = "".join(unicodedata.normalize("NFKC", x) if "\uff01" <= x <= "\uff9f" else x for x in word)
    return unicodedata.normalize("NFC", folded)


def _bigrams(run: Sequence[str]) -> list[str]:
    """Join neighbours in pairs; one alone stays."""
    return ["".join(run[at : at + 2]) for at in range(max(len(run) - 1, 1))] if run else []


def analyze_unstemmed(text: str) -> list[str]:
    """Return the words of a text in lower case; letters that are written without blanks, such as Thai, in pairs.

    >>> analyze_unstemmed("Γάτα คนไทย")
    ['γάτα', 'คน', 'นไ', 'ไท', 'ทย']
    """
    terms: list[str] = []
    for word in map(lower, words(text)):
        terms += _bigrams(regex.findall(r"\X", word)) if _UNSPACED.match(word) else [word]
    return terms


ANALYZERS: dict[str, Analyzer] = {
    "en": analyze_english,
    "zh": analyze_cjk,
    **dict.fromkeys(WITHOUT_LUCENE, analyze_unstemmed),
}


def analyzer_of(language: str) -> Analyzer:
    """Return the analysis of a language: one of ANALYZERS, else Lucene's own, in Java.

    Raises:
        ConfigError: nothing analyses the language.
        MachineError: Java or Anserini is missing.
    """
    if language in ANALYZERS:
        return ANALYZERS[language]
    from zerodr.lexical import lucene

    chosen = lucene.analyzer(language)
    return lambda text: lucene.analyze(chosen, text)


def stem(word: str) -> str:
    """Return the stem of a lower-case word, as Lucene's Porter stemmer does. Words of one or two letters stay.

    M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with its author's later changes (-bli,
    -logi) and with any consonant undoubled before -ed and -ing. PyStemmer's `porter` has neither: such endings are
    replaced before it sees them, where a vowel and a consonant stand in front.

    >>> [stem(word) for word in ("possibly", "biology", "trekking", "relational", "as")]
    ['possibl', 'biologi', 'trek', 'relat', 'as']
    """
    if len(word) < 3:
        return word
    revised = _REVISED.fullmatch(word)
    if revised and _SYLLABLE.search(revised[1] + (revised[3] or "")):
        word = revised[1] + {"bl": "ble", "log": "log", None: revised[3]}[revised[2]]
    return str(_PORTER.stemWord(word))
