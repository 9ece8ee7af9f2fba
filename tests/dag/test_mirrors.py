"""Archives of mirror folders: a changed one is noticed, a touched or missing one spoils nothing."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from tests.dag.conftest import clone

ARCHIVE, COLLECTION = "resources/archives/notes.zip", "results/collections/notes/manifest.json"
ROW = {"label": "Notes", "kind": "complete", "archive": "notes.zip", "splits": {"test": 1}, "evaluation_split": "test"}


@pytest.fixture
def notes(root: Path, tmp_path: Path) -> Path:
    """A clone with a collection of the user in a mirror folder, larger than what Snakemake compares by default."""
    folder = clone(root, tmp_path / "clone")
    (folder / "config/collections/notes.yaml").write_text(json.dumps({"collections": {"notes": ROW}}))
    (folder / "mirror").mkdir()
    write(folder)
    return folder


def write(folder: Path) -> None:
    with zipfile.ZipFile(folder / "mirror/notes.zip", "w") as archive:
        archive.writestr("corpus.jsonl", json.dumps({"_id": "d", "title": "", "text": os.urandom(1_500_000).hex()}))
        archive.writestr("queries.jsonl", json.dumps({"_id": "q", "text": "which"}))
        archive.writestr("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td\t1\n")


def test_a_changed_archive_of_a_mirror_is_fetched_again(notes, snakemake):
    def run(*words: str) -> str:
        command = ("--profile", "config/profiles/mini", COLLECTION, "--config", "mirrors=[mirror]", *words)
        done = snakemake(*command, cwd=notes)
        return done.stdout + done.stderr

    mirrored, fetched = notes / "mirror/notes.zip", notes / ARCHIVE
    run()
    content = fetched.read_bytes()
    assert content == mirrored.read_bytes()
    os.utime(mirrored)
    assert "Nothing to be done" in run(), "a touched file"
    mirrored.rename(notes / "away.zip")
    assert "no mirror folder has notes.zip" in run(), "a mirror that is gone"
    assert fetched.read_bytes() == content, "what was fetched stays"
    write(notes)
    run()
    assert fetched.read_bytes() == mirrored.read_bytes() != content


def test_a_collection_without_an_address_is_refused_by_a_sentence(snakemake):
    target = "results/collections/fiqa-13k/manifest.json"
    done = snakemake("-n", target, "--config", "mirrors=[resources/mirror]")
    assert done.returncode
    assert (
        "ConfigError: collection fiqa-13k: has no public address, and no mirror folder has fiqa-13k.zip: "
        "put the archive into resources/mirror, or leave the collection out"
    ) in done.stdout + done.stderr
    assert snakemake("-n", "results/collections/cisi/manifest.json").returncode == 0
