"""Lineage records: where they stand, what they are trusted for, what is refused; provenance."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from folder_helpers import publish_folder

from zerodr.artifacts import provenance
from zerodr.artifacts.record import artifact_digest, read_record, record_path, write_json
from zerodr.errors import ArtifactError


def folder(path: Path) -> Path:
    made = path.with_name("making")
    made.mkdir()
    (made / "a").write_text("1")
    publish_folder(made, path / "manifest.json")
    return path


def test_where_records_stand(tmp_path):
    assert record_path("r/x.npy") == Path("r/x.npy.lineage.json")
    assert record_path("r/d/manifest.json") == Path("r/d/lineage.json")
    (tmp_path / "d").mkdir()
    assert record_path(tmp_path / "d") == tmp_path / "d/lineage.json"


def test_missing_and_broken_records(tmp_path):
    assert read_record(tmp_path / "x") is None
    record_path(tmp_path / "x").write_text('{"digest": ')
    with pytest.raises(ArtifactError, match=r"x\.lineage\.json: is no JSON .*: delete it and run the target again"):
        read_record(tmp_path / "x")


def test_json_is_written_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "deep/r.json"
    write_json(path, {"b": "é", "a": 1.0})
    assert path.read_text() == '{\n "a": 1.0,\n "b": "é"\n}\n'
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1.0, "b": "é"}
    assert [p.name for p in path.parent.iterdir()] == ["r.json"]


def test_digest_of_a_file_is_read_from_its_record_while_it_is_untouched(tmp_path):
    path = tmp_path / "x"
    path.write_text("abc")
    real = hashlib.sha256(b"abc").hexdigest()
    assert artifact_digest(path) == real
    stat = path.stat()
    write_json(record_path(path), {"digest": "kept", "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns})
    assert artifact_digest(path) == "kept"
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert artifact_digest(path) == real
    path.write_text("abcd")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert artifact_digest(path) == hashlib.sha256(b"abcd").hexdigest()


def test_digest_of_a_folder_is_its_manifests(tmp_path):
    path = folder(tmp_path / "d")
    expected = hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()
    assert artifact_digest(path) == artifact_digest(path / "manifest.json") == expected
    (path / "a").write_text("longer")
    with pytest.raises(ArtifactError, match="a has 6 bytes, its manifest records 1"):
        artifact_digest(path)


def test_digest_of_nothing(tmp_path):
    with pytest.raises(ArtifactError, match="x: is missing: run its target again"):
        artifact_digest(tmp_path / "x")


def test_a_repository_around_the_checkout_is_not_its_own(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *words], check=True)

    monkeypatch.setattr(provenance, "PROJECT", tmp_path / "unpacked")
    (tmp_path / "unpacked").mkdir()
    none = {"commit": None, "dirty_patch_sha256": None}
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.code.__wrapped__() == none | {"reason": "no git repository"}
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "thesis")
    assert provenance.code.__wrapped__() == none | {"reason": f"the repository {tmp_path} is not the checkout's own"}
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))  # as in a hook of the other repository
    assert "is not the checkout's own" in provenance.code.__wrapped__()["reason"]
    monkeypatch.setattr(provenance, "PROJECT", tmp_path)
    assert len(provenance.code.__wrapped__()["commit"]) == 40
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert "another owner" in provenance.code.__wrapped__()["reason"]


def test_what_git_lists_and_nobody_can_read_does_not_end_a_job(tmp_path, monkeypatch):
    """Emacs leaves a dangling link next to a file with unsaved changes."""

    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *words], check=True)

    monkeypatch.setattr(provenance, "PROJECT", tmp_path)
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/.#config.yaml").symlink_to("user@host.1234:5678")
    (tmp_path / "config/other").symlink_to(tmp_path)
    assert provenance.code.__wrapped__()["dirty_patch_sha256"]


def test_provenance_tells_code_environment_and_memory():
    code = provenance.code()
    assert set(code) == {"commit", "dirty_patch_sha256"} or code["commit"] is None and code["reason"]
    environment = provenance.environment()
    assert environment["versions"]["numpy"]
    assert environment["cores"] >= 1 and environment["processor"]
    json.dumps([code, environment])
    assert 1 < provenance.peak_memory_mib() < 1e6


def test_a_record_names_the_slurm_job_where_there_is_one(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert "slurm_job" not in provenance.environment.__wrapped__()
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu1")
    assert provenance.environment.__wrapped__()["slurm_job"] == "17 on gpu1"
