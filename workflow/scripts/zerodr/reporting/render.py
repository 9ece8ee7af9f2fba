"""Render a filled table as tsv, Markdown, HTML and LaTeX."""

import csv
import html
import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import pandas as pd
from markdown_it import MarkdownIt

from zerodr.evaluation.numbers import fixed, interval, p_value, plural, signed
from zerodr.evaluation.significance import few_queries
from zerodr.reporting.grid import Grid, TableSettings

BETTER, WORSE, LEVEL = "▲", "▼", 0.05
SPECIAL = {character: f"\\{character}" for character in "&%_#${}"}
SPECIAL |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
SPECIAL |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", BETTER: "$^{+}$", WORSE: "$^{-}$"}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --ink: #1d2329; --soft: #59636e; --line: #d5dae0; --back: #fff }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e3e8ee; --soft: #a0abb8; --line: #39424d; --back: #14181d }}
  img, svg {{ filter: invert(.93) hue-rotate(180deg) }}
}}
@media print {{ :root {{ --ink: #000; --soft: #444; --line: #bbb; --back: #fff }} img, svg {{ filter: none }} }}
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 1.2em; color: var(--ink) }}
h1, h2, h3, p, ul {{ max-width: 75em }}
html {{ background: var(--back) }}
table {{ display: block; max-width: 100%; width: max-content; overflow-x: auto; margin: 1em 0 }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .3em .8em; border-bottom: 1px solid var(--line); white-space: nowrap }}
td[style*="left"] {{ white-space: normal; min-width: 8em }}
th {{ border-bottom: 2px solid var(--soft) }}
li {{ color: var(--soft); font-size: 13px; overflow-wrap: anywhere }}
img, svg {{ max-width: 100%; height: auto }}
</style></head><body>
{body}</body></html>
"""
Marks = dict[tuple[str, str], str]
Line = TypeVar("Line")


def plain(grid: Grid, further: Mapping[str, Grid] | None = None, separator: str = "\t") -> str:
    """Write rows of numbers under `model` and the column headers, as `pandas.read_table(path)` reads them.

    With a comma as separator `pandas.read_csv(path)` does; a header with a comma is quoted. Columns of `further`
    measures come last: `recall_20 scifact`.
    """
    headers, values = [column.header for column in grid.columns], [grid.values]
    for measure, other in (further or {}).items():
        headers += [f"{measure} {column.header}" for column in other.columns]
        values.append(other.values.reindex(grid.values.index))
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    writer.writerow(["model", *headers])
    writer.writerows([str(model), *map(fixed, row)] for model, row in pd.concat(values, axis=1).iterrows())
    return stream.getvalue()


def cells(grid: Grid, marks: Marks, bold: str, italic: str, published: Collection[str] = ()) -> list[list[str]]:
    """Format numbers by row, the best of each column (after rounding) in `bold`, with significance marks.

    Rows of `published` numbers are in `italic`, and never the best.
    """
    printed = grid.values.map(fixed)
    best = printed.drop(index=[name for name in published if name in printed.index]).max()
    rows = []
    for model, row in printed.iterrows():
        texts = []
        for name, text in row.items():
            if text and str(model) in published:
                text = italic.format(text)
            elif text and text == best[name] and len(printed) > 1:
                text = bold.format(text)
            texts.append(text + marks.get((str(model), str(name)), ""))
        rows.append(texts)
    return rows


def under_families(
    rows: Sequence[tuple[str, Line]], settings: TableSettings, heading: Callable[[str], Line]
) -> list[Line]:
    """Put a heading above the first row of each family; a table of one family has none.

    Args:
        rows: method and printed line of each row.
        settings: give the families of the methods.
        heading: makes the line of a family.
    """
    families = {method.name: method.family for method in settings.methods}
    lines, above = list[Line](), ""
    for name, line in rows:
        family = families[name]
        if family and family != above and len(set(families.values())) > 1:
            lines.append(heading(family))
        lines.append(line)
        above = family
    return lines


def method_remarks(settings: TableSettings) -> list[tuple[str, str]]:
    """List the different remarks of the methods, with the letters a, b, ... that mark them."""
    remarks = dict.fromkeys(method.remark for method in settings.methods if method.remark)
    return [(_letter(number), remark) for number, remark in enumerate(remarks)]


def _letter(number: int) -> str:
    return ("" if number < 26 else _letter(number // 26 - 1)) + chr(ord("a") + number % 26)


def printed_methods(settings: TableSettings) -> dict[str, str]:
    """Map each method to its label with the letter of its remark."""
    letters = {remark: letter for letter, remark in method_remarks(settings)}
    return {m.name: f"{m.label} [{letters[m.remark]}]" if m.remark else m.label for m in settings.methods}


def mark_of(difference: float, p: float) -> str:
    """Return BETTER or WORSE where a test rejects at LEVEL, else nothing; `p` is NaN where nothing was tested."""
    return "" if not p < LEVEL else BETTER if difference > 0 else WORSE


def significance_marks(tests: pd.DataFrame) -> Marks:
    """Map (method, collection) to its mark, by the t-test after Holm's correction; pairs without a mark are absent."""
    marks = {(test.method, test.collection): mark_of(test.difference, test.p_t_holm) for test in tests.itertuples()}
    return {pair: mark for pair, mark in marks.items() if mark}


def marks_note(baseline: str, tests: int, joint: str = ": ") -> str:
    """Explain the marks of `tests` tests against a baseline."""
    test = f"paired t-test over queries, p < .05 after Holm's correction over {plural(tests, 'test')}"
    return f"{BETTER} better, {WORSE} worse than {baseline}{joint}{test}"


def markdown_table(header: Sequence[str], rows: list[list[str]], left: Collection[int] = (0,)) -> str:
    """Format a padded Markdown table, legible in a terminal too; columns `left` left, the others right."""
    table = [[cell.replace("|", r"\|") for cell in row] for row in [list(header), *rows]]
    columns = [_padded(column, i in left, i > 0) for i, column in enumerate(zip(*table, strict=True))]
    return "\n".join("| " + " | ".join(line) + " |" for line in zip(*columns, strict=True)) + "\n"


def _padded(cells: Sequence[str], is_left: bool, is_marked: bool) -> list[str]:
    """Header, rule and cells of a column with one width; the rule of a left column says so if `is_marked`."""
    width = max(map(len, cells))
    rule = "-" * (width - 1) + ":" if not is_left else ":" * is_marked + "-" * (width - is_marked)
    return [(cell.ljust if is_left else cell.rjust)(width) for cell in (cells[0], rule, *cells[1:])]


def columns_of_words(rows: list[list[str]]) -> list[int]:
    """Numbers of the first column and of those where most cells do not begin with a number."""
    numbers = []
    for number, column in enumerate(zip(*rows, strict=True)):
        filled = [cell for cell in column if cell not in ("", "-")]
        words = sum(re.match(r"[-+]?[\d.]", cell) is None for cell in filled)
        if number == 0 or words > len(filled) / 2:
            numbers.append(number)
    return numbers


def markdown(grid: Grid, notes: list[str], settings: TableSettings, marks: Marks, sections: list[str]) -> str:
    """Write the table, its notes as a list, then further sections."""
    labels = printed_methods(settings)
    numbers = zip(map(str, grid.values.index), cells(grid, marks, "**{}**", "_{}_", settings.published), strict=True)
    rows = [(name, [labels[name], *row]) for name, row in numbers]
    lines = under_families(rows, settings, lambda family: [f"_{family}_", *[""] * len(grid.columns)])
    table = markdown_table(["", *(column.printed for column in grid.columns)], lines)
    return "\n".join([table, "".join(f"- {note}\n" for note in notes), *sections])


def significance_section(tests: pd.DataFrame, settings: TableSettings) -> tuple[list[str], list[str]]:
    """Write notes on the marks, and a section that lists the marked differences."""
    if tests.empty:
        return ["no significance tests: the baseline is not among the methods, or is alone"], []
    labels = {method.name: method.label for method in settings.methods}
    marks, baseline = significance_marks(tests), tests["baseline"].iloc[0]
    note = marks_note(labels.get(baseline, baseline), len(tests))
    note += "; rows of a further seed against the same seed of it" if tests["baseline"].nunique() > 1 else ""
    few = few_queries(tests["queries"])
    if absent := next((method.absent for method in settings.methods if method.name == baseline), ()):
        few.append(f"in no test, as {labels[baseline]} has no run there: {', '.join(absent)}")
    rows = []
    for test in tests.itertuples():
        if mark := marks.get((test.method, test.collection)):
            p_values = p_value(test.p_t_holm), p_value(test.p_randomization_holm)
            difference = f"{signed(test.difference)} {mark}", interval(test.low, test.high)
            rows.append([test.collection, labels[test.method], *difference, *p_values])
    if not rows:
        return [note + "; none is", *few], []
    least = tests["p_randomization"].min()
    if least * len(tests) >= LEVEL:
        corrected = p_value(min(least * len(tests), 1.0))
        few.append(
            f"the least p of the randomisation tests, {p_value(least)}, is {corrected} after Holm's correction over "
            f"{plural(len(tests), 'test')}: such tests need more permutations, --config randomization_samples=100000"
        )
    header = ["collection", "method", "difference", "95 % interval", "p (t, Holm)", "p (randomisation, Holm)"]
    title = f"## Differences from {labels.get(baseline, baseline)}\n\n"
    return [note, *few], [title + markdown_table(header, rows)]


def page(markdown_text: str, title: str) -> str:
    """Convert Markdown to one self-contained HTML page; tags in texts, as queries have them, are shown."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown_text)
    return PAGE.format(title=html.escape(title), body=body)


def tex(grid: Grid, notes: list[str], settings: TableSettings, marks: Marks) -> str:
    """Write a `booktabs` tabular and a small paragraph for each note, to be put into a table environment."""
    labels = printed_methods(settings)
    signs = {key: escape(mark) for key, mark in marks.items()}
    header = " & ".join(["", *(escape(column.printed) for column in grid.columns)])
    numbers = zip(
        map(str, grid.values.index),
        cells(grid, signs, r"\textbf{{{}}}", r"\textit{{{}}}", settings.published),
        strict=True,
    )
    # `\\` and `\midrule` would take brackets or a star at the start of the next row for theirs.
    firsts = {name: "{}" * label.startswith(("[", "*")) + escape(label) for name, label in labels.items()}
    rows = [(name, " & ".join([firsts[name], *row]) + r" \\") for name, row in numbers]
    width = len(grid.columns) + 1
    body = under_families(
        rows, settings, lambda family: rf"\multicolumn{{{width}}}{{l}}{{\emph{{{escape(family)}}}}} \\"
    )
    lines = [r"\begin{tabular}{l" + "r" * len(grid.columns) + "}", r"\toprule", header + r" \\", r"\midrule"]
    lines += [*body, r"\bottomrule", r"\end{tabular}"]
    if notes:
        lines += [r"\par\smallskip", r"{\footnotesize\raggedright", *(rf"{escape(note)}\par" for note in notes), "}"]
    return "\n".join(["% needs \\usepackage{booktabs}", *lines]) + "\n"


def escape(text: str) -> str:
    """Escape LaTeX's special characters, and write marks of significance as superscripts."""
    return "".join(SPECIAL.get(character, character) for character in text)
