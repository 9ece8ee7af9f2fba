"""The main job on a real collection: numbers, lineage, second run, targeted reruns; then a chain of two episodes.

Both are in one file, so that the processes of a test run make the bench once.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.dag.conftest import clone
from tests.e2e.conftest import configure, snakemake_in

PUBLISHED = {"bm25-flat": (0.3218, 0.0005), "bm25-multifield": (0.3254, 0.0005)}
INDEPENDENT = {"brief": (0.2439, 0.001)}  # sentence-transformers with as many tokens, and pytrec_eval, without zerodr
MINILM = "results/evaluation/all-minilm-l6-v2/nfcorpus/standard.summary.tsv"
ROW, EXPORT = "results/beir/t5-ance.tsv", "results/exported/t5-ance/shared/manifest.json"


def zerodr(folder: Path, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "zerodr", *words]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder / "workflow/scripts")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)


def table_of(folder: Path) -> pd.DataFrame:
    return pd.read_table(folder / "results/beir/nfcorpus.tsv").set_index("model")


def test_the_table_holds_the_published_numbers(bench):
    table = table_of(bench)
    for method, (number, tolerance) in (PUBLISHED | INDEPENDENT).items():
        assert table.loc[method, "nfcorpus"] == pytest.approx(number, abs=tolerance + 5e-5)
    assert table.loc["hybrid-brief", "nfcorpus"] > table.loc["brief", "nfcorpus"]


@pytest.mark.slow
def test_all_that_minilm_reads_gives_the_published_number(bench):
    done = snakemake_in(bench)(MINILM)
    assert done.returncode == 0, done.stderr[-3000:]
    values = pd.read_table(bench / MINILM).set_index("metric")["value"]
    assert values["ndcg_cut_10"] == pytest.approx(0.3159, abs=0.001 + 5e-5)


def test_a_second_run_has_nothing_to_do(bench):
    done = snakemake_in(bench)("all")
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_renamed_module_has_nothing_to_do(bench):
    library = bench / "workflow/scripts/zerodr"
    before = {path: path.read_text() for path in library.rglob("*.py")}
    (library / "retrieval/embed.py").rename(library / "retrieval/vectorize.py")
    named = {path: re.sub("retrieval.embed(?=[: ])", "retrieval.vectorize", text) for path, text in before.items()}
    changed = [path for path, text in before.items() if named[path] != text]  # others stay compiled
    for path in changed:
        path.write_text(named[path])
    try:
        done = snakemake_in(bench)("all")
        assert done.returncode == 0 and "Nothing to be done" in done.stdout + done.stderr
        (queries,) = bench.glob("results/embeddings/brief/shared/nfcorpus/*/queries.*.npy")
        redone = snakemake_in(bench)("--forcerun", "embed_queries", "--", str(queries.relative_to(bench)))
        assert redone.returncode == 0 and "] embed_queries brief" in redone.stderr
    finally:
        (library / "retrieval/vectorize.py").rename(library / "retrieval/embed.py")
        for path in changed:
            path.write_text(before[path])


def test_every_artifact_verifies(bench):
    done = zerodr(bench, "verify", "--all")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_damaged_artifact_is_named(bench):
    path = next(bench.glob("results/embeddings/*/shared/nfcorpus/*/corpus-*.npy"))
    original, times = path.read_bytes(), path.stat()
    path.write_bytes(original[:-4] + b"abcd")
    try:
        done = zerodr(bench, "verify", str(path.relative_to(bench)))
        assert done.returncode == 1
        assert path.name in done.stdout + done.stderr
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_changed_setting_reruns_what_depends_on_it_and_no_more(bench):
    done = snakemake_in(bench)("all", "-n", "--config", "bootstrap_samples=500")
    planned = done.stdout + done.stderr
    for rule in ("evaluate_run", "build_table", "compare_runs"):
        assert f"rule {rule}:" in planned
    for rule in ("embed_corpus", "search_bm25", "merge_run", "normalize_collection"):
        assert f"rule {rule}:" not in planned and f"localrule {rule}:" not in planned


def test_a_stage_runs_by_hand_from_its_spec_and_repeats_its_digest(bench):
    run = bench / "results/runs/bm25-flat/nfcorpus/standard.trec.gz"
    record = json.loads((run.parent / (run.name + ".lineage.json")).read_text())
    spec = bench / "results/.state" / record["spec_digest"][:16] / "spec.json"
    original, times = run.read_bytes(), run.stat()
    run.unlink()
    command = [sys.executable, "-m", "zerodr.run", str(spec.relative_to(bench))]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(bench / "workflow/scripts")}
    done = subprocess.run(command, cwd=bench, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert run.read_bytes() == original
    os.utime(run, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_own_corpus_by_one_option(bench, tmp_path):
    """`--config byo=FOLDER`: own documents, queries and judgements join the table."""
    own = tmp_path / "my-notes"
    (own / "qrels").mkdir(parents=True)
    words = ["apple pie recipe", "engine oil change", "quantum field theory", "tax return form"]
    rows = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(words)]
    (own / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (own / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "how to bake an apple pie"}) + "\n")
    (own / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td0\t1\n")
    done = snakemake_in(bench)("results/runs/bm25-flat/my-notes/standard.trec.gz", "--config", f"byo={own}")
    assert done.returncode == 0, done.stderr[-3000:]
    run = pd.read_csv(bench / "results/runs/bm25-flat/my-notes/standard.trec.gz", sep=" ", header=None)
    assert list(run[2]) == ["d0"]


def test_two_runs_at_once_are_refused_in_one_sentence(root, mirror, tmp_path):
    folder = clone(root, tmp_path / "twice")
    configure(folder, mirror, collections=["nfcorpus"])
    lock = folder / "results/.state/run.lock"
    lock.parent.mkdir(parents=True)
    with open(lock, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = snakemake_in(folder)("results/collections/nfcorpus/manifest.json")
    assert done.returncode == 1
    assert "another snakemake is running in this folder" in done.stderr
    assert not (folder / "resources/archives").exists()


def test_a_users_mistake_ends_as_one_sentence_without_a_traceback(root, mirror, tmp_path):
    folder = clone(root, tmp_path / "mistake")
    broken = tmp_path / "mirror"
    broken.mkdir()
    (broken / "scifact.zip").write_bytes((mirror / "scifact.zip").read_bytes()[:100_000])
    configure(folder, broken, collections=["scifact"])
    done = snakemake_in(folder)("results/collections/scifact/manifest.json", "--retries", "0")
    assert done.returncode == 1
    assert "Errors of this run:" in done.stderr
    last = done.stderr[done.stderr.index("Errors of this run:") :]
    assert "scifact.zip" in last and "DownloadError" in last
    assert "Traceback" not in done.stderr
    assert not (folder / "resources/archives/scifact.zip").exists()


def test_a_read_only_results_folder_is_said(root, mirror, tmp_path):
    folder = clone(root, tmp_path / "readonly")
    configure(folder, mirror, collections=["nfcorpus"])
    results = folder / "results"
    results.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(results)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    try:
        start = time.time()
        done = snakemake_in(folder)("results/collections/nfcorpus/manifest.json")
        assert time.time() - start < 60
        assert done.returncode == 1
        assert "can't be written" in done.stderr and "results" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        subprocess.run(["umount", str(results)], check=True)


def test_own_corpus_without_judgements_is_ranked_and_the_table_says_that_it_is_not_evaluated(bench, tmp_path):
    own = tmp_path / "unlabelled"
    own.mkdir()
    (own / "corpus.jsonl").write_text(json.dumps({"_id": "d1", "title": "", "text": "apple pie recipe"}) + "\n")
    (own / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "apple pie"}) + "\n")
    run = "results/runs/bm25-flat/unlabelled/standard.trec.gz"
    done = snakemake_in(bench)(run, "--config", f"byo={own}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(pd.read_csv(bench / run, sep=" ", header=None)[2]) == ["d1"]
    planned = snakemake_in(bench)("results/beir/bm25-flat.tsv", "-n", "-p", "--config", f"byo={own}")
    assert planned.returncode == 0


# ---- a chain of two trained episodes: made, evaluated, exported, repeated ---------------------------------------
@pytest.fixture(scope="module")
def trained(bench: Path) -> Path:
    done = snakemake_in(bench)(ROW, EXPORT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return bench


def test_the_row_is_there(trained):
    row = pd.read_csv(trained / ROW, sep="\t", comment="#").set_index("model")
    assert 0 < row.loc["t5-ance", "nfcorpus"] < 0.3


def test_each_episode_learned_from_its_own_negatives(trained):
    first, second = (pq.read_table(trained / f"results/mined/t5-ance/shared/{e}/mined.parquet") for e in ("ep0", "ep1"))
    assert {"query", "positives", "negatives", "negative_ranks"} <= set(first.column_names)
    told = json.loads((trained / "results/mined/t5-ance/shared/ep1/statistics.json").read_text())
    assert told["queries"]["mined"] == len(second) and 0 <= told["previous"]["share"] < 1
    loss = {e: curve(trained, f"results/models/t5-ance/shared/{e}", "loss") for e in ("ep0", "ep1")}
    assert np.mean(loss["ep0"][-10:]) < np.mean(loss["ep0"][:10])


def test_the_export_is_the_model(trained):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(trained / "results/exported/t5-ance/shared"), device="cpu")
    queries = pd.read_parquet(trained / "results/collections/nfcorpus/queries.parquet").set_index("id")["text"]
    judged = set(pd.read_csv(trained / "results/collections/nfcorpus/qrels.test.tsv", sep="\t", dtype=str).iloc[:, 0])
    ours = np.load(trained / "results/embeddings/t5-ance@ep1/shared/nfcorpus/standard/queries.test.npy")
    theirs = model.encode_query([queries[q] for q in queries.index if q in judged])
    cosine = (ours * theirs).sum(1) / (np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1))
    assert len(ours) == len(theirs) and cosine.min() > 0.99999


def test_lineage_goes_through_both_episodes(trained):
    done = zerodr(trained, "lineage", ROW)
    assert done.returncode == 0, done.stderr
    for name in ("t5-ance/shared/ep1", "t5-ance/shared/ep0", "t5-ance/shared/init", "nfcorpus.zip", "candidates"):
        assert name in done.stdout


def test_a_second_run_trains_nothing(trained):
    done = snakemake_in(trained)(ROW, EXPORT, "-n")
    assert "Nothing to be done" in done.stdout + done.stderr


def curve(root: Path, folder: str, name: str) -> list[float]:
    """Points of a training curve in a record."""
    metrics = json.loads((root / folder / "lineage.json").read_text())["metrics"]
    return [metric["value"] for metric in metrics if metric["name"] == name]
