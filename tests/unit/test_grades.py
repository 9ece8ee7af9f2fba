"""`to_judge.tsv` as editors and spreadsheets save it: grades, ids, texts that have changed, lines that say nothing."""

from __future__ import annotations

import pandas as pd
import pytest
from encoder_helpers import make_collection
from hypothesis import given
from hypothesis.strategies import characters, text

from zerodr.errors import CollectionError
from zerodr.evaluation.grades import id_cell, id_of_cell, offer, read_grades, read_rows
from zerodr.evaluation.judge_adaptation import asked_for, write_pairs


@pytest.fixture
def notes(tmp_path):
    """A folder of documents and queries whose ids a spreadsheet would change."""
    documents = [("0002", "", "x"), ("b  c", "", "y"), ("50%", "", "z"), ("1-2", "", "w")]
    return make_collection(tmp_path / "notes", documents, [("007", "one"), ("q", '"é" ü')]).parent


def pairs_of(path, home) -> list:
    return read_grades(path, [home], home).pairs[["document", "grade"]].to_numpy().tolist()


def test_grades_are_read_and_wrong_ones_named_with_their_line(tmp_path, notes):
    path = tmp_path / "to_judge.tsv"
    path.write_text("grade\tquery-id\tcorpus-id\tquery\n1\tq\t0002\té ü\n\tq\t1-2\tx\n0.0\tq\t50%\té ü\n")
    assert pairs_of(path, notes) == [
        ["0002", 1],
        ["50%", 0],
    ]
    path.write_text("grade\tquery-id\tcorpus-id\n1\tq\t0002\nyes\tq\t1-2\n")
    with pytest.raises(
        CollectionError, match=r"to_judge.tsv:3: the grade 'yes' is no whole number up to 1000: write 1"
    ):
        read_grades(path, [notes], notes)


@pytest.mark.parametrize("grade", ["5000000000", "1e300", "inf", "-1001"])
def test_grades_beyond_reason_are_refused(tmp_path, notes, grade):
    path = tmp_path / "to_judge.tsv"
    path.write_text(f"grade\tquery-id\tcorpus-id\n{grade}\tq\t0002\n")
    with pytest.raises(CollectionError, match=r"to_judge.tsv:2: the grade"):
        read_grades(path, [notes], notes)


def test_ids_that_a_spreadsheet_changed_are_refused_with_their_line(tmp_path, notes):
    path = tmp_path / "to_judge.tsv"
    path.write_bytes(b"grade\tquery-id\tcorpus-id\r\n1\tq\t0002\r\n1\tq\t2\r\n1\t7\t0002\r\n")
    with pytest.raises(CollectionError, match=r"tsv:3: document '2' is not in the collection"):
        read_grades(path, [notes], notes)
    path.write_bytes(b"grade\tquery-id\tcorpus-id\r\n1\tq\t0002\r\n1\t7\t0002\r\n")
    with pytest.raises(CollectionError, match=r"tsv:3: query '7' is not in the collection: .*0002 becomes 2"):
        read_grades(path, [notes], notes)


def test_the_written_pairs_come_back_whatever_their_ids(tmp_path, notes):
    pairs = pd.DataFrame({"query": "007", "document": ["0002", "b  c", "50%", "1-2"], "ranks": ""})
    path = tmp_path / "to_judge.tsv"
    write_pairs(path, pairs, asked_for(pairs, notes, None), notes)
    path.write_text(path.read_text().replace("\n\t", "\n1\t"))
    graded = read_grades(path, [notes], notes).pairs
    assert graded["document"].tolist() == pairs["document"].tolist() and set(graded["query"]) == {"007"}
    cells = [line.split("\t")[1:3] for line in path.read_text().splitlines()[1:]]
    assert all(":" in cell for row in cells for cell in row)  # no number, date or truth value for a spreadsheet


def test_no_text_is_a_formula_to_a_spreadsheet(tmp_path):
    documents = [("list", "", "- apples - pears"), ("sum", "", "=1+1 is two"), ("at", "", "@home")]
    home = make_collection(tmp_path / "lists", documents, [("q", "+1 what?")]).parent
    pairs = pd.DataFrame({"query": "q", "document": ["list", "sum", "at"], "ranks": ""})
    new, path = tmp_path / "new.tsv", tmp_path / "to_judge.tsv"
    write_pairs(new, pairs, asked_for(pairs, home, None), home)
    offer(new, path)
    for _ in range(2):  # graded in a spreadsheet, which shows formulas that it can't compute as #NAME?; offered again
        lines = [line.split("\t") for line in path.read_text().splitlines()]
        shown = [["1", *("#NAME?" if cell[:1] in [*"=+-@"] else cell for cell in row[1:])] for row in lines[1:]]
        path.write_text("\n".join("\t".join(row) for row in [lines[0], *shown]) + "\n")
        grades = read_grades(path, [home], home)
        assert len(grades.pairs) == 3 and not grades.outdated
        offer(new, path)


def test_grades_of_texts_that_have_changed_or_gone_are_set_aside_and_told(tmp_path, notes):
    pairs = pd.DataFrame({"query": ["007", "q", "q", "q"], "document": ["0002", "0002", "b  c", "50%"], "ranks": ""})
    path = tmp_path / "to_judge.tsv"
    write_pairs(path, pairs, asked_for(pairs, notes, None), notes)
    path.write_text(path.read_text().replace("\n\t", "\n1\t"))
    before = read_grades(path, [notes], notes)
    assert len(before.pairs) == 4 and not before.outdated
    documents = [("0002", "", "x"), ("b  c", "", "another text"), ("1-2", "", "w")]
    later = make_collection(tmp_path / "later", documents, [("007", "other"), ("q", '"é" ü')]).parent
    pairs, outdated = read_grades(path, [later], later)
    assert pairs[["query", "document"]].to_numpy().tolist() == [["q", "0002"]]
    assert outdated.startswith("3 of 4 grades of yours are about texts that have changed or gone since (line 2 of ")
    offered = pd.DataFrame({"query": ["q"], "document": ["b  c"], "ranks": ""})
    write_pairs(tmp_path / "new.tsv", offered, asked_for(offered, later, None), later)
    offer(tmp_path / "new.tsv", path)
    assert [row.cells[2] for row in read_rows(path)] == ["document:0002", "document:0002", "document:50%25"]
    assert "another text" in path.read_text()


@given(text(characters(codec="utf-8"), min_size=1, max_size=12))
def test_any_id_survives_a_cell(key):
    cell = id_cell("query", key)
    assert id_of_cell("query", cell) == key and " ".join(cell.split()) == cell


LINES = [
    "grade\tquery-id\tcorpus-id\tquery",
    '1\tquery:q\tdocument:0002\t"é" ü',
    '0\tquery:q\tdocument:50%25\t"é" ü',
    "",
]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", ["\t", ";", ","])
def test_files_of_spreadsheets_are_read(tmp_path, notes, encoding, separator):
    path = tmp_path / "to_judge.tsv"
    text = "\r\n".join(LINES).replace('\t"é" ü', '\t"""é"" ü"').replace("query:q", '"query:q"').replace("\t", separator)
    path.write_bytes(text.encode(encoding))
    assert pairs_of(path, notes) == [
        ["0002", 1],
        ["50%", 0],
    ]
    (tmp_path / "new.tsv").write_text("\n".join([*LINES[:1], *("\t" + line.partition("\t")[2] for line in LINES[1:3])]))
    offer(tmp_path / "new.tsv", path)
    assert [row.cells[0] for row in read_rows(path)] == ["1", "0"]
    assert path.read_text(encoding="utf-8").splitlines()[1] == LINES[1]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "to_judge.tsv: is empty: delete it"),
        ("\n".join(LINES).encode("cp1252"), r"tsv:2: is in neither UTF-8 nor UTF-16 \(perhaps Windows-1252"),
        (b"grade\tquery-id\tcorpus-id\n1\n", "tsv:2: the grade '1' has no query-id or no corpus-id: write grades"),
        (b"grade\tquery-id\tcorpus-id\n\n1\tq\t\n", "tsv:3: the grade '1' has no query-id"),
        (b"grade\tquery-id\tcorpus-id\n1\tq\t0002\n0\tq\t0002\n", "tsv:3: the pair has grade 0 here, and 1 in line 2"),
        (b"grade\tquery-id\tcorpus-id\n1e3\tq\t0002\n", "tsv:2: the grade '1e3' is no whole number"),
        (b"a\tb\n1\tq\n", "has no column 'grade'"),
    ],
)
def test_lines_that_say_nothing_clear_are_refused(tmp_path, notes, content, problem):
    path = tmp_path / "to_judge.tsv"
    path.write_bytes(content)
    with pytest.raises(CollectionError, match=problem):
        read_grades(path, [notes], notes)
