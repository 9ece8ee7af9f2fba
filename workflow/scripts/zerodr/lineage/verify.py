"""Compare the bytes on the disk with the recorded ones, up to the archives."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zerodr.artifacts.manifest import check_manifest, is_folder_artifact
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import Record, record_path
from zerodr.lineage.graph import Graph, true_digest
from zerodr.plan.rules import facts_of


@dataclass(frozen=True)
class Problem:
    """A problem of an artifact, and the step that solves it."""

    artifact: str
    problem: str
    next_step: str

    def __str__(self) -> str:
        return f"{self.artifact}: {self.problem}: {self.next_step}"


def verify(graph: Graph, artifacts: Iterable[str]) -> Iterator[Problem]:
    """Find problems of artifacts and of everything above them: sizes, SHA-256 of every byte, and stale inputs."""
    paths = graph.ancestors(*artifacts)
    progress = Progress("verify", len(paths), "artifacts")
    digests: dict[str, str | None] = {}
    for artifact in paths:
        digests[artifact] = true_digest(artifact)
        record = graph.record(artifact)
        if artifact in graph.unreadable:
            yield _unreadable(artifact, graph.unreadable[artifact])
        elif graph.is_removed(artifact):
            yield from _inputs(graph, artifact, digests)
        elif record is not None:
            yield from _content(artifact, record, digests[artifact])
            yield from _inputs(graph, artifact, digests)
        elif digests[artifact] is None and graph.had_record(artifact):
            yield Problem(artifact, "is missing, and its record too", f"rebuild it: snakemake {artifact}")
        elif digests[artifact] is None:
            yield Problem(artifact, "is missing, and no stage writes it", "restore it, or rebuild what used it")
        progress.add()
    progress.finish()


def imported(graph: Graph, artifacts: Iterable[str]) -> Iterator[str]:
    """Say who made the imported runs above these artifacts, and from which bytes each was taken: a sentence a run."""
    for artifact in graph.ancestors(*artifacts):
        record = graph.record(artifact)
        if record is None:
            continue
        rule = facts_of(record["rule"])
        if rule.kind == "import" and rule.writes == "run":
            (file,) = (entry for entry in record["inputs"] if entry["name"] == "file")
            maker = f"made elsewhere: {record['notes']['source']}"
            yield f"{artifact}: {maker}; taken from {file['path']}, sha256 {file['digest'][:12]}"


def without_commit(graph: Graph, artifacts: Iterable[str]) -> Iterator[str]:
    """Say for how many artifacts no commit is known, and why: a sentence a reason."""
    reasons: Counter[str] = Counter()
    for artifact in graph.ancestors(*artifacts):
        record = graph.record(artifact)
        if record is not None and record["code"]["commit"] is None:
            reasons[record["code"].get("reason", "no reason recorded")] += 1
    for reason, count in sorted(reasons.items()):
        yield f"the code's commit is not known for {count} artifacts: {reason}"


def _unreadable(artifact: str, reason: str) -> Problem:
    """Name a record that can't be read, in a lenient graph; what is above its artifact is not known."""
    record = record_path(artifact)
    return Problem(artifact, f"{record} {reason}", f"rebuild it: rm {artifact} {record} && snakemake {artifact}")


def _content(artifact: str, record: Record, digest: str | None) -> Iterator[Problem]:
    if digest is None:
        yield Problem(artifact, "is missing", f"rebuild it: snakemake {artifact}")
        return
    step, path = f"rebuild it: rm {artifact} && snakemake {artifact}", Path(artifact)
    size = path.stat().st_size
    if size != record["bytes"]:
        yield Problem(artifact, f"has {size} bytes, {record['bytes']} were recorded", step)
    elif digest != record["digest"]:
        yield Problem(artifact, f"has sha256 {digest[:12]}, {record['digest'][:12]} was recorded", step)
    if is_folder_artifact(path):
        for problem in check_manifest(path, digests=True):
            yield Problem(artifact, problem, step)


def _inputs(graph: Graph, artifact: str, digests: dict[str, str | None]) -> Iterator[Problem]:
    """Find inputs that were rebuilt since. A damaged input is reported as a problem of itself."""
    for entry in graph.require(artifact)["inputs"]:
        source = graph.record(entry["path"])
        now = source["digest"] if source else digests[entry["path"]]
        if now is not None and now != entry["digest"]:
            problem = f"was built from {entry['path']} {entry['digest'][:12]}, which is {now[:12]} now"
            yield Problem(artifact, problem, f"see: zerodr explain {artifact}")
