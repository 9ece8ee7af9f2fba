"""Write numbers as text, here and nowhere else: measures, differences, intervals, p values, counts, tables of numbers.

No number is shown as a negative zero. Files have the digits of a summary, so that a page that reads one rounds once.

>>> fixed(0.65432), signed(0.01), interval(-0.002, 0.03), plural(1, "test"), plural(3, "test"), compact(12_800)
('0.6543', '+0.0100', '[-0.0020, +0.0300]', '1 test', '3 tests', '12.8 k')
>>> fixed(-0.00001), signed(-0.00001)
('0.0000', '+0.0000')
>>> fixed(0.40675), fixed(0.40674999999999994)  # a mean of 400 queries, and as summed in another order
('0.4068', '0.4068')
"""

import io
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

SMALLEST_P = 1e-99
DECIMALS = 10  # of a summary; digits below depend on the order of a sum
DIGITS = "%.10g"
NOTE = "# "
NAMES = ("model", "method", "baseline", "collection", "stage")  # columns of names, which may look like numbers


def fixed(value: float) -> str:
    """Write a measure with four decimals; empty where there is none."""
    return "" if value != value else f"{round(value, DECIMALS):z.4f}"


def signed(value: float) -> str:
    """Write a difference with its sign."""
    return f"{round(value, DECIMALS):+z.4f}"


def interval(low: float, high: float) -> str:
    """Write the interval of a difference."""
    return f"[{signed(low)}, {signed(high)}]"


def p_value(value: float) -> str:
    """Write a p value with two digits; a value below every printable number is not shown as zero.

    >>> p_value(0.0312), p_value(0.0)
    ('0.031', '< 1e-99')
    """
    return f"{value:.2g}" if value >= SMALLEST_P else f"< {SMALLEST_P:.0e}"


def plural(count: int, word: str) -> str:
    """Write a count with its word."""
    return f"{count} {word}{'s' * (count != 1)}"


def compact(number: float) -> str:
    """Write a large number: `950`, `12.8 k`, `3.1 M`; what rounds to 1000.0 of a unit is 1.0 of the next."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size * (1 - 5e-5):
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f}"


def commented(notes: Iterable[str]) -> str:
    """Write notes as the lines that end a table: readers skip them as comments.

    >>> commented(["difference: ours minus published"])
    '# difference: ours minus published\\n'
    """
    return "".join(f"{NOTE}{note}\n" for note in notes)


def tsv(frame: pd.DataFrame, notes: Iterable[str] = (), digits: str = DIGITS) -> str:
    """Write a frame as tab-separated text, then notes about it."""
    return frame.to_csv(sep="\t", index=False, float_format=digits, lineterminator="\n") + commented(notes)


def read_tsv(path: Path, *names: str) -> pd.DataFrame:
    """Read a table that `tsv` wrote, without its notes; a `#` elsewhere, as in an address, ends no line.

    Names stay text, as a folder may be called `2024` or `nan`.

    Args:
        path: of the table.
        names: further columns of text.
    """
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    while lines[-1].startswith(NOTE):
        lines.pop()
    text = dict.fromkeys((*NAMES, *names), str)
    return pd.read_csv(io.StringIO("\n".join(lines)), sep="\t", dtype=text, keep_default_na=False, na_values=[""])
