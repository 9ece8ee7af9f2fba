"""Read the lineage graph from disk: records joined by the paths and digests of their inputs; draw it as a tree.

Paths are relative to the checkout's root, as records hold them; every command runs there.
"""

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from zerodr.artifacts.manifest import MANIFEST, file_digest, is_folder_artifact
from zerodr.artifacts.origins import unfinished
from zerodr.artifacts.record import Record, artifact_digest, read_record
from zerodr.config.base import canonical_json
from zerodr.errors import ArtifactError, nearest
from zerodr.plan.rules import facts_of

ROOTS = ("resources", "results")
IGNORED = {"results/lineage/artifacts", "results/logs", "results/benchmarks"}
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
        """True when the source has changed since it was used."""
        return self.recorded != self.current


class Graph:
    """All records of the checkout in the working directory; each file is read once.

    Args:
        lenient: a record that can't be read counts as absent, and `unreadable` names it; False: it is an error.

    Attributes:
        unreadable: reasons by artifact, of the records that were looked at.
    """

    def __init__(self, lenient: bool = False) -> None:
        self.unreadable: dict[str, str] = {}
        self._lenient = lenient
        self._records: dict[str, Record | None] = {}
        self._digests: dict[str, str | None] = {}

    def record(self, artifact: str) -> Record | None:
        """Return the record of an artifact; None for a file that no stage wrote.

        Raises:
            ArtifactError: it can't be read, and the graph is not lenient.
        """
        if artifact not in self._records:
            self._records[artifact] = self._read(artifact)
        return self._records[artifact]

    def _read(self, artifact: str) -> Record | None:
        try:
            return read_record(artifact)
        except ArtifactError as error:
            if not self._lenient:
                raise
            self.unreadable[artifact] = error.what
            return None

    def require(self, artifact: str) -> Record:
        """Return the record of an artifact that must have one."""
        record = self.record(artifact)
        if record is None:
            raise ArtifactError(artifact, "has no lineage record", "build it with snakemake, or name another artifact")
        return record

    def current_digest(self, artifact: str) -> str | None:
        """Return the present digest, by the record while size and time match; None when missing or damaged.

        Of a temporary artifact that was removed after its use it is the recorded one.
        """
        if artifact not in self._digests and self.is_removed(artifact):
            self._digests[artifact] = self.require(artifact)["digest"]
        if artifact not in self._digests:
            self._digests[artifact] = self._present_digest(artifact)
        return self._digests[artifact]

    def _present_digest(self, artifact: str) -> str | None:
        if artifact in self.unreadable and not is_folder_artifact(Path(artifact)):
            return true_digest(artifact)
        try:
            return artifact_digest(artifact)
        except ArtifactError:
            return None

    def had_record(self, artifact: str) -> bool:
        """Test whether a stage wrote an artifact, by what its users recorded of it: its own record may be gone."""
        inputs = (entry for user in self._users.get(artifact, []) for entry in self.require(user)["inputs"])
        return any(entry["path"] == artifact and entry["record"] is not None for entry in inputs)

    def is_removed(self, artifact: str) -> bool:
        """Test whether Snakemake removed an artifact after its use: only its record is left, as it should be."""
        record = self.record(artifact)
        return record is not None and facts_of(record["rule"]).temporary and not Path(artifact).exists()

    def is_damaged(self, artifact: str) -> bool:
        """Test whether an artifact or its record is damaged, missing, or contradicts the records of its users."""
        record, now = self.record(artifact), self.current_digest(artifact)
        recorded = {record["digest"]} if record else {edge.recorded for edge in self.down(artifact)}
        return now is None or artifact in self.unreadable or bool(recorded) and now not in recorded

    def up(self, artifact: str) -> list[Edge]:
        """List the inputs of an artifact, in the order of their names; none for a file that no stage wrote."""
        record = self.record(artifact)
        inputs = record["inputs"] if record else []
        return [Edge(i["name"], i["path"], artifact, i["digest"], self.current_digest(i["path"])) for i in inputs]

    def down(self, artifact: str) -> list[Edge]:
        """List the uses of an artifact, sorted by the path of the user."""
        users = self._users.get(artifact, [])
        return [edge for user in users for edge in self.up(user) if edge.source == artifact]

    def ancestors(self, *artifacts: str) -> list[str]:
        """List the artifacts and everything above them, each once, sources before users."""
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

    def artifacts(self) -> list[str]:
        """List every artifact with a record, sorted."""
        return sorted(path for root in ROOTS for path in _recorded(root))

    def final(self) -> list[str]:
        """List artifacts that no other artifact was built from, sorted."""
        return [artifact for artifact in self.artifacts() if artifact not in self._users]

    def find(self, text: str) -> str:
        """Find an artifact by its path, the folder of its manifest, its record, or the start of its digest.

        Raises:
            ArtifactError: no artifact matches, or several.
        """
        path = _relative(text)
        for candidate in (path, f"{path}/{MANIFEST}", _described(path)):
            if candidate and self._has_record(candidate) and not Path(candidate).is_dir():
                return candidate
        for candidate in (path, f"{path}/{MANIFEST}"):
            if job := unfinished(candidate):
                step = "it runs now, or was stopped: the command that began it goes on where it was"
                raise ArtifactError(text, f"was begun and is not finished ({job})", step)
        known = self.artifacts()
        if len(text) >= 6 and set(text) <= HEX:
            records = {artifact: self.record(artifact) for artifact in known}
            matches = [name for name, record in records.items() if record and record["digest"].startswith(text)]
            if len(matches) == 1:
                return matches[0]
            if matches:
                problem = f"is the digest of {len(matches)} artifacts: {', '.join(matches)}"
                raise ArtifactError(text, problem, "name one")
        if not known:
            raise ArtifactError(text, "was not made here", "run: make mini")
        if not text or Path(path).exists():
            raise ArtifactError(text or "''", "has no lineage record", nearest(path, known))
        near = difflib.get_close_matches(path, known, n=1, cutoff=0.8)
        step = f"did you mean {near[0]}?" if near else f"is it a target? zerodr targets {path}; snakemake makes it"
        raise ArtifactError(text, "was not made here", step)

    def _has_record(self, artifact: str) -> bool:
        return self.record(artifact) is not None or artifact in self.unreadable

    @cached_property
    def _users(self) -> dict[str, list[str]]:
        users: dict[str, set[str]] = {}
        for artifact in self.artifacts():
            record = self.record(artifact)
            for entry in record["inputs"] if record else []:
                users.setdefault(entry["path"], set()).add(artifact)
        return {source: sorted(paths) for source, paths in users.items()}


def true_digest(artifact: str) -> str | None:
    """Compute the digest from the bytes, without the record; None when missing."""
    path = Path(artifact)
    return file_digest(path) if path.exists() else None


def _recorded(root: str) -> Iterator[str]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if not n.startswith(".") and f"{folder}/{n}" not in IGNORED)
        for file in files:
            artifact = _described(f"{folder}/{file}")
            if artifact and not file.startswith("."):
                yield artifact


def _described(record: str) -> str | None:
    """Return the artifact that the record at this path describes."""
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
    """Shorten an artifact's path by the prefix that all share, for trees and run names."""
    path = Path(artifact)
    if is_folder_artifact(path):
        path = path.parent
    return path.as_posix().removeprefix("results/").removeprefix("resources/")


def render_tree(graph: Graph, artifact: str, down: bool = False, depth: int | None = None) -> str:
    """Render the sources of an artifact (with `down`: its users) as a tree, one line an artifact.

    A branch that was printed already is not printed again: its line ends with `(see above)`.

    Args:
        graph: the checkout's lineage.
        artifact: path of the root of the tree.
        down: walk to users instead of sources.
        depth: levels below the root; None is all of them.
    """
    lines = [_line(graph, artifact)]
    _grow(graph, artifact, down, depth, "", {artifact}, lines)
    return "\n".join(lines)


def _grow(graph: Graph, artifact: str, down: bool, depth: int | None, indent: str, seen: set[str], lines: list) -> None:
    edges = _edges(graph, artifact, down)
    if depth == 0:
        if edges:
            lines.append(f"{indent}└─ ... {len(edges)} more")
        return
    for number, edge in enumerate(edges, start=1):
        last = number == len(edges)
        other = edge.user if down else edge.source
        again = other in seen and bool(_edges(graph, other, down))
        branch, suffix = "└─" if last else "├─", " (see above)" if again else ""
        lines.append(f"{indent}{branch} {_line(graph, other)}{_remark(edge)}{suffix}")
        if not again:
            seen.add(other)
            deeper = indent + ("   " if last else "│  ")
            _grow(graph, other, down, None if depth is None else depth - 1, deeper, seen, lines)


def _edges(graph: Graph, artifact: str, down: bool) -> list[Edge]:
    return graph.down(artifact) if down else graph.up(artifact)


def _line(graph: Graph, artifact: str) -> str:
    record = graph.record(artifact)
    if artifact in graph.unreadable:
        return f"{artifact}  (its record can't be read)"
    if record is None:
        return f"{artifact}  ({'its record is gone' if graph.had_record(artifact) else 'no stage writes it'})"
    return f"{artifact}  {record['rule']} v{record['spec']['version']}  {record['digest'][:12]}"


def _remark(edge: Edge) -> str:
    if not edge.stale:
        return ""
    if edge.current is None:
        return f"  GONE: {edge.source} is missing or damaged"
    return f"  STALE: {edge.recorded[:12]} was used, {edge.source} is {edge.current[:12]} now"


def flatten(value: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Map `{"a": {"b": 1.0}, "c": [1, 2]}` to `{"a.b": "1.0", "c": "[1,2]"}`; strings unquoted, others as JSON."""
    flat: dict[str, str] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict) and item:
            flat |= flatten(item, f"{name}.")
        else:
            flat[name] = item if isinstance(item, str) else canonical_json(item)
    return flat


def brief(value: str | None, width: int = 80) -> str:
    """Cut a value to `width` characters; None becomes `none`."""
    text = "none" if value is None else value
    return text if len(text) <= width else text[: width - 3] + "..."
