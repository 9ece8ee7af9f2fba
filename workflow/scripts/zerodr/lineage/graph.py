"""The lineage graph on disk: records joined by the paths and digests of their inputs.

Paths are relative to the checkout's root, as records hold them; every command runs there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zerodr.artifacts.digest import file_digest
from zerodr.artifacts.manifest import MANIFEST, is_folder_artifact
from zerodr.artifacts.record import Record, artifact_digest, read_record
from zerodr.errors import ArtifactError, nearest

PLACES = ("resources", "results")
PASSED_OVER = {"results/lineage/artifacts", "results/logs", "results/benchmarks"}
SUFFIX = ".lineage.json"
HEX = set("0123456789abcdef")


@dataclass(frozen=True)
class Edge:
    """One input of one artifact.

    Attributes:
        name: the input's name in its rule.
        source: path of the artifact that was used.
        user: path of the artifact that used it.
        recorded: digest of the source when it was used.
        current: digest of the source now; None when it is gone or damaged.
    """

    name: str
    source: str
    user: str
    recorded: str
    current: str | None

    @property
    def stale(self) -> bool:
        """True when the source is not what was used."""
        return self.recorded != self.current


class Graph:
    """All records of the checkout in the working directory. Files are read once."""

    def __init__(self) -> None:
        self._records: dict[str, Record | None] = {}
        self._digests: dict[str, str | None] = {}
        self._users: dict[str, list[str]] | None = None

    def record(self, artifact: str) -> Record | None:
        """The record of an artifact, or None for a file that no stage made."""
        if artifact not in self._records:
            self._records[artifact] = read_record(artifact)
        return self._records[artifact]

    def require(self, artifact: str) -> Record:
        """The record of an artifact that must have one."""
        record = self.record(artifact)
        if record is None:
            raise ArtifactError(artifact, "has no lineage record", "make it with snakemake, or give another artifact")
        return record

    def current_digest(self, artifact: str) -> str | None:
        """Digest now, by the record as long as size and time fit; None when missing or damaged."""
        if artifact not in self._digests:
            try:
                self._digests[artifact] = artifact_digest(artifact)
            except ArtifactError:
                self._digests[artifact] = None
        return self._digests[artifact]

    def up(self, artifact: str) -> list[Edge]:
        """Inputs of an artifact, in the order of their names; none for a file that no stage made."""
        record = self.record(artifact)
        inputs = record["inputs"] if record else []
        return [Edge(i["name"], i["path"], artifact, i["digest"], self.current_digest(i["path"])) for i in inputs]

    def down(self, artifact: str) -> list[Edge]:
        """Uses of an artifact, sorted by the path of the user."""
        return [
            edge for user in self._users_of().get(artifact, []) for edge in self.up(user) if edge.source == artifact
        ]

    def ancestors(self, *artifacts: str) -> list[str]:
        """The artifacts and everything above them, each once, sources before users."""
        ordered: dict[str, None] = {}
        pending = [(artifact, False) for artifact in reversed(artifacts)]
        seen: set[str] = set()
        while pending:
            artifact, left = pending.pop()
            if left:
                ordered[artifact] = None
            elif artifact not in seen:
                seen.add(artifact)
                record = self.record(artifact)
                pending.append((artifact, True))
                pending += [(i["path"], False) for i in reversed(record["inputs"] if record else [])]
        return list(ordered)

    def descendants(self, artifact: str) -> list[str]:
        """Everything that was made with an artifact, sorted."""
        found: set[str] = set()
        pending = [artifact]
        while pending:
            fresh = set(self._users_of().get(pending.pop(), [])) - found
            found |= fresh
            pending += fresh
        return sorted(found)

    def artifacts(self) -> list[str]:
        """Every artifact with a record, sorted."""
        return sorted(path for place in PLACES for path in _recorded(place))

    def final(self) -> list[str]:
        """Artifacts that nothing was made with, sorted."""
        return [artifact for artifact in self.artifacts() if artifact not in self._users_of()]

    def find(self, text: str) -> str:
        """The artifact that a person means: a path, the folder of a manifest, a record, or the start of a digest.

        Raises:
            ArtifactError: nothing or several artifacts fit.
        """
        path = _relative(text)
        for candidate in (path, f"{path}/{MANIFEST}", _described(path)):
            if candidate and self.record(candidate) is not None and not Path(candidate).is_dir():
                return candidate
        known = self.artifacts()
        if len(text) >= 6 and set(text) <= HEX:
            fitting = [artifact for artifact in known if self.require(artifact)["digest"].startswith(text)]
            if len(fitting) == 1:
                return fitting[0]
            if fitting:
                raise ArtifactError(
                    text, f"is the digest of {len(fitting)} artifacts: {', '.join(fitting)}", "name one"
                )
        what = "has no lineage record" if Path(path).exists() else "is no artifact here"
        raise ArtifactError(text, what, nearest(path, known) if known else "run: make mini")

    def _users_of(self) -> dict[str, list[str]]:
        if self._users is None:
            users: dict[str, set[str]] = {}
            for artifact in self.artifacts():
                for given in self.require(artifact)["inputs"]:
                    users.setdefault(given["path"], set()).add(artifact)
            self._users = {source: sorted(found) for source, found in users.items()}
        return self._users


def true_digest(artifact: str) -> str | None:
    """Digest from the bytes, whatever the record says; None when missing."""
    path = Path(artifact)
    return file_digest(path) if path.exists() else None


def _recorded(place: str) -> Iterator[str]:
    for folder, names, files in os.walk(place):
        names[:] = sorted(n for n in names if not n.startswith(".") and f"{folder}/{n}" not in PASSED_OVER)
        for file in files:
            artifact = _described(f"{folder}/{file}")
            if artifact and not file.startswith("."):
                yield artifact


def _described(record: str) -> str | None:
    """The artifact that the record at this path describes."""
    folder, _, name = record.rpartition("/")
    if name == "lineage.json":
        return f"{folder}/{MANIFEST}" if folder else MANIFEST
    return record.removesuffix(SUFFIX) if name.endswith(SUFFIX) else None


def _relative(text: str) -> str:
    path = Path(os.path.normpath(text))
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return path.as_posix()


def short_name(artifact: str) -> str:
    """An artifact's path without what all paths share, for trees and run names."""
    path = Path(artifact)
    if is_folder_artifact(path):
        path = path.parent
    return path.as_posix().removeprefix("results/").removeprefix("resources/")
