"""Stem words as Lucene's Porter stemmer does: the algorithm of 1980 with its author's later changes (-bli, -logi).

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. PyStemmer's `porter` leaves these changes out.
"""

_STEP_2 = """ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize
    ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log"""
STEP_2 = dict(pair.split(":") for pair in _STEP_2.split())
STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
STEP_4 = "al ance ence er ic able ible ant ement ment ent sion tion ou ism ate iti ous ive ize".split()


def stem(word: str) -> str:
    """Return the stem of a lower-case word. Words of one or two letters stay."""
    if len(word) < 3:
        return word
    word = _replace(_replace(_step_1(word), STEP_2), STEP_3)
    return _step_5(_step_4(word))


def _is_consonant(word: str, at: int) -> bool:
    if word[at] in "aeiou":
        return False
    return word[at] != "y" or at == 0 or not _is_consonant(word, at - 1)


def _measure(stem_: str) -> int:
    """Count the vowel-consonant sequences."""
    kinds = [_is_consonant(stem_, at) for at in range(len(stem_))]
    return sum(not one and two for one, two in zip(kinds, kinds[1:], strict=False))


def _has_vowel(stem_: str) -> bool:
    return any(not _is_consonant(stem_, at) for at in range(len(stem_)))


def _doubled(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _is_consonant(word, len(word) - 1)


def _short(word: str) -> bool:
    """Test whether a word ends with consonant, vowel, consonant other than w, x, y."""
    if len(word) < 3 or word[-1] in "wxy":
        return False
    return [_is_consonant(word, at) for at in range(len(word) - 3, len(word))] == [True, False, True]


def _step_1(word: str) -> str:
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    else:
        for ending in ("ed", "ing"):
            if word.endswith(ending):
                if _has_vowel(word[: -len(ending)]):
                    word = _restore_ending(word[: -len(ending)])
                break
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    return word


def _restore_ending(word: str) -> str:
    """Correct the ending of a word after -ed or -ing was removed."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _doubled(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _short(word) else word


def _replace(word: str, endings: dict[str, str]) -> str:
    """Replace the longest matching ending if the text before it has a measure above 0."""
    for ending in sorted(endings, key=len, reverse=True):
        if word.endswith(ending):
            before = word[: -len(ending)]
            return before + endings[ending] if _measure(before) > 0 else word
    return word


def _step_4(word: str) -> str:
    for ending in sorted(STEP_4, key=len, reverse=True):
        if word.endswith(ending):
            before = word[:-3] if ending in ("sion", "tion") else word[: -len(ending)]
            return before if _measure(before) > 1 else word
    return word


def _step_5(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _short(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word
