"""Add up what artifacts cost, from the lineage records of everything above them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from zerodr.artifacts.record import Record
from zerodr.lineage.graph import Graph

SHARED = {"fetch_archive", "normalize_collection", "measure_statistics"}  # data, the same for every method


@dataclass
class Cost:
    """A sum over jobs.

    Attributes:
        seconds: wall time.
        gpu_hours: GPU-hours.
        joules: energy; None when no job measured it.
        steps: optimisation steps.
        texts: queries or documents in the batches of these steps.
        rules: wall time in seconds by rule.
    """

    seconds: float = 0.0
    gpu_hours: float = 0.0
    joules: float | None = None
    steps: int = 0
    texts: int = 0
    rules: dict[str, float] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Add the job that a record describes."""
        self.seconds += record["seconds"]
        self.gpu_hours += record["gpu_hours"]
        if record["energy_joules"] is not None:
            self.joules = (self.joules or 0.0) + record["energy_joules"]
        self.rules[record["rule"]] = self.rules.get(record["rule"], 0.0) + record["seconds"]
        steps, texts = budget(record)
        self.steps, self.texts = self.steps + steps, self.texts + texts


def jobs_above(graph: Graph, artifacts: Iterable[str]) -> list[Record]:
    """List one record a job for artifacts and everything above them, sources first."""
    jobs: dict[str, Record] = {}
    for path in graph.ancestors(*artifacts):
        record = graph.record(path)
        if record is not None:
            jobs.setdefault(record["spec_digest"], record)
    return list(jobs.values())


def cost_of(jobs: Iterable[Record]) -> Cost:
    """Add up jobs, without those that prepare data."""
    cost = Cost()
    for record in jobs:
        if record["rule"] not in SHARED:
            cost.add(record)
    return cost


def budget(record: Record) -> tuple[int, int]:
    """Return steps and texts of a training job; zeros for other jobs."""
    settings = record["spec"]["params"].get("settings")
    training = settings.get("training") if isinstance(settings, dict) else None
    if not isinstance(training, dict) or "steps" not in training:
        return 0, 0
    return training["steps"], training["steps"] * training["batch_queries"] * training["accumulation"]
