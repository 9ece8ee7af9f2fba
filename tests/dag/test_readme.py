"""The commands that README.md shows are commands: dry runs, arguments, targets of the Makefile, modules."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from zerodr.cli import app

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
SHOWN = re.findall(r"`((?:snakemake|make|python) [^`\n]+)`", README) + re.findall(
    r"(?m)^((?:snakemake|make|python) .+)$", README
)
FILLED = {
    "...": "--profile config/profiles/mini",
    "<method>": "bm25-flat",
    "<collection>": "scifact",
    "<protocol>": "standard",
}


def commands(*start: str) -> list[list[str]]:
    """Shown commands that start so, each once, with placeholders filled in and comments left out."""
    found = []
    for text in SHOWN:
        for placeholder, value in FILLED.items():
            text = text.replace(placeholder, value)
        words = shlex.split(text, comments=True)
        if tuple(words[: len(start)]) == start and words not in found:
            found.append(words)
    return found


@pytest.fixture
def notes(checkout: Path) -> None:
    """The own corpus of the examples, with judgements."""
    folder = checkout / "path/to/notes"
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text('{"_id": "1", "text": "a note"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "a note?"}\n')
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")


@pytest.mark.parametrize("words", commands("snakemake"), ids=shlex.join)
def test_snakemake_commands_can_be_planned(snakemake, notes, words):
    done = snakemake("-n", *words[1:])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("words", commands("python", "-m", "zerodr"), ids=shlex.join)
def test_commands_of_the_library_take_their_arguments(words):
    name, arguments = words[3], words[4:]
    command = typer.main.get_command(app).commands[name]
    command.make_context(name, list(arguments)).close()


@pytest.mark.parametrize("words", commands("make"), ids=shlex.join)
def test_targets_of_the_makefile_exist(root, words):
    done = subprocess.run([words[0], "-n", *words[1:]], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_examples_of_every_kind_are_found():
    assert len(commands("snakemake")) >= 6
    assert len(commands("python", "-m", "zerodr")) >= 3
    assert ["make", "mini"] in commands("make")
