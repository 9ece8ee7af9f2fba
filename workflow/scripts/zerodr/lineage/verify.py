"""Are the bytes on the disk those that were recorded, up to the archives?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zerodr.artifacts.manifest import check_manifest, is_folder_artifact
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import Record
from zerodr.lineage.graph import Graph, true_digest


@dataclass(frozen=True)
class Finding:
    """What is wrong with an artifact, and what mends it."""

    artifact: str
    problem: str
    next_step: str

    def __str__(self) -> str:
        return f"{self.artifact}: {self.problem}: {self.next_step}"


def verify(graph: Graph, artifacts: Iterable[str]) -> Iterator[Finding]:
    """Problems of artifacts and of everything above them: sizes, SHA-256 of every byte, and stale inputs."""
    paths = graph.ancestors(*artifacts)
    progress = Progress("verify", len(paths), "artifacts")
    digests: dict[str, str | None] = {}
    for artifact in paths:
        digests[artifact] = true_digest(artifact)
        record = graph.record(artifact)
        if record is not None:
            yield from _content(artifact, record, digests[artifact])
            yield from _inputs(graph, artifact, digests)
        elif digests[artifact] is None:
            yield Finding(artifact, "is missing, and no stage makes it", "restore it, or remake what used it")
        progress.add()
    progress.finish()


def _content(artifact: str, record: Record, digest: str | None) -> Iterator[Finding]:
    path = Path(artifact)
    if digest is None:
        yield Finding(artifact, "is missing", f"make it again: snakemake {artifact}")
        return
    remake = f"make it again: rm {artifact} && snakemake {artifact}"
    size = path.stat().st_size
    if size != record["bytes"]:
        yield Finding(artifact, f"has {size} bytes, {record['bytes']} were recorded", remake)
    elif digest != record["digest"]:
        yield Finding(artifact, f"has sha256 {digest[:12]}, {record['digest'][:12]} was recorded", remake)
    if is_folder_artifact(path):
        for problem in check_manifest(path, digests=True):
            yield Finding(artifact, problem, remake)


def _inputs(graph: Graph, artifact: str, digests: dict[str, str | None]) -> Iterator[Finding]:
    """Inputs that were made again since. A damaged input is told where it is damaged."""
    for given in graph.require(artifact)["inputs"]:
        source = graph.record(given["path"])
        now = source["digest"] if source else digests[given["path"]]
        if now is not None and now != given["digest"]:
            what = f"was made from {given['path']} {given['digest'][:12]}, which is {now[:12]} now"
            yield Finding(artifact, what, f"see: python -m zerodr explain {artifact}")
