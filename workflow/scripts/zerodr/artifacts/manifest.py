"""Write and check folder artifacts: a folder whose `manifest.json` lists its files with sizes and SHA-256.

The digest of a folder artifact is the SHA-256 of its manifest. Files that differ in each run (Lucene writes the
time into `.si` files) are listed as volatile: their size is checked, their bytes do not enter the digest.
"""

import hashlib
import json
import logging
import os
import shutil
from fnmatch import fnmatch
from pathlib import Path

from zerodr.config.base import canonical_json
from zerodr.errors import ArtifactError

BLOCK = 1 << 22


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Compute the hex digest of the file's bytes, read in blocks of 4 MiB."""
    hasher = hashlib.new(algorithm)
    with open(path, "rb") as stream:
        while block := stream.read(BLOCK):
            hasher.update(block)
    return hasher.hexdigest()


def object_digest(value: object) -> str:
    """Compute the hex SHA-256 of a JSON value in canonical form."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


log = logging.getLogger("zerodr")
MANIFEST = "manifest.json"
LISTING = ".manifest.published.json"


def is_folder_artifact(path: Path) -> bool:
    """Test whether `path` names a folder artifact, which is declared by its manifest."""
    return Path(path).name == MANIFEST


def build_manifest(folder: Path, volatile: tuple[str, ...] = ()) -> dict:
    """List all files below `folder`: `{"files": [{"path", "bytes", "sha256"}]}`, sorted by path."""
    entries = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p not in (folder / MANIFEST, folder / LISTING)):
        name = path.relative_to(folder).as_posix()
        entry: dict = {"path": name, "bytes": path.stat().st_size}
        if any(fnmatch(name, pattern) for pattern in volatile):
            entry["volatile"] = True
        else:
            entry["sha256"] = file_digest(path)
        entries.append(entry)
    return {"files": entries}


def read_listing(manifest: Path) -> list[dict]:
    """Read the entries of a manifest; one that is cut short is an ArtifactError."""
    try:
        return list(json.loads(manifest.read_text(encoding="utf-8"))["files"])
    except (ValueError, KeyError, TypeError) as error:
        again = f"delete {manifest} and run the target again"
        raise ArtifactError(manifest, "is damaged: it lists no files", again) from error


def seal_folder(folder: Path, volatile: tuple[str, ...] = ()) -> Path:
    """Write the manifest of a finished folder into it, with a hidden copy; return the manifest's path.

    Who may read the folder may read all of it: safetensors writes files that are their owner's alone.
    """
    text = json.dumps(build_manifest(folder, volatile), indent=1) + "\n"
    for name in (LISTING, MANIFEST):
        (folder / name).write_text(text, encoding="utf-8")
    for path in folder.rglob("*.safetensors"):
        if path.stat().st_nlink == 1:  # a link's other name may be a file of the user's
            path.chmod((folder / MANIFEST).stat().st_mode)
    return folder / MANIFEST


def move_folder(folder: Path, manifest: Path) -> None:
    """Move the files of the sealed folder `folder` to the folder of `manifest`, the manifest itself last.

    Files of a previous version are removed first; files that belong to another artifact stay. The hidden copy of the
    listing outlives the manifest, which Snakemake deletes before it runs a stage again.
    """
    target = manifest.parent
    target.mkdir(parents=True, exist_ok=True)
    manifest.unlink(missing_ok=True)
    _remove_listed(target)
    (folder / LISTING).replace(target / LISTING)
    for entry in read_listing(folder / MANIFEST):
        (target / entry["path"]).parent.mkdir(parents=True, exist_ok=True)
        (folder / entry["path"]).replace(target / entry["path"])
    (folder / MANIFEST).replace(manifest)
    shutil.rmtree(folder)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name; copy it where the file system allows no link, or lies elsewhere."""
    try:
        os.link(source, target)
    except OSError:
        log.info("no hard link from %s to %s; copying", source, target)
        shutil.copyfile(source, target)


def put_back(manifest: Path) -> None:
    """Restore a deleted manifest from its hidden copy, if all files that it lists exist with the same bytes."""
    listing = manifest.parent / LISTING
    if listing.exists() and not manifest.exists() and not check_manifest(listing, digests=True):
        making = manifest.with_name(f".{MANIFEST}.making")
        shutil.copyfile(listing, making)
        making.replace(manifest)


def _remove_listed(target: Path) -> None:
    """Remove the files of the previous version in `target`, and folders that this leaves empty."""
    try:
        entries = read_listing(target / LISTING)
    except (FileNotFoundError, ArtifactError):  # a loss of power cut it: what it listed is not known
        return
    for entry in entries:
        path = target / entry["path"]
        path.unlink(missing_ok=True)
        for parent in list(Path(entry["path"]).parents)[:-1]:
            folder = target / parent
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def check_manifest(manifest: Path, digests: bool = False) -> list[str]:
    """List the problems of a folder artifact: wrong sizes, and with `digests` also wrong SHA-256."""
    if not manifest.exists():
        return [f"{manifest} is missing"]
    try:
        entries = read_listing(manifest)
    except ArtifactError as error:
        return [f"{manifest} {error.what}"]
    problems = []
    for entry in entries:
        path = manifest.parent / entry["path"]
        if not path.exists():
            problems.append(f"{path} is missing")
        elif path.stat().st_size != entry["bytes"]:
            problems.append(f"{path} has {path.stat().st_size} bytes, its manifest records {entry['bytes']}")
        elif digests and "sha256" in entry and file_digest(path) != entry["sha256"]:
            problems.append(f"{path} has other content than its manifest records (sha256 differs)")
    return problems


def digest_of(manifest: Path, name: str) -> str:
    """Return the SHA-256 of file `name` of a folder artifact, as its manifest records it.

    Raises:
        ArtifactError: the manifest names no such file, or is damaged.
    """
    for entry in read_listing(manifest):
        if entry["path"] == name and "sha256" in entry:
            return str(entry["sha256"])
    raise ArtifactError(manifest, f"names no file {name} with a digest", f"delete {manifest} and run the target again")


def require_whole(manifest: Path) -> Path:
    """Check the sizes of a folder artifact, and return its folder."""
    problems = check_manifest(manifest)
    if problems:
        raise ArtifactError(manifest.parent, "; ".join(problems), f"delete {manifest} and run the target again")
    return manifest.parent
