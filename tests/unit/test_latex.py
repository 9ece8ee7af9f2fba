"""The main table in LaTeX: marks, their legend, notes below the numbers; tables of items as pages."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from test_table import VALUES, settings_of, write_summary

from zerodr.evaluation.compare import TEST_COLUMNS
from zerodr.reporting import render
from zerodr.reporting.grid import fill, read_summaries
from zerodr.reporting.table import footnotes


def test_letters_and_marks_of_the_numbers_are_explained_in_print(tmp_path):
    files = [
        write_summary(tmp_path, model, name, value) for model, row in VALUES.items() for name, value in row.items()
    ]
    frame, settings = read_summaries(files), settings_of()
    grid = fill(frame, settings)
    tests = pd.DataFrame([dict.fromkeys(TEST_COLUMNS, 0.01)]).assign(
        method="dense", collection="alpha", baseline="bm25", difference=-0.1, queries=30
    )
    about, _ = render.significance_section(tests, settings)
    notes = [*footnotes(frame, grid, settings), *about]
    text = render.tex(grid, notes, settings, render.significance_marks(tests))
    numbers, _, below = text.partition(r"\end{tabular}")
    assert r"Dense\_1 [a]" in numbers and "0.4000$^{-}$" in numbers
    assert "[a] not zero-shot\\par\n" in below
    assert r"$^{+}$ better, $^{-}$ worse than BM25: paired t-test over queries, p \textless{} .05" in below
    assert below.count(r"\par") == len(notes) + 1
    assert text.isascii() and not re.search(r"(?<!\\)%", below)
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("label", ["[ours] Dense", "*Dense"])
def test_no_row_begins_with_what_the_row_above_would_take(tmp_path, label):
    files = [
        write_summary(tmp_path, model, name, value) for model, row in VALUES.items() for name, value in row.items()
    ]
    methods = [method.model_copy(update={"label": label}) for method in settings_of().methods]
    settings = settings_of().model_copy(update={"methods": tuple(methods)})
    rows = render.tex(fill(read_summaries(files), settings), [], settings, {}).split("\n")
    assert not [row for row in rows if row.startswith(("[", "*"))] and any(row.startswith("{}" + label) for row in rows)


def test_all_special_characters_of_a_note_are_escaped():
    escaped = render.escape(r"50% of a_b & {c} < $1 ~ ^ # \d | ▲")
    plain = re.sub(r"\\text\w+\{\}|\\[&%_#${}]|\$\^\{\+\}\$", "", escaped)
    assert not set(plain) & set("&%_#${}~^\\<>|▲"), escaped


def test_tags_in_the_texts_of_a_table_are_shown_on_its_page():
    table = render.markdown_table(["", "query"], [["1", "what is <br> in html"], ["2", "<!-- <script>x</script>"]])
    page = render.page(table, "A & B")
    assert "what is &lt;br&gt; in html" in page and "&lt;!-- &lt;script&gt;" in page and "<title>A &amp; B" in page
