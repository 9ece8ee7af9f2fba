"""Read what a rehearsal measured: rates of trainings, embedding and scoring, and the memory of each job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zerodr.artifacts.record import Record, write_json
from zerodr.config.rehearsal import Rehearsal
from zerodr.errors import ArtifactError
from zerodr.operations.estimate.jobs import Job

FILE = Path("rehearsal/measured.json")
RATES = ("queries_per_second", "documents_per_second", "texts_per_second", "pairs_per_second")
GPU_MIB = "peak_gpu_mib"  # note of a record


@dataclass(frozen=True)
class Measured:
    """One job of a rehearsal.

    Attributes:
        rule: its rule.
        wildcards: its wildcards.
        node: processor or card that it ran on.
        seconds: wall time.
        rate: queries, documents, texts or pairs a second; None for rules that measure none.
        work: how many of these it did.
        mib: peak memory of a process.
        gpu_mib: peak memory of a card; 0 without one.
    """

    rule: str
    wildcards: dict[str, str]
    node: str
    seconds: float
    rate: float | None
    work: float
    mib: float
    gpu_mib: float

    def seconds_for(self, work: float) -> float | None:
        """Estimate the seconds in which the job does so much work: what its start took, and the work at its rate."""
        if not self.rate:
            return None
        return max(0.0, self.seconds - self.work / self.rate) + work / self.rate


def measure(record: Record) -> Measured:
    """Read the figures of a job from its record."""
    facts = {fact["name"]: fact["value"] for fact in record["metrics"]} | record["notes"]
    rate, seconds = next((float(facts[name]) for name in RATES if facts.get(name)), None), float(record["seconds"])
    training = record["spec"]["params"].get("settings", record["spec"]["params"]).get("training") or {}
    work = float(facts.get("texts") or 0)
    if training:
        cut = Rehearsal.model_validate(record["spec"]["rehearsal"])
        work = float(min(training["steps"], cut.steps) * training["batch_queries"])
    node = record["environment"]["device"]
    node = record["environment"]["processor"] if node == "cpu" else node
    memory = record["peak_memory_mib"], facts.get(GPU_MIB, 0.0)
    return Measured(record["rule"], record["wildcards"], node, seconds, rate, work, *map(float, memory))


class Rehearsed:
    """Jobs that a rehearsal ran.

    Args:
        jobs: with their figures.
    """

    def __init__(self, jobs: Iterable[Measured]) -> None:
        self.jobs = list(jobs)
        self._exact = {_key(job.rule, job.wildcards): job for job in self.jobs}
        self._alike = {(job.rule, job.wildcards.get("model", "")): job for job in self.jobs if job.rate}

    def find(self, job: Job) -> Measured | None:
        """Return the job as it was rehearsed; None where it was not."""
        return self._exact.get(_key(job.rule, job.wildcards))

    def like(self, job: Job) -> Measured | None:
        """Return the job, or another one of its rule and model: of another collection, say."""
        return self.find(job) or self._alike.get((job.rule, job.wildcards.get("model", "")))

    def write(self, path: Path) -> None:
        """Write the figures where `read` finds them."""
        write_json(path, [asdict(job) for job in self.jobs])


def _key(rule: str, wildcards: Mapping[str, Any]) -> tuple[Any, ...]:
    return rule, *sorted(wildcards.items())


def read(path: Path = FILE) -> Rehearsed:
    """Read what the last rehearsal of a checkout measured; nothing where there was none.

    Raises:
        ArtifactError: the file is damaged, or of another version.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        return Rehearsed(Measured(**row) for row in rows)
    except (ValueError, TypeError) as error:
        raise ArtifactError(path, f"is no measurement of a rehearsal ({error!s:.80})", "delete it") from None
