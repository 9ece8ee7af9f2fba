"""Guess the language of a user's documents by their script."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from zerodr.collections.user_folders import open_folder
from zerodr.config.user_folders import UserFolder
from zerodr.errors import ZerodrError

SAMPLE_DOCUMENTS, SAMPLE_CHARACTERS = 200, 2000
SCRIPTS = {  # by their first names in Unicode; Latin letters are no sign of a language
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "CJK": "zh",
    "HANGUL": "ko",
    "CYRILLIC": "ru",
    "ARABIC": "ar",
    "DEVANAGARI": "hi",
    "BENGALI": "bn",
    "TELUGU": "te",
    "THAI": "th",
}
SHARE = 0.2
"""Share of the letters from which a script decides; Japanese needs a quarter of it in Kana."""


def guess_language(folder: UserFolder) -> str:
    """Guess the language of the first documents by their script; `en` for Latin letters, and for a bad file."""
    try:
        documents = islice(open_folder(folder.path, folder.files["corpus"]).documents(), SAMPLE_DOCUMENTS)
        return language_of(f"{row.title} {row.text}"[:SAMPLE_CHARACTERS] for row in documents)
    except ZerodrError:
        return "en"


def language_of(texts: Iterable[str]) -> str:
    """Return the language whose script has at least SHARE of the letters; `en` without one."""
    counts: Counter[str] = Counter()
    letters = 0
    for letter, count in Counter("".join(texts)).items():
        if letter.isalpha():
            letters += count
            counts[SCRIPTS.get(unicodedata.name(letter, "").partition(" ")[0].partition("-")[0], "")] += count
    del counts[""]
    if counts["ja"] >= letters * SHARE / 4 and counts["ja"]:
        return "ja"
    best, count = max(counts.items(), key=lambda item: item[1], default=("en", 0))
    return best if count and count >= letters * SHARE else "en"
