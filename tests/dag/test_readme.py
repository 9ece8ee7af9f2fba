"""The commands that README.md and docs/ show are commands: dry runs, arguments, targets of the Makefile, files."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import typer
import yaml
from tests.dag.conftest import clone

from zerodr.__main__ import app
from zerodr.checkout import split_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "config/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILLED = {
    "snakemake ...": "snakemake --profile config/profiles/mini",
    "<method>": "bm25-flat",
    "<collection>": "scifact",
    "<protocol>": "standard",
    "<name>": "train",
}
STARTS = ("snakemake", "make", "python", "bash")
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")


def shown() -> list[list[str]]:
    """Words of every command in a block or in backticks, each once. Placeholders are filled in, comments left out."""
    texts = []
    for page in PAGES:
        text = page.read_text()
        texts += [line for _, block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        texts += CODE.findall(BLOCK.sub("", text))
    commands = []
    for text in texts:
        text = re.sub(r"^([A-Z_]+=\S* +)+", "", text)
        text = re.sub(r"^zerodr (?=\w+ [^-\s])", "python -m zerodr ", text)
        if not text.startswith(tuple(f"{start} " for start in STARTS)):
            continue
        for placeholder, value in FILLED.items():
            text = text.replace(placeholder, value)
        words = shlex.split(text, comments=True)
        if words not in commands:
            commands.append(words)
    return commands


def commands(*start: str) -> list[list[str]]:
    """Shown commands that start so."""
    return [words for words in shown() if tuple(words[: len(start)]) == start]


def split_targets(words: list[str]) -> tuple[list[str], list[str]]:
    """Targets of a snakemake command, and its options with their values. `--config` takes all words that follow it."""
    targets, options = [], []
    waiting = 0.0
    for word in words:
        if word.startswith("-"):
            waiting = {"-n": 0, "--config": float("inf"), "--set-resources": float("inf")}.get(word, 1)
            options.append(word)
        elif waiting > 0:
            options.append(word)
            waiting -= 1
        else:
            targets.append(word)
    return targets, [option for option in options if option != "-n"]


def plans() -> dict[tuple[str, ...], list[str]]:
    """Targets by options: what one dry run can plan together."""
    together: dict[tuple[str, ...], list[str]] = {}
    for words in commands("snakemake"):
        targets, options = split_targets(words[1:])
        together.setdefault(tuple(options), []).extend(targets)
    return together


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with what the pages tell to write: recipes, a folder with a model, a corpus with judgements."""
    folder = clone(ROOT, tmp_path_factory.mktemp("documented"))
    for number, (title, text) in enumerate(recipe_blocks()):
        path = folder / (title or f"config/methods/example{number}.yaml")
        path.parent.mkdir(exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + text)
    (folder / "path/to/folder").mkdir(parents=True)
    notes = folder / "path/to/notes"
    (notes / "qrels").mkdir(parents=True)
    (notes / "corpus.jsonl").write_text('{"_id": "1", "text": "a note"}\n')
    (folder / "path/to/scifact.trec").write_text("q Q0 1 1 1.0 t\n")
    (folder / "path/to/scores.tsv").write_text("method\tcollection\tndcg_at_10\nours\tscifact\t0.7\n")
    (notes / "queries.jsonl").write_text('{"_id": "q", "text": "a note?"}\n')
    (notes / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    with zipfile.ZipFile(folder / "path/to/notes.zip", "w") as archive:
        for path in sorted(path for path in notes.rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(notes))
    environment = {name: value for name, value in os.environ.items() if name != "ZERODR_MY"}
    for words in commands("python", "-m", "zerodr", "new"):
        done = subprocess.run(
            [sys.executable, *words[1:]], cwd=folder, capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0 and "next: snakemake" in done.stdout, f"{words}\n{done.stderr}"
    return folder


def recipe_blocks() -> list[tuple[str, str]]:
    """Titles (or "") and texts of whole recipes; a block of scales and variants has the title of the one above."""
    blocks, last = [], ""
    for page in PAGES:
        for info, text in BLOCK.findall(page.read_text()):
            if not info.startswith("yaml"):
                continue
            titles, keys = re.findall(r'title="(.*)"', info), yaml.safe_load(text)
            if "variants" in keys and "kind" not in keys:
                blocks.append((last, text))
            elif "kind" in keys or "like" in keys:
                last = titles[0] if titles else ""
                blocks.append((last, text))
    return blocks


@pytest.mark.parametrize("options", plans(), ids=shlex.join)
def test_snakemake_commands_can_be_planned(snakemake, documented, options):
    targets = plans()[options]
    done = snakemake("-n", *targets, *options, "--quiet", "all", cwd=documented)
    assert done.returncode == 0, f"{targets} {options}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("words", [w for w in commands("python", "-m", "zerodr") if w[3:]], ids=shlex.join)
def test_commands_of_the_library_take_their_arguments(words):
    name, arguments = words[3], words[4:]
    command = typer.main.get_command(app).commands[name]
    command.make_context(name, split_config(arguments)).close()


@pytest.mark.parametrize("words", commands("make"), ids=shlex.join)
def test_targets_of_the_makefile_exist(root, words):
    done = subprocess.run([words[0], "-n", *words[1:]], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_scripts_and_modules_that_are_started_exist(root):
    for words in [*commands("python"), *commands("bash")]:
        if words[1] == "-m":
            assert importlib.util.find_spec(words[2]), words
        else:
            assert (root / words[1]).is_file(), words


def test_make_help_lists_every_target(root):
    targets = set(re.findall(r"(?m)^([a-z-]+):", (root / "Makefile").read_text()))
    listed = subprocess.run(["make", "-s", "help"], cwd=root, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in listed.splitlines()} == targets


def test_examples_of_every_kind_are_found():
    assert len(commands("snakemake")) >= 40
    assert len(commands("python", "-m", "zerodr")) >= 10
    assert ["make", "mini"] in commands("make")
    assert {title for title, _ in recipe_blocks()} >= {"", "config/my/my-dpr.yaml", "config/my/my-model.yaml"}
