"""Split a text into words as Lucene's StandardTokenizer does: Unicode word breaks (UAX #29), no punctuation."""

import re

import regex

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


def _spelled(letters: str) -> str:
    """Return the pattern of a Word_Break class (UAX #29) and the characters that rule WB4 lets it absorb."""
    return rf"(?![{_NO_LETTER}])[{letters}]{_EXTENDER}*"


_LINK = _spelled(r"\p{WB=ExtendNumLet}")
_START = rf"(?:(?<!\p{{WB=ExtendNumLet}})(?:{_LINK})+)?"
_HEBREW = _spelled(r"\p{WB=Hebrew_Letter}")
_ANY_LETTER = _spelled(r"\p{WB=ALetter}\p{WB=Hebrew_Letter}")
_DIGIT = _spelled(r"\p{WB=Numeric}０-９")
_KATAKANA = _spelled(r"\p{WB=Katakana}")
_MIDDLE = r"\p{WB=MidNumLet}\p{WB=Single_Quote}"
_MID_LETTER = _spelled(rf":\p{{WB=MidLetter}}{_MIDDLE}")
_MID_DIGIT = _spelled(rf"\p{{WB=MidNum}}{_MIDDLE}")
_QUOTE, _QUOTES = _spelled("'"), _spelled('"')
_CORE = rf"""(?:{_KATAKANA}(?:(?:{_LINK})*{_KATAKANA})*
    |(?:{_HEBREW}(?:{_QUOTES}{_HEBREW}|{_QUOTE}(?!{_ANY_LETTER}))
       |{_DIGIT}(?:(?:(?:{_LINK})*|{_MID_DIGIT}){_DIGIT})*
       |{_ANY_LETTER}(?:(?:(?:{_LINK})*|{_MID_LETTER}){_ANY_LETTER})*)+)"""
_COMPLEX, _HAN = _spelled(r"\p{Line_Break=Complex_Context}"), _spelled(r"\p{Script=Han}")
_HIRAGANA = _spelled(r"\p{Script=Hiragana}")
_MODIFIER = r"\p{Emoji_Modifier}"
_TAGS = r"(?:[\U000E0020-\U000E007E]+\U000E007F)?"  # of flags of regions
_SIGN = rf"(?!{_MODIFIER})[\p{{Extended_Pictographic}}{_OLD_PICTURES}]{_AFTER_PICTURE}\uFE0F?{_TAGS}"
_PICTURE = rf"(?:{_SIGN}|{_MODIFIER}{_AFTER_PICTURE})"
_PICTURES = rf"(?:\u200D+(?!{_MODIFIER}))?{_PICTURE}(?:(?:\u200D|(?<=\u200D)){_PICTURE})*"
_KEYCAP = rf"[0-9\#*]{_AFTER_PICTURE}\uFE0F?\u20E3{_AFTER_PICTURE}"
_FLAG = rf"(?:\p{{WB=Regional_Indicator}}{_EXTENDER}*){{2}}"
WORD = regex.compile(
    rf"""(?P<word>{_START}{_CORE}(?:(?:{_LINK})+{_CORE})*(?:{_LINK})*)
    |(?P<complex>(?:{_COMPLEX})+)
    |(?P<emoji>{_KEYCAP}|{_FLAG}|{_PICTURES})
    |(?P<han>{_HAN})
    |(?P<hiragana>{_HIRAGANA})""",
    regex.VERBOSE,
)
_ASCII_CORE = r"(?:[0-9]+(?:_*[0-9]+|[.,;'][0-9]+)*|[A-Za-z]+(?:_*[A-Za-z]+|[.:'][A-Za-z]+)*)+"
ASCII_WORD = re.compile(rf"(?:(?<!_)_+)?{_ASCII_CORE}(?:_+{_ASCII_CORE})*_*")


def words(text: str) -> list[str]:
    """Return the words of `text` in order, unchanged."""
    matches = ASCII_WORD.findall(text) if text.isascii() else [match.group() for match in WORD.finditer(text)]
    if len(text) <= LONGEST:
        return matches
    return [word[first : first + LONGEST] for word in matches for first in range(0, len(word), LONGEST)]
