"""Folder artifacts: what a manifest lists, what a check finds, publication over an earlier version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from folder_helpers import publish_folder
from hypothesis import given, settings
from hypothesis import strategies as st

from zerodr.artifacts.manifest import (
    LISTING,
    MANIFEST,
    build_manifest,
    check_manifest,
    file_digest,
    is_folder_artifact,
    object_digest,
    require_whole,
    seal_folder,
)
from zerodr.errors import ArtifactError

NAMES = st.sampled_from(["a", "b.txt", "deep/a", "deep/er/c", "é", ".hidden"])


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def published(folder: Path, files: dict[str, bytes], volatile: tuple[str, ...] = ()) -> Path:
    made = fill(folder.with_name(f".{folder.name}.making"), files)
    publish_folder(made, folder / "manifest.json", volatile)
    assert not made.exists()
    return folder / "manifest.json"


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, st.binary(max_size=20)), st.dictionaries(NAMES, st.binary(max_size=20)))
def test_a_folder_holds_its_last_version_and_nothing_else(tmp_path_factory, first, second):
    folder = tmp_path_factory.mktemp("x") / "artifact"
    for files in (first, second):
        manifest = published(folder, files)
        listed = {entry["path"]: entry for entry in json.loads(manifest.read_text())["files"]}
        assert sorted(listed) == sorted(files)
        assert all(listed[name]["bytes"] == len(content) for name, content in files.items())
        assert check_manifest(manifest, digests=True) == []
        stands = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        assert {name: stands[name] for name in stands if "manifest" not in name} == files
        assert all(any(path.iterdir()) for path in folder.rglob("*") if path.is_dir())


def test_equal_folders_have_equal_manifests(tmp_path):
    files = {"b": b"1", "a/c": b"2"}
    one = published(tmp_path / "one", files)
    two = published(tmp_path / "two", dict(reversed(files.items())))
    assert one.read_bytes() == two.read_bytes()


def test_check_tells_each_problem(tmp_path):
    manifest = published(tmp_path / "x", {"gone": b"1", "short": b"123", "other": b"123", "same": b"1"})
    (tmp_path / "x/gone").unlink()
    (tmp_path / "x/short").write_bytes(b"12")
    (tmp_path / "x/other").write_bytes(b"124")
    sizes, digests = check_manifest(manifest), check_manifest(manifest, digests=True)
    assert [line.rsplit("/", 1)[1] for line in sizes] == [
        "gone is missing",
        "short has 2 bytes, its manifest records 3",
    ]
    assert [line.rsplit("/", 1)[1] for line in digests if line not in sizes] == [
        "other has other content than its manifest records (sha256 differs)"
    ]
    with pytest.raises(ArtifactError, match="gone is missing; .*: delete .* and run the target again"):
        require_whole(manifest)
    assert check_manifest(tmp_path / "none/manifest.json") == [f"{tmp_path}/none/manifest.json is missing"]


@pytest.mark.parametrize("content", [b"", b'{"files": [{"path": "mod', b"\xff", b"[]", b"{}"])
def test_a_manifest_that_is_cut_short_is_a_problem_and_no_crash(tmp_path, content):
    manifest = published(tmp_path / "x", {"a": b"1"})
    for name in (MANIFEST, LISTING):
        (tmp_path / "x" / name).write_bytes(content)
    assert check_manifest(manifest) == [f"{manifest} is damaged: it lists no files"]
    with pytest.raises(ArtifactError, match="is damaged.*: delete .* and run the target again"):
        require_whole(manifest)
    assert check_manifest(published(tmp_path / "x", {"a": b"2"})) == []


def test_whoever_reads_a_folder_reads_its_weights(tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    for name in ("model.safetensors", "linked.safetensors"):
        (folder / name).touch(0o600)  # as safetensors writes them
    (tmp_path / "mine.safetensors").hardlink_to(folder / "linked.safetensors")
    manifest = seal_folder(folder)
    modes = {path.name: path.stat().st_mode for path in folder.iterdir()}
    assert modes["model.safetensors"] == modes[manifest.name]
    assert modes["linked.safetensors"] & 0o777 == 0o600


def test_volatile_files_are_checked_by_size_only(tmp_path):
    manifest = published(tmp_path / "x", {"a.si": b"123", "b": b"1"}, ("*.si",))
    assert json.loads(manifest.read_text())["files"][0] == {"path": "a.si", "bytes": 3, "volatile": True}
    (tmp_path / "x/a.si").write_bytes(b"321")
    assert check_manifest(manifest, digests=True) == []
    (tmp_path / "x/a.si").write_bytes(b"3")
    assert len(check_manifest(manifest)) == 1


def test_the_manifest_comes_last(tmp_path, monkeypatch):
    """A kill between two renames leaves no manifest, and the next publication clears what was moved."""
    published(tmp_path / "x", {"a": b"1", "b": b"2"})
    made = fill(tmp_path / ".x.making", {"a": b"10", "c": b"3", "d": b"4"})
    moves = []
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        moves.append(Path(target).name)
        if len(moves) == 3:
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", replace)
        publish_folder(made, tmp_path / "x/manifest.json")
    assert "manifest.json" not in moves
    assert not (tmp_path / "x/manifest.json").exists()
    shutil.rmtree(made)  # as the runner does first
    published(tmp_path / "x", {"e": b"5"})
    assert sorted(p.name for p in (tmp_path / "x").iterdir() if not p.name.startswith(".")) == ["e", "manifest.json"]


def test_seal_names_the_digest_in_advance(tmp_path):
    made = fill(tmp_path / ".x.making", {"a": b"1"})
    digest = file_digest(seal_folder(made))
    manifest = published(tmp_path / "y", {"a": b"1"})
    assert file_digest(manifest) == digest
    assert build_manifest(fill(tmp_path / "z", {"a": b"1"})) == json.loads(manifest.read_text())


def test_digests():
    assert object_digest({"b": 1.0, "a": [1, None]}) == object_digest({"a": [1, None], "b": 1.0})
    assert object_digest({"a": 1.0}) != object_digest({"a": 1})
    assert is_folder_artifact(Path("x/manifest.json")) and not is_folder_artifact(Path("x/manifest.json.gz"))


def test_file_digest_reads_in_blocks(tmp_path, monkeypatch):
    import hashlib

    content = bytes(range(256)) * 50
    (tmp_path / "a").write_bytes(content)
    monkeypatch.setattr("zerodr.artifacts.manifest.BLOCK", 1000)
    assert file_digest(tmp_path / "a") == hashlib.sha256(content).hexdigest()
    assert file_digest(tmp_path / "a", "md5") == hashlib.md5(content).hexdigest()
