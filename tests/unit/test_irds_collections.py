"""`zerodr new collection --ir-datasets`: a data set of ir_datasets' cache becomes a pinned collection."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from config_helpers import copy_config

from zerodr.config.load import load_bench

ROOT = Path(__file__).parents[2]
MEMBERS = {
    "scifact/corpus.jsonl": [{"_id": "01", "title": "Größe", "text": "a"}, {"_id": "2", "title": "", "text": "b"}],
    "scifact/queries.jsonl": [{"_id": "q", "text": "a?"}, {"_id": "r", "text": "b?"}],
}
JUDGED = {"test": "q\t01\t2\nq\t2\t0\n", "train": "r\t2\t1\n"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A checkout, and a cache of ir_datasets that has SciFact."""
    cached = tmp_path / "ir_datasets/beir/scifact/source.zip"
    cached.parent.mkdir(parents=True)
    with zipfile.ZipFile(cached, "w") as archive:
        for name, rows in MEMBERS.items():
            archive.writestr(name, "".join(json.dumps(row) + "\n" for row in rows))
        for split, rows in JUDGED.items():
            archive.writestr(f"scifact/qrels/{split}.tsv", f"query-id\tcorpus-id\tscore\n{rows}")
    folder = tmp_path / "project"
    folder.mkdir()
    copy_config(folder)
    (folder / "resources").unlink()
    shutil.copytree(ROOT / "resources/reference", folder / "resources/reference")
    (folder / "Snakefile").touch()
    monkeypatch.delenv("ZERODR_MY")
    monkeypatch.chdir(folder)
    return folder


def new(project: Path, *words: str) -> subprocess.CompletedProcess:
    known = {"PYTHONPATH": str(ROOT / "workflow/scripts"), "IR_DATASETS_HOME": str(project.parent / "ir_datasets")}
    command = [sys.executable, "-m", "zerodr", "new", "collection", *words]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | known)


def test_a_data_set_becomes_an_archive_in_beirs_layout_with_its_checksum(project):
    done = new(project, "claims", "--ir-datasets", "beir/scifact/test")
    assert done.returncode == 0 and "next: snakemake" in done.stdout, done.stderr
    assert "# ir_datasets 0.6.3: beir/scifact/test" in Path("config/my/claims.yaml").read_text()
    row = load_bench(project, {}).collections["claims"]
    assert row.pinned and (row.documents, row.queries, row.splits) == (2, 1, {"test": 1})
    with zipfile.ZipFile("resources/mirror/claims.zip") as archive:
        documents = [json.loads(line) for line in archive.read("corpus.jsonl").decode().splitlines()]
        assert documents == [{"_id": "01", "title": "Größe", "text": "a"}, {"_id": "2", "title": "", "text": "b"}]
        assert archive.read("qrels/test.tsv").decode() == "query-id\tcorpus-id\tscore\nq\t01\t2\nq\t2\t0\n"
    again = new(project, "claims", "--ir-datasets", "beir/scifact/test")
    assert again.returncode == 1 and "the bench has a collection of that name" in again.stderr


def test_the_same_data_make_the_same_archive(project):
    for name in ("one", "two"):
        assert new(project, name, "--ir-datasets", "beir/scifact/train").returncode == 0
    assert Path("resources/mirror/one.zip").read_bytes() == Path("resources/mirror/two.zip").read_bytes()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("beir/scifakt/test", "is no data set of ir_datasets: did you mean beir/scifact/test"),
        ("beir/scifact", "beir/scifact: has no judgements: take one of beir/scifact/test, beir/scifact/train"),
        ("vaswani", "vaswani: can't be read by ir_datasets (RuntimeError: All download sources failed)"),
    ],
)
def test_what_can_not_be_had_is_one_sentence_and_leaves_nothing(project, asked, sentence):
    done = new(project, "claims", "--ir-datasets", asked)
    assert done.returncode == 1 and sentence in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not Path("config/my/claims.yaml").exists() and not list(Path("resources/mirror").glob("*"))


def test_another_archive_of_that_name_in_the_mirror_folder_is_refused_before_anything_is_written(project):
    mirror, source = Path("resources/mirror/claims.zip"), project.parent / "ir_datasets/beir/scifact/source.zip"
    mirror.parent.mkdir(parents=True)
    mirror.write_bytes(b"of another time")
    done = new(project, "claims", "--archive", str(source))
    expected = f"{mirror}: is another archive than {source}: remove it, or take another name"
    assert done.returncode and expected in done.stderr, (done.stdout, done.stderr)
    assert not Path("config/my/claims.yaml").exists() and mirror.read_bytes() == b"of another time"
    shutil.copy(source, mirror)
    assert not new(project, "claims", "--archive", str(source)).returncode


def test_the_split_of_the_tables_is_not_that_of_training(project):
    with zipfile.ZipFile("claims.zip", "w") as archive:
        for name, rows in MEMBERS.items():
            archive.writestr(name, "".join(json.dumps(row) + "\n" for row in rows))
        for split, rows in {"train": JUDGED["train"], "validation": JUDGED["test"]}.items():
            archive.writestr(f"scifact/qrels/{split}.tsv", f"query-id\tcorpus-id\tscore\n{rows}")
    done = new(project, "claims", "--archive", "claims.zip")
    assert not done.returncode, done.stderr
    assert load_bench(project, {}).collections["claims"].evaluation_split == "validation"
