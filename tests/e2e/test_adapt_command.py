"""`zerodr adapt` on real documents as a user runs it: a folder, an answer, a model, a page, grades, again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.dag.conftest import clone
from tests.e2e.conftest import configure

pytestmark = pytest.mark.slow
WORDS = ["scale=mini", "candidates=[bm25-flat+bm25s,all-minilm-l6-v2,adapt-query]"]


@pytest.fixture(scope="module")
def bench(root: Path, mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone, with 60 documents of SciFact in the folder `notes` next to it."""
    home = tmp_path_factory.mktemp("adapt")
    folder = clone(root, home / "bench")
    configure(folder, mirror)
    with zipfile.ZipFile(mirror / "scifact.zip") as archive:
        name = next(name for name in archive.namelist() if name.endswith("corpus.jsonl"))
        lines = archive.read(name).decode().splitlines()[:60]
    (home / "notes").mkdir()
    (home / "notes/corpus.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def adapt(bench: Path, *words: str) -> subprocess.CompletedProcess:
    """Give the command in the folder `docs` of the clone."""
    (bench / "docs").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "zerodr", "adapt", "../../notes", *words, "--config", *WORDS]
    env = os.environ | {"PYTHONPATH": str(bench / "workflow/scripts")}
    return subprocess.run(command, cwd=bench / "docs", capture_output=True, text=True, check=False, env=env)


def test_a_folder_becomes_an_answer_a_model_and_a_page(bench):
    done = adapt(bench, "--method", "adapt-query")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "a proxy: up to 300 titles" in done.stdout and "a proxy: nobody judged them" in done.stdout
    home = bench / "results/adapted/notes"
    answer = json.loads((home / "answer/answer.json").read_text())
    assert set(answer["kinds"]) == {"titles", "sentences"} and answer["choice"] in done.stderr + json.dumps(answer)
    page, card = (home / "index.html").read_text(), (home / "model/README.md").read_text()
    assert answer["sentences"][0].split(":")[0] in page and answer["advice"] in done.stdout and "A proxy" in card
    assert json.loads((home / "model/retriever.json").read_text())["method"] == answer["choice"]


def test_the_same_command_has_nothing_left_to_do_and_takes_grades(bench):
    again = adapt(bench, "--method", "adapt-query")
    assert again.returncode == 0 and "nothing is left to do" in again.stdout
    pairs = bench / "results/adapted/notes/to_judge.tsv"
    if not pairs.exists():
        pytest.skip("the comparison decided")
    header, first, *others = pairs.read_text().splitlines()
    pairs.write_text("\n".join([header, f"1{first}", *others]) + "\n")
    graded = adapt(bench, "--method", "adapt-query")
    assert graded.returncode == 0 and "your grades in" in graded.stdout, graded.stdout + graded.stderr[-2000:]
    assert pairs.read_text().splitlines()[1].startswith("1\t")


def test_a_model_that_was_deleted_is_made_again(bench):
    shutil.rmtree(bench / "results/adapted/notes/model")
    again = adapt(bench, "--method", "adapt-query")
    assert again.returncode == 0, again.stderr[-2000:]
    assert (bench / "results/adapted/notes/model/retriever.json").exists()
