"""Snakemake is told the settings and inputs that a record holds."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_bench import COLLECTION, TABLE, make_bench, make_collection

from zerodr.artifacts.record import read_record, record_path
from zerodr.lineage.graph import Graph
from zerodr.operations import trust
from zerodr.operations.trust import replaced_inputs, settings_of, trust_records
from zerodr.plan import paths

HITS = paths.shard_hits("dense", "toy", "standard", "shard-00000-of-00002")
QUERIES = paths.embeddings("dense", "shared", "toy", "standard", "queries.test")


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_bench(tmp_path)


@pytest.fixture
def snakemake(monkeypatch):
    """Snakemake's classes, which are as they were after a test."""
    from snakemake.io import _IOFile
    from snakemake.persistence import PersistenceBase

    for where, name in (
        (PersistenceBase, "metadata"),
        (PersistenceBase, "_input_changed"),
        (_IOFile, "checksum"),
        (_IOFile, "is_checksum_eligible"),
    ):
        monkeypatch.setattr(where, name, getattr(where, name))
    trust_records()
    return SimpleNamespace(IOFile=_IOFile)


def test_records_have_the_settings_of_the_plan(plan):
    for artifact in Graph().artifacts():
        record = read_record(artifact)
        assert settings_of(record) == plan.settings(record["rule"])(SimpleNamespace(**record["wildcards"]))


def test_an_input_that_was_written_anew_is_found_whatever_its_time(plan):
    assert list(replaced_inputs(HITS, read_record)) == []
    make_collection(plan, "another archive")
    os.utime(COLLECTION, ns=(0, 0))
    assert list(replaced_inputs(HITS, read_record)) == [COLLECTION]
    Path(COLLECTION).unlink()
    assert list(replaced_inputs(HITS, read_record)) == [], "removed after its use, as temporary ones are"
    assert list(replaced_inputs("config/config.yaml", read_record)) == []


@pytest.mark.parametrize("large", [False, True])
def test_a_foreign_input_that_an_older_one_replaced_is_found(plan, monkeypatch, large):
    monkeypatch.setattr(trust, "READ_BYTES", 0 if large else 1 << 26)
    made = os.stat(COLLECTION)
    record_path(COLLECTION).unlink()
    assert list(replaced_inputs(HITS, read_record)) == []
    other = Path(COLLECTION).read_bytes()[:-1] + b" "
    Path(COLLECTION).write_bytes(other)
    os.utime(COLLECTION, ns=(0, made.st_mtime_ns - 10**15))
    if large:  # the record is from before, as a job's is
        os.utime(record_path(HITS), ns=(0, made.st_mtime_ns))
    assert list(replaced_inputs(HITS, read_record)) == [COLLECTION]


def test_a_large_foreign_input_whose_folder_was_renamed_is_found(plan, monkeypatch):
    record_path(COLLECTION).unlink()
    folder = Path(COLLECTION).parent
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    (other / Path(COLLECTION).name).write_bytes(Path(COLLECTION).read_bytes()[:-1] + b" ")
    time.sleep(0.05)
    os.utime(record_path(HITS))
    monkeypatch.setattr(trust, "READ_BYTES", 0)
    time.sleep(0.05)
    folder.rename(folder.with_name("earlier"))
    other.rename(folder)
    assert list(replaced_inputs(HITS, read_record)) == [COLLECTION]


def test_a_large_foreign_input_that_changed_while_its_job_ran_is_found(plan, monkeypatch):
    record_path(COLLECTION).unlink()
    record = read_record(HITS) | {"seconds": 3600.0}
    Path(COLLECTION).write_bytes(Path(COLLECTION).read_bytes()[:-1] + b" ")
    os.utime(record_path(HITS), (time.time() + 60,) * 2)  # the job ends
    monkeypatch.setattr(trust, "READ_BYTES", 0)
    assert list(replaced_inputs(HITS, {HITS: record}.get)) == [COLLECTION]


def test_another_version_of_a_models_package_is_found(plan, monkeypatch):
    record = read_record(HITS)
    origin = {"query": {"packages": {"a-model": "0.1.0"}}, "document": {"packages": {"another": "1"}}}
    monkeypatch.setattr(trust, "version", {"a-model": "0.2.0", "another": "1"}.__getitem__)
    trust._version.cache_clear()
    changed = record | {"notes": record["notes"] | {"origin": origin}}
    assert list(replaced_inputs(HITS, lambda path: changed if path == HITS else read_record(path))) == ["a-model"]
    trust._version.cache_clear()


def test_a_large_foreign_input_is_not_read_for_each_plan(plan, monkeypatch):
    record_path(COLLECTION).unlink()
    os.utime(record_path(HITS), (time.time() + 60,) * 2)
    monkeypatch.setattr(trust, "READ_BYTES", 0)
    monkeypatch.setattr(trust, "file_digest", lambda path: pytest.fail(f"reads {path}"))
    assert list(replaced_inputs(HITS, read_record)) == []


def test_a_file_of_a_copy_is_read_once(plan, snakemake):
    made = os.stat(TABLE).st_mtime_ns
    os.utime(TABLE, ns=(made + 10**9,) * 2)
    file = snakemake.IOFile(TABLE, rule=None)
    file.rule = SimpleNamespace(workflow=SimpleNamespace(iocache=SimpleNamespace(active=False)))
    digest = f"sha256:{read_record(TABLE)['digest']}"
    assert asyncio.run(file.checksum(0)) == digest
    assert os.stat(TABLE).st_mtime_ns == made
    content = Path(TABLE).read_bytes()
    Path(TABLE).write_bytes(content[::-1])
    os.utime(TABLE, ns=(made, made))
    assert asyncio.run(file.checksum(0)) == digest, "its size and time are those of its record"
    Path(TABLE).write_bytes(content[::-1])
    assert asyncio.run(file.checksum(0)) != digest
    assert os.stat(TABLE).st_mtime_ns != made, "other content keeps its time"


def test_a_damaged_record_is_none(plan, snakemake):
    record_path(TABLE).write_text("{ damaged")
    from snakemake.persistence import PersistenceBase

    memory = SimpleNamespace(_get_key=str, _read_record=lambda key: None)
    assert PersistenceBase.metadata(memory, TABLE) is None
    assert PersistenceBase.metadata(memory, HITS).input == sorted(e["path"] for e in read_record(HITS)["inputs"])
