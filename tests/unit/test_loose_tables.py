"""Tables among plain files: which column is the text, and which the title."""

from __future__ import annotations

from pathlib import Path

from zerodr.collections.user_folders import open_folder
from zerodr.config.user_folders import find_files

TEXTS = ["Pumps move fluid.", "Valves close."]


def read(folder: Path) -> tuple[list[tuple[str, ...]], list[str]]:
    reader = open_folder(str(folder), find_files(folder)["corpus"])
    return [row[:3] for row in reader.documents()], reader.remarks


def test_a_column_without_a_name_is_no_title(tmp_path):
    (tmp_path / "a.csv").write_text(",text,label\n0,Pumps move fluid.,1\n1,Valves close.,0\n")
    documents, remarks = read(tmp_path)
    assert documents == [("a.csv#1", "", TEXTS[0]), ("a.csv#2", "", TEXTS[1])]
    assert "title 'none'" in remarks[0]
