"""Read and write lineage records: a small JSON file next to each artifact that describes its origin.

For `x.npy` the record is `x.npy.lineage.json`; for the folder artifact `d/manifest.json` it is `d/lineage.json`.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zerodr.artifacts.machine import is_refusal
from zerodr.artifacts.manifest import check_manifest, file_digest, is_folder_artifact, require_whole
from zerodr.errors import ArtifactError, CollectionError, ModelError, ProtocolError, ZerodrError

STATE = Path("results/.state")  # of jobs, for resuming: Snakemake deletes the outputs of a job that fails
Record = dict[str, Any]
ABOUT_CONTENT = (ArtifactError, CollectionError, ModelError, ProtocolError)  # what damage can look like


def record_path(artifact: Path | str) -> Path:
    """Return the path of the record of `artifact` (a file, a manifest, or the folder of one)."""
    path = Path(artifact)
    if path.is_dir():
        path = path / "manifest.json"
    if is_folder_artifact(path):
        return path.parent / "lineage.json"
    return path.with_name(path.name + ".lineage.json")


def read_record(artifact: Path | str) -> Record | None:
    """Read the record of `artifact`; None when it has none."""
    path = record_path(artifact)
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # cut within a letter it is no text either
        raise ArtifactError(path, f"is no JSON ({error})", "delete it and run the target again") from error


def write_json(path: Path, value: Any) -> None:
    """Write JSON in one step: temporary file in the same folder, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_state(path: Path) -> Any:
    """Read JSON of an earlier attempt; None where there is none, or where a loss of power left no whole file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # cut within a letter it is no text either
        return None


def artifact_digest(artifact: Path | str) -> str:
    """Return the SHA-256 of an artifact: of the file, or of the manifest after a check of its files' sizes.

    The record supplies a file's digest while size and modification time are those that it holds.
    """
    path = Path(artifact)
    if path.is_dir():
        path = path / "manifest.json"
    if not path.exists():
        raise ArtifactError(path, "is missing", "run its target again")
    if is_folder_artifact(path):
        require_whole(path)
        return file_digest(path)
    record, stat = read_record(path), path.stat()
    if record and (record["bytes"], record["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns):
        return record["digest"]
    return file_digest(path)


def input_digest(artifact: Path | str) -> str:
    """Return the SHA-256 of an artifact that a job reads.

    Raises:
        ArtifactError: it is missing, or was changed since it was made.
    """
    digest, record = artifact_digest(artifact), read_record(artifact)
    if record and record["digest"] != digest:
        problem = f"has other content than its record holds (sha256 {digest[:12]}, recorded {record['digest'][:12]})"
        raise ArtifactError(artifact, problem, f"delete {artifact} and run the target again")
    return digest


class BlameInputs:
    """A context that compares all bytes of the inputs after an error that their content may have caused.

    Args:
        inputs: paths of artifacts.

    Raises:
        ArtifactError: at the end: an input is damaged.
    """

    def __init__(self, inputs: Iterable[str]) -> None:
        self.inputs = inputs

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        clear = isinstance(error, ZerodrError) and not isinstance(error, ABOUT_CONTENT)
        if not isinstance(error, Exception) or clear or is_refusal(error):
            return
        for path in self.inputs:
            if problems := find_damage(Path(path)):
                step = f"delete {path} and run the target again"
                problem = "; ".join(one.removeprefix(f"{path} ") for one in problems[:3])
                raise ArtifactError(path, problem, step) from error


def find_damage(artifact: Path) -> list[str]:
    """List the bytes of an artifact that are not those that its manifest or its record holds; reads all of them."""
    if is_folder_artifact(artifact):
        return check_manifest(artifact, digests=True)
    record = read_record(artifact)
    if record is None or record["digest"] == file_digest(artifact):
        return []
    return [f"{artifact} has other content than its record holds (sha256 differs)"]


def require_undamaged(artifacts: Iterable[Path]) -> None:
    """Compare the bytes of small artifacts with their records.

    Raises:
        ArtifactError: one was changed since it was made.
    """
    for path in artifacts:
        if problems := find_damage(path):
            raise ArtifactError(path, problems[0].removeprefix(f"{path} "), f"delete {path} and run the target again")
