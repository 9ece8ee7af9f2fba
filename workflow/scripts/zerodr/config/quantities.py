"""Write numbers, lists of names and long texts for a reader: sizes, times, counted nouns. No library is needed."""

from collections.abc import Sequence

MEBI, GIBI = 2**20, 2**30
HOUR_S = 3600
MOST_NAMES = 5


def duration(seconds: float) -> str:
    """Format a time in the unit that suits it.

    >>> [duration(seconds) for seconds in (40, 720, 12600, 777600)]
    ['40 s', '12 min', '3.5 h', '9.0 days']
    """
    for unit, size, limit in (("s", 1, 90), ("min", 60, 5400), ("h", HOUR_S, 48 * HOUR_S)):
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}" if unit == "h" else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 24 / HOUR_S:.1f} days"


def counted(number: int, noun: str) -> str:
    """Format a number with its noun.

    >>> counted(1, "job"), counted(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_names(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """List the first names, and the number of further ones.

    >>> first_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shortened(text: str, most: int, ending: str = " ...") -> str:
    """Cut a text to `most` characters, with its ending: between words, or anywhere where its words are long.

    >>> shortened("one two three", 11), shortened("one  two", 11), shortened("这是一个很长的问题", 7)
    ('one two ...', 'one two', '这是一 ...')
    """
    whole = " ".join(text.split())
    if len(whole) <= most:
        return whole
    room = most - len(ending)
    words = whole[: room + 1].rpartition(" ")[0]
    return (words if len(words) > room / 2 else whole[:room]) + ending
