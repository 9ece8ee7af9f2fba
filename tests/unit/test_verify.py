"""Damage of real artifacts is found, and found above."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_bench import ARCHIVE, COLLECTION, MODEL, TABLE, make_bench, make_collection

from zerodr.lineage.graph import Graph
from zerodr.lineage.verify import verify
from zerodr.plan import paths

RUN = paths.run("dense", "toy", "standard")
WEIGHTS = Path(MODEL).parent / "model.safetensors"


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_bench(tmp_path)


def problems(*artifacts: str) -> dict[str, str]:
    return {finding.artifact: finding.problem for finding in verify(Graph(), artifacts)}


def test_an_untouched_bench_is_whole(plan):
    assert problems(*Graph().artifacts()) == {}


def test_changed_bytes_of_the_same_size_and_time_are_found(plan):
    times = os.stat(RUN)
    content = Path(RUN).read_bytes()
    Path(RUN).write_bytes(content[:-1] + b"?")
    os.utime(RUN, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = problems(RUN)
    assert "sha256" in found[RUN]


def test_damage_far_above_is_found_from_the_table(plan):
    WEIGHTS.write_bytes(b"\0" * WEIGHTS.stat().st_size)
    found = problems(TABLE)
    assert list(found) == [MODEL]
    assert "model.safetensors" in found[MODEL]
    assert problems(paths.run("bm25-flat", "toy", "standard")) == {}


def test_another_size_and_a_missing_file_are_told(plan):
    Path(RUN).write_text("short")
    Path(ARCHIVE).unlink()
    found = problems(RUN)
    assert "has 5 bytes" in found[RUN]
    assert found[ARCHIVE] == "is missing"


def test_a_stale_input_is_told_with_both_digests(plan):
    make_collection(plan, "another archive")
    found = problems(RUN)
    assert f"was built from {COLLECTION}" in found[RUN]
    assert COLLECTION not in found


def test_a_changed_own_file_is_told(plan, tmp_path):
    from tiny_bench import concatenate, run_stage

    Path("own.txt").write_text("one")
    made = {"run": paths.run("dense", "other", "standard")}
    run_stage(
        plan,
        "merge_run",
        {"hits": ["own.txt"]},
        made,
        concatenate,
        model="dense",
        collection="other",
        protocol="standard",
    )
    assert problems(made["run"]) == {}
    Path("own.txt").write_text("two")
    assert "was built from own.txt" in problems(made["run"])[made["run"]]
    Path("own.txt").unlink()
    assert "no stage writes it" in problems(made["run"])["own.txt"]
