"""Tables among plain files: which column is the text, and which the title."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from zerodr.collections.user_folders import open_folder
from zerodr.config.loose_files import Columns
from zerodr.config.user_folders import find_files
from zerodr.errors import CollectionError

TEXTS = ["Pumps move fluid.", "Valves close."]


def read(folder: Path, **columns: str) -> tuple[list[tuple[str, ...]], list[str]]:
    reader = open_folder(str(folder), find_files(folder)["corpus"], Columns(**columns))
    return [row[:3] for row in reader.documents()], reader.remarks


def test_a_column_without_a_name_is_no_title(tmp_path):
    (tmp_path / "a.csv").write_text(",text,label\n0,Pumps move fluid.,1\n1,Valves close.,0\n")
    documents, remarks = read(tmp_path)
    assert documents == [("a.csv#1", "", TEXTS[0]), ("a.csv#2", "", TEXTS[1])]
    assert "title 'none'" in remarks[0]


@pytest.mark.parametrize(("text", "title"), [("answer", "Why?"), ("context", "")])
def test_a_question_is_the_title_of_its_answer_and_not_of_a_passage_that_answers_it(tmp_path, text, title):
    (tmp_path / "a.csv").write_text(f"question,{text}\nWhy?,Pumps move fluid.\nHow?,Valves close.\n")
    assert read(tmp_path)[0][0] == ("a.csv#1", title, "Pumps move fluid.")


@pytest.mark.parametrize(
    ("name", "longer"),
    [
        ("metadata", {"source": "a/long/path/to/the/file/in/which/the/text/was.pdf", "page": 3}),
        ("embedding", [0.125] * 40),
        ("url", "https://example.org/a/long/path/to/the/page/on/which/the/text/is"),
        ("sha256", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    ],
)
def test_the_longest_column_of_words_is_the_text(tmp_path, name, longer):
    rows = [{name: longer, "page_content": text} for text in TEXTS]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    documents, remarks = read(tmp_path)
    assert [text for *_, text in documents] == TEXTS and f"not read: {name} " in remarks[0]


@pytest.mark.parametrize("name", ["a.csv", "corpus.csv", "corpus.jsonl", "corpus.parquet"])
@pytest.mark.parametrize("role", ["id", "title", "text"])
def test_a_column_that_no_table_has_is_refused(tmp_path, name, role):
    table = pd.DataFrame({"id": ["1", "2"], "Heading": ["Pumps", "Valves"], "text": TEXTS})
    form = name.partition(".")[2]
    options = {"csv": {"index": False}, "jsonl": {"orient": "records", "lines": True}, "parquet": {}}[form]
    getattr(table, f"to_{form.replace('jsonl', 'json')}")(tmp_path / name, **options)
    assert read(tmp_path, title="Heading")[0][1][1] == "Valves"
    with pytest.raises(CollectionError, match=rf"{name}: has no column 'Headin' \(--{role}\): did you mean Heading"):
        read(tmp_path, **{role: "Headin"})
