"""Guess the language of texts: by script, by letters that few languages have, and by small words of Latin scripts."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

import regex

from zerodr.config.registry import UNKNOWN

SCRIPTS = {  # by their first names in Unicode
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
MARKS = {
    "ru": {"ru": "ыэё", "uk": "іїєґ", UNKNOWN: "ўјљњђћџѓќѕәғқңөұүһӣӯҳҷ"},
    "ar": {"ar": "يكةىأإ", "fa": "پچژگکی", UNKNOWN: "ٹڈڑںھےہۃټډړږښڼېەڕڵۆێۇۈۋ"},
    "hi": {"hi": "", UNKNOWN: "ळ"},
    "bn": {"bn": "", UNKNOWN: "ৰৱ"},
}
"""Letters by language, for languages of one script. Those of UNKNOWN are of languages such as Serbian and Urdu."""
UNKNOWN_SHARE = 0.003
"""Share of a script's letters above which letters of UNKNOWN decide."""
SMALL_WORDS = {
    "en": "the of and to is in that for with was are this from by be as it on not which",
    "da": "og det at en den til er som på de med af for ikke der var et har også efter blev bliver mod",
    "de": "der die und das ist den von zu mit sich des auf für nicht ein eine dem auch wird bei werden oder",
    "es": "de la que el en los del se las por un para con una su al es como más pero o son",
    "fi": "ja on ei se että oli joka mutta ovat myös kuin sen hän tai sekä ole voi jos kun",
    "fr": "de la le et les des en un du une que est pour qui dans par plus pas au sur sont aux avec",
    "hu": "az és hogy nem is egy van meg ez csak de volt mint vagy már azt el még",
    "id": "yang dan di dengan untuk tidak dari dalam ini akan pada adalah itu oleh ke juga atau",
    "it": "di e il la che in un per una del non sono le con si da al come dei più gli della anche",
    "nl": "de het een van en in is dat op te zijn met voor niet aan er ook als door wordt om bij",
    "no": "og det at en den til er som på de med av for ikke var et har også etter ble blir mot fra",
    "pl": "w się nie że jest to o od po przez dla są oraz jak co jego był może",
    "pt": "de a o que e do da em um para com não uma os no se na por mais as dos é ao",
    "sv": "och det att en den till är som på de med av för inte var ett har också efter blev från",
    "tr": "bir ve bu için ile olarak çok daha olan gibi de da en kadar sonra ne ya o var",
}
LETTERS = {
    "da": "æøåé",
    "de": "äöüßé",
    "es": "áéíóúüñ",
    "fi": "äöåšž",
    "fr": "àâæçéèêëîïôœùûüÿ",
    "hu": "áéíóöőúüű",
    "id": "é",
    "it": "àèéìíòóùú",
    "nl": "áéèêëíïóöúü",
    "no": "æøåéèòóô",
    "pl": "ąćęłńóśźż",
    "pt": "áâãàçéêíóôõúü",
    "sv": "åäöé",
    "tr": "çğıiöşüâîû\u0307",
}
"""Letters of these languages other than a to z."""
STRANGE_SHARE = 0.01
"""Share of letters that a language does not have, above which a text is not in it."""
LEAST_WORDS, WORDS_SHARE, AHEAD = 20, 0.08, 1.25
"""Another Latin language than English needs so many words, this share of small ones, and so many times English's."""
FOREIGN_SHARE = 0.04
"""Share of letters other than a to z from which a text with few small words is of no language known here."""
_WORD = regex.compile(r"\p{L}+")
_NO_SCRIPT = regex.compile(r"[\p{Script=Common}\p{Script=Inherited}\p{Script=Latin}]")


def language_of(texts: Iterable[str]) -> str:
    """Return the language that the letters and small words speak for, UNKNOWN where no analyser knows it; else `en`."""
    text = unicodedata.normalize("NFC", " ".join(texts)).lower()
    counts = Counter({letter: count for letter, count in Counter(text).items() if letter.isalpha()})
    scripts: Counter[str] = Counter()
    for letter, count in counts.items():
        if not _NO_SCRIPT.match(letter):
            name = unicodedata.name(letter, "").partition(" ")[0].partition("-")[0]
            scripts[SCRIPTS.get(name, UNKNOWN)] += count
    letters = counts.total()
    if scripts["ja"] and scripts["ja"] >= letters * SHARE / 4:
        return "ja"
    best, count = max(scripts.items(), key=lambda item: item[1], default=("", 0))
    if not count or count < letters * (0.5 if best == UNKNOWN else SHARE):
        return _by_words(text, counts)
    return _by_marks(best, counts, count)


def _by_marks(script: str, counts: Counter[str], letters: int) -> str:
    """Return the language of a script by the letters that the others don't have."""
    marks = {language: sum(counts[letter] for letter in signs) for language, signs in MARKS.get(script, {}).items()}
    if marks.pop(UNKNOWN, 0) > letters * UNKNOWN_SHARE:
        return UNKNOWN
    return max(marks, key=lambda language: marks[language], default=script)


def _by_words(text: str, counts: Counter[str]) -> str:
    """Return the language of Latin letters by its small words; `en` without clear signs of another one."""
    words = Counter(_WORD.findall(text))
    total = words.total()
    if total < LEAST_WORDS:
        return "en"
    shares = {name: sum(words[word] for word in signs.split()) / total for name, signs in SMALL_WORDS.items()}
    letters = max(counts.total(), 1)

    def strange(signs: str) -> float:
        return sum(n for letter, n in counts.items() if not letter.isascii() and letter not in signs) / letters

    others = [name for name, signs in LETTERS.items() if strange(signs) <= STRANGE_SHARE]
    best = max(others, key=lambda name: shares[name], default="en")
    if best != "en" and shares[best] >= max(WORDS_SHARE, AHEAD * shares["en"]):
        return best
    return UNKNOWN if strange("") >= FOREIGN_SHARE and shares["en"] < WORDS_SHARE else "en"
