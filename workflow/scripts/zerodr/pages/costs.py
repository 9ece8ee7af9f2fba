"""Summarise jobs from their lineage records: cost, mining and spans, what they left out, warnings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zerodr.artifacts.record import Record
from zerodr.lineage.graph import Graph
from zerodr.plan.rules import Kind, facts_of

SHARED = ("fetch", "prepare")  # kinds of work on data, the same for every method
ELSEWHERE = ("model", "run")  # what a method imports; the other imports read a user's folder
MINED = {
    "queries": ("queries", "mined"),
    "negatives": ("negatives", "kept"),
    "median rank": ("negatives", "median_rank"),
    "in the first 10": ("negatives", "top10_share"),
    "suspected positives": ("suspects", "above_share"),
    "positive found": ("best_positive", "found_share"),
    "its reciprocal rank": ("best_positive", "reciprocal_rank"),
}
SPANS = {
    "documents": ("documents",),
    "with spans": ("kept",),
    "dropped": ("drop_rate",),
    "spans a document": ("spans_per_document",),
    "tokens a span": ("tokens_per_span",),
}
DROPPED: dict[Kind, dict[str, tuple[str, ...]]] = {
    "mine": {
        "queries without a positive": ("statistics", "queries", "without_positive"),
        "queries without negatives": ("statistics", "queries", "empty"),
        "queries with too few negatives": ("statistics", "queries", "short"),
        "positives that the corpus lacks": ("statistics", "positives", "missing"),
    },
    "train": {
        "queries without a positive": ("queries_without_positive",),
        "queries without negatives": ("queries_without_negative",),
    },
}


@dataclass
class Cost:
    """A sum over jobs.

    Attributes:
        jobs: their number.
        seconds: wall time.
        gpu_hours: GPU-hours.
        joules: energy of the jobs that measured it; None when none did.
        unmeasured: jobs that did not measure energy.
        memory: largest memory of a job in MiB.
        steps: optimisation steps.
        examples: queries, or documents in pretraining, in the batches of these steps.
        rules: wall time in seconds by rule.
    """

    jobs: int = 0
    seconds: float = 0.0
    gpu_hours: float = 0.0
    joules: float | None = None
    unmeasured: int = 0
    memory: float = 0.0
    steps: int = 0
    examples: int = 0
    rules: dict[str, float] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Add the job that a record describes."""
        joules, (steps, examples) = record["energy_joules"], budget(record)
        self.jobs, self.unmeasured = self.jobs + 1, self.unmeasured + (joules is None)
        self.seconds += record["seconds"]
        self.gpu_hours += record["gpu_hours"]
        self.joules = self.joules if joules is None else (self.joules or 0.0) + joules
        self.memory = max(self.memory, record["peak_memory_mib"] or 0.0)
        self.steps, self.examples = self.steps + steps, self.examples + examples
        self.rules[record["rule"]] = self.rules.get(record["rule"], 0.0) + record["seconds"]


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
        rule = facts_of(record["rule"])
        folder = rule.kind == "import" and rule.writes not in ELSEWHERE
        if rule.kind not in SHARED and not folder:
            cost.add(record)
    return cost


def budget(record: Record) -> tuple[int, int]:
    """Return steps and examples of a training job; zeros for other jobs."""
    settings = record["spec"]["params"].get("settings")
    training = settings.get("training") if isinstance(settings, dict) else None
    if not isinstance(training, dict) or "steps" not in training:
        return 0, 0
    steps = record["notes"].get("steps", training["steps"])  # max_epochs may have ended it earlier
    return steps, steps * training["batch_queries"]  # a batch is that of a step, whatever its micro-batches


def cost_by_rule(jobs: Iterable[Record]) -> dict[str, Cost]:
    """Add up jobs by rule, the dearest first."""
    rules: dict[str, Cost] = {}
    for record in jobs:
        rules.setdefault(record["rule"], Cost()).add(record)
    return dict(sorted(rules.items(), key=lambda item: -item[1].seconds))


def name_of(record: Record) -> str:
    """Name a job by its wildcards."""
    return " ".join(filter(None, record["wildcards"].values())) or record["rule"]


def rows_of(jobs: Iterable[Record], kind: Kind, columns: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """Rows of statistics of a kind of jobs: `name`, and the columns MINED or SPANS."""
    rows = []
    for record in jobs:
        if facts_of(record["rule"]).kind == kind:
            values = {name: _at(record["notes"], ("statistics", *keys)) for name, keys in columns.items()}
            rows += [{"name": name_of(record)} | values] if any(value is not None for value in values.values()) else []
    return rows


def dropped(jobs: Iterable[Record]) -> list[tuple[str, str, str, float]]:
    """List rule, job, reason and number of what jobs left out; nothing where the number is 0."""
    rows = []
    for record in jobs:
        kind = facts_of(record["rule"]).kind
        reasons = {name: _at(record["notes"], keys) for name, keys in DROPPED.get(kind, {}).items()}
        if kind == "pretrain":
            for corpus, counts in record["notes"].get("left_out", {}).items():
                reasons |= {f"documents of {corpus}: {reason.replace('_', ' ')}": n for reason, n in counts.items()}
        if kind == "cut":
            counts = record["notes"].get("statistics", {}).get("dropped", {})
            reasons |= {f"documents: {reason.replace('_', ' ')}": n for reason, n in counts.items()}
        if kind == "evaluate":
            numbers = {metric["name"]: metric["value"] for metric in record["metrics"]}
            words = {"results": "results", "positives": "a positive judgement", "text": "a text"}
            reasons |= {f"queries without {word}": numbers.get(f"n_without_{name}") for name, word in words.items()}
        rows += [(record["rule"], name_of(record), reason, n) for reason, n in reasons.items() if n]
    return rows


def warnings(jobs: Iterable[Record]) -> list[tuple[str, str, str]]:
    """List rule, job and message of every warning."""
    return [(r["rule"], name_of(r), message) for r in jobs for message in r["notes"].get("warnings", [])]


def _at(facts: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    value: Any = facts
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
