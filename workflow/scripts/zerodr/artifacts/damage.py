"""Find inputs whose bytes changed behind the back of their records, once a stage failed on them."""

from collections.abc import Iterable
from pathlib import Path

from zerodr.artifacts.digest import file_digest
from zerodr.artifacts.machine import is_refusal
from zerodr.artifacts.manifest import check_manifest, is_folder_artifact
from zerodr.artifacts.record import read_record
from zerodr.errors import ArtifactError, CollectionError, ModelError, ProtocolError, ZerodrError

ABOUT_CONTENT = (ArtifactError, CollectionError, ModelError, ProtocolError)  # what damage can look like


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
                raise ArtifactError(path, "; ".join(problems[:3]), step) from error


def find_damage(artifact: Path) -> list[str]:
    """List the bytes of an artifact that are not those that its manifest or its record holds; reads all of them."""
    if is_folder_artifact(artifact):
        return check_manifest(artifact, digests=True)
    record = read_record(artifact)
    if record is None or record["digest"] == file_digest(artifact):
        return []
    return [f"{artifact} has other content than its record holds (sha256 differs)"]
