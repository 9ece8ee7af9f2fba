"""Results that were copied to another checkout: records decide what is planned, not times nor what Snakemake remembers.

A small tree is really run (archive, collection, index, run, evaluation), then copied without `.snakemake/`, over
results of other settings, and without its times.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.dag.conftest import clone
from tests.dag.test_dry_runs import job_counts
from tests.dag.test_mirrors import ROW
from tests.forked import shipped_planners

METHOD = "bm25-flat+bm25s"
TARGET = f"results/evaluation/{METHOD}/notes/standard.summary.tsv"
RUN = ("--profile", "config/profiles/mini", TARGET)
COPIED = ("results", "resources/archives")
TEXTS = {
    "corpus.jsonl": '{"_id": "d", "title": "", "text": "which words are here"}\n',
    "queries.jsonl": '{"_id": "q", "text": "which"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\td\t1\n",
}
STALE = {"search_bm25": 1, "evaluate_run": 1}
Plans = Callable[[Path], dict[str, int]]


def make_checkout(root: Path, folder: Path) -> Path:
    """A clone with a collection of one document in a mirror folder."""
    clone(root, folder)
    (folder / "config/collections/notes.yaml").write_text(json.dumps({"collections": {"notes": ROW}}))
    (folder / "resources/mirror").mkdir()
    with zipfile.ZipFile(folder / "resources/mirror/notes.zip", "w") as archive:
        for name, text in TEXTS.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # the same bytes at any time
    return folder


def set_k1(folder: Path, value: float) -> None:
    recipe = folder / "config/methods/bm25-flat.yaml"
    recipe.write_text(re.sub("k1: [0-9.]+\n", f"k1: {value}\n", recipe.read_text()))


def copy_results(source: Path, target: Path) -> None:
    """`cp -r`: times are those of the copy, of inputs later than of what was made from them."""
    for part in COPIED:
        shutil.copytree(source / part, target / part, copy_function=shutil.copyfile, dirs_exist_ok=True)
    files = [path for part in COPIED for path in (source / part).rglob("*") if path.is_file()]
    for number, path in enumerate(sorted(files, key=lambda path: -path.stat().st_mtime_ns)):
        os.utime(target / path.relative_to(source), ns=(10**18 + number * 10**9,) * 2)


@pytest.fixture(scope="module")
def finished(root, tmp_path_factory, snakemake) -> Path:
    """A checkout with a finished evaluation, at k1 0.9."""
    folder = make_checkout(root, tmp_path_factory.mktemp("cluster") / "a")
    done = snakemake(*RUN, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def plans(snakemake) -> Plans:
    """Jobs by rule of `snakemake -n` and of `zerodr plan`, which agree."""

    def plans(folder: Path) -> dict[str, int]:
        done = snakemake("-n", *RUN, cwd=folder)
        assert done.returncode == 0, done.stderr[-2000:]
        text = done.stdout + done.stderr
        counts = {} if "Nothing to be done" in text else job_counts(text)
        counts.pop("total", None)
        done = shipped_planners().run("zerodr", "plan", TARGET, cwd=folder, env=os.environ)
        assert done.returncode == 0, done.stderr
        listed = re.findall(r"^  (\w+) +(\d+) +\d+ MiB", done.stdout, re.M)
        assert {rule: int(count) for rule, count in listed} == counts
        assert counts or "nothing to be done" in done.stdout
        return counts

    return plans


def test_results_without_what_snakemake_remembers(root, tmp_path, finished, plans):
    copy = make_checkout(root, tmp_path / "copy")
    copy_results(finished, copy)
    assert plans(copy) == {}, "times decide nothing"
    set_k1(copy, 1.2)
    assert plans(copy) == STALE, "the old number is not shown under the new settings"
    set_k1(copy, 0.9)
    assert plans(copy) == {}


def test_results_over_those_of_a_run_with_other_settings(root, tmp_path, finished, plans, snakemake):
    other = make_checkout(root, tmp_path / "other")
    set_k1(other, 1.2)
    assert snakemake(*RUN, cwd=other).returncode == 0
    copy_results(finished, other)
    assert plans(other) == STALE, "Snakemake remembers this k1 of these paths, but the files are of another"
    set_k1(other, 0.9)
    assert plans(other) == {}, "Snakemake remembers another k1 of these paths, but the files are of this one"


def test_one_artifact_among_others(root, tmp_path, finished, plans, snakemake):
    other = make_checkout(root, tmp_path / "other")
    set_k1(other, 1.2)
    assert snakemake(*RUN, cwd=other).returncode == 0
    for path in (other / "results/runs").rglob("standard.*"):
        shutil.copy2(finished / path.relative_to(other), path)  # an older run below a newer evaluation
    set_k1(other, 0.9)
    assert plans(other) == {"evaluate_run": 1}, "a run that the evaluation did not read"


def test_a_copy_without_what_lies_between(root, tmp_path, finished, plans):
    """Runs are left out, as models are: what they were made with is known by the specs of their jobs."""
    copy = make_checkout(root, tmp_path / "copy")
    copy_results(finished, copy)
    shutil.rmtree(copy / "results/runs")
    assert plans(copy) == {}, "the evaluation is of these settings"
    set_k1(copy, 1.2)
    assert plans(copy) == STALE, "a number of other settings is not shown as one of these"
    shutil.rmtree(copy / "results/bm25")
    assert plans(copy) == {"index_bm25": 1, **STALE}


def test_a_table_tells_of_what_it_cannot_check(root, tmp_path, finished, snakemake):
    copy = make_checkout(root, tmp_path / "copy")
    for part in COPIED:  # as rsync copies, with times
        shutil.copytree(finished / part, copy / part, dirs_exist_ok=True)
    row = f"results/beir/{METHOD}.md"
    words = ("--profile", "config/profiles/mini", row, "--config", "collections=notes")
    assert snakemake(*words, cwd=copy).returncode == 0
    assert "made from what is not here" not in (copy / row).read_text()
    for folder in ("results/runs", "results/.state"):
        shutil.rmtree(copy / folder)
    (copy / row).unlink()
    assert snakemake(*words, cwd=copy).returncode == 0
    assert f"may be others than these: results/runs/{METHOD}" in (copy / row).read_text()
    (copy / row).unlink()
    summary = (copy / TARGET).read_text()
    (copy / TARGET).write_text(summary.replace("ndcg_cut_10\t1.0", "ndcg_cut_10\t0.9"))
    assert (copy / TARGET).read_text() != summary
    done = snakemake(*words, cwd=copy)
    assert done.returncode != 0 and not (copy / row).exists()
    assert f"{TARGET}: has other content than its record holds" in done.stderr
