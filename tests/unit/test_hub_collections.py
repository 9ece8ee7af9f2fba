"""`zerodr new collection --hub`: a data set of a hub on loopback becomes a pinned collection that is read."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from config_helpers import copy_config

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import corpus_ids, read_qrels, read_queries
from zerodr.collections.user_folders import write_section
from zerodr.config.load import load_bench
from zerodr.config.registry import Collection
from zerodr.config.user_folders import SECTIONS, find_files, not_read, read_folders
from zerodr.errors import CollectionError, ConfigError
from zerodr.operations.foreign_collections import read_files
from zerodr.operations.stand_ins.archives import write_archives
from zerodr.operations.stand_ins.hub import Hub, Repository
from zerodr.plan import Plan, paths

ROOT = Path(__file__).parents[2]
LINES = {
    "corpus.jsonl": [{"_id": "01", "title": "A", "text": "a"}, {"_id": "2", "title": "", "text": "b"}],
    "queries.jsonl": [{"_id": "q", "text": "a?"}, {"_id": "r", "text": "b?"}],
    "qrels/test.jsonl": [{"query-id": "q", "corpus-id": "01", "score": 1}],
}


def write_lines(folder: Path) -> Path:
    for name, rows in LINES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "README.md").write_text("about\n")
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t01\t1\n")  # MTEB's have both forms
    return folder


def write_parquet(folder: Path) -> Path:
    names = {"corpus.jsonl": "corpus/corpus", "queries.jsonl": "queries/queries", "qrels/test.jsonl": "data/test"}
    for name, stem in names.items():
        (folder / stem).parent.mkdir(parents=True)
        rows = LINES[name]
        for n, row in enumerate(rows):
            pd.DataFrame([row]).to_parquet(folder / f"{stem}-{n:05d}-of-{len(rows):05d}.parquet")
    return folder


@pytest.fixture
def hub(tmp_path):
    open_ones = {"lines": write_lines(tmp_path / "lines"), "parquet": write_parquet(tmp_path / "parquet")}
    repositories = {f"datasets/group/{name}": Repository(folder) for name, folder in open_ones.items()}
    repositories["datasets/group/gated"] = Repository(tmp_path / "lines", "gated")
    with Hub(repositories) as served:
        yield served


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("ZERODR_MY")
    folder = tmp_path / "project"
    folder.mkdir()
    copy_config(folder)
    (folder / "Snakefile").touch()
    monkeypatch.chdir(folder)
    return folder


def new(hub: Hub, name: str, dataset: str) -> subprocess.CompletedProcess:
    home = {"HF_ENDPOINT": hub.address, "HF_HOME": str(Path("hub").absolute()), "HF_TOKEN": "", "NO_PROXY": "127.0.0.1"}
    known = {key: value for key, value in os.environ.items() if "OFFLINE" not in key}
    library = {"PYTHONPATH": str(ROOT / "workflow/scripts")}
    words = [sys.executable, "-m", "zerodr", "new", "collection", name, "--hub", dataset]
    return subprocess.run(words, capture_output=True, text=True, env=known | home | library)


def run(plan: Plan, rule: str, inputs: dict[str, str], outputs: dict[str, str], **wildcards: str) -> None:
    settings = json.loads(plan.settings(rule)(SimpleNamespace(**wildcards)))
    run_spec(StageSpec(rule, settings["version"], wildcards, inputs, outputs, settings["settings"], settings["seed"]))


@pytest.mark.parametrize("layout", ["lines", "parquet"])
def test_a_data_set_becomes_a_collection_pinned_at_its_commit(hub, project, layout):
    done = new(hub, "letters", f"group/{layout}")
    assert done.returncode == 0, done.stderr
    assert "next: snakemake" in done.stdout
    plan = Plan(load_bench(project, {"mirrors": []}))
    row = plan.collection("letters")
    commit = hub.repositories[f"datasets/group/{layout}"].commit("main")
    assert row.pinned and commit in row.originals.address and row.evaluation_split == "test"
    archive = paths.archive("letters.zip")
    run(plan, "fetch_archive", {}, {"archive": archive}, archive="letters.zip")
    run(
        plan,
        "normalize_collection",
        {"archive": archive},
        {"collection": paths.collection("letters")},
        collection="letters",
    )
    folder = Path(paths.collection("letters")).parent
    assert sorted(corpus_ids(folder).to_pylist()) == ["01", "2"]
    assert read_qrels(folder, "test").to_dict("list") == {"query": ["q"], "document": ["01"], "grade": [1]}


def test_a_mirror_or_a_rehearsal_has_a_data_set_in_beirs_layout(hub, project):
    assert new(hub, "letters", "group/lines").returncode == 0
    plan = Plan(load_bench(project, {"mirrors": []}))
    write_archives([plan.collection("letters")], [], Path("mirror"))
    inputs, folder = {"archive": "mirror/letters.zip"}, paths.collection("letters")
    run(plan, "normalize_collection", inputs, {"collection": folder}, collection="letters")
    assert len(corpus_ids(Path(folder).parent)) > 1000 and len(read_qrels(Path(folder).parent, "test")) == 24


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        ("group/none", "datasets/group/none: is not on the hub, or is private"),
        ("group/gated", "asks to accept its licence"),
        ("SciFacts", "is no task of MTEB that zerodr knows: did you mean SciFact?"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence_and_writes_nothing(hub, project, dataset, sentence):
    (project / "resources/reference").mkdir(parents=True, exist_ok=True)
    done = new(hub, "letters", dataset)
    assert done.returncode == 1 and sentence in done.stderr and "Traceback" not in done.stderr
    assert not Path("config/my/letters.yaml").exists()


def test_a_download_in_several_files_is_read_whole_without_its_card(tmp_path, tmp_path_factory):
    for name, rows in (("corpus/corpus", "corpus.jsonl"), ("queries/queries", "queries.jsonl")):
        (tmp_path / name).parent.mkdir()
        for n, row in enumerate(LINES[rows]):
            pd.DataFrame([row]).to_parquet(tmp_path / f"{name}-0000{n}-of-00002.parquet")
    (tmp_path / "default").mkdir()
    for n, pair in enumerate([("q", "01"), ("r", "2")]):
        judged = pd.DataFrame([dict(zip(("query-id", "corpus-id", "score"), (*pair, 1), strict=True))])
        judged.to_parquet(tmp_path / f"default/test-0000{n}-of-00002.parquet")
    (tmp_path / "README.md").write_text("# Card\n\nThis data set has documents.\n")
    (tmp_path / "more.docx").touch()
    home, files = tmp_path_factory.mktemp("read"), find_files(tmp_path)
    row = Collection(name="letters", label="letters", kind="own", format="folder")
    for section in SECTIONS:
        write_section(section, str(tmp_path), files[section], row, home)
    assert corpus_ids(home).to_pylist() == ["01", "2"] and read_queries(home)["id"].to_pylist() == ["q", "r"]
    assert read_qrels(home, "test")["document"].tolist() == ["01", "2"]
    assert not_read(tmp_path) == "not read: more.docx"
    (tmp_path / "default/test-00001-of-00002.parquet").unlink()
    with pytest.raises(ConfigError, match=r"holds 1 of the 2 files default/test-\*.parquet: download the others"):
        read_folders([str(tmp_path)], {}, "en", {}, "letters")


def test_a_hub_that_goes_down_in_the_middle_is_one_sentence(hub, project):
    (project / "resources/reference").mkdir(parents=True, exist_ok=True)
    hub.cut = True
    done = new(hub, "letters", "group/lines")
    assert done.returncode == 1 and "datasets/group/lines: the hub can't be reached" in done.stderr
    assert "Traceback" not in done.stderr and not Path("config/my/letters.yaml").exists()


def test_other_files_than_a_collection_has_are_refused():
    with pytest.raises(CollectionError, match="has no corpus"):
        read_files("a/b", {"train.jsonl": ""})
    shards = [f"corpus/corpus-0000{n}-of-0000{n + 2}.parquet" for n in range(2)]
    with pytest.raises(CollectionError, match="has 2 files of corpus, expected one"):
        read_files("a/b", dict.fromkeys(shards, ""))
    with pytest.raises(CollectionError, match="has 2 files of split test, expected one"):
        read_files("a/b", dict.fromkeys(["corpus.jsonl", "qrels.test.tsv", "qrels/test.jsonl"], ""))


def test_judgements_in_two_forms_as_mteb_keeps_them_are_read_once():
    files = ["corpus.jsonl", "queries.jsonl", "qrels/dev.jsonl", "qrels/dev.tsv", "qrels/test.jsonl", "qrels/test.tsv"]
    chosen = ["corpus.jsonl", "queries.jsonl", "qrels/dev.jsonl", "qrels/test.jsonl"]
    assert read_files("mteb/scifact", dict.fromkeys(files, "")) == chosen
    shards = [f"corpus/corpus-0000{n}-of-00002.parquet" for n in range(2)]
    assert read_files("a/b", dict.fromkeys(shards[::-1], "")) == shards
