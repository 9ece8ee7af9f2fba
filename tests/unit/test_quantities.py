"""Numbers and lists as text, each in one place."""

from __future__ import annotations

import pytest

from zerodr.config.quantities import counted, duration, first_names


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (89.6, "90 s"), (720, "12 min"), (12600, "3.5 h"), (777600, "9.0 days")]
)
def test_durations_are_readable(seconds, text):
    assert duration(seconds) == text


def test_nouns_and_names_are_counted():
    assert [counted(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
    assert first_names("abcdefg") == "a, b, c, d, e and 2 more" and first_names("abc", 3) == "a, b, c"
