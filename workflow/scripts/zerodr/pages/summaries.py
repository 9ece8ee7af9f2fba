"""Summarise jobs for the report: mining and spans, what was dropped, warnings, cost by rule."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from zerodr.artifacts.record import Record

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
DROPPED: dict[str, dict[str, tuple[str, ...]]] = {
    "mine_negatives": {
        "queries without a positive": ("statistics", "queries", "without_positive"),
        "queries without negatives": ("statistics", "queries", "empty"),
        "queries with too few negatives": ("statistics", "queries", "short"),
        "positives that the corpus lacks": ("statistics", "positives", "missing"),
    },
    "finetune": {
        "queries without a positive": ("queries_without_positive",),
        "queries without negatives": ("queries_without_negative",),
    },
}


@dataclass
class RuleCost:
    """Costs of the jobs of a rule.

    Attributes:
        rule: the rule.
        jobs: number of jobs.
        seconds: sum of their wall times.
        gpu_hours: GPU-hours.
        joules: energy; None when no job measured it.
        memory: largest memory of a job in MiB.
    """

    rule: str
    jobs: int = 0
    seconds: float = 0.0
    gpu_hours: float = 0.0
    joules: float | None = None
    memory: float = 0.0


def cost_by_rule(jobs: Iterable[Record]) -> list[RuleCost]:
    """Add up jobs by rule, the dearest first."""
    rules: dict[str, RuleCost] = {}
    for record in jobs:
        cost = rules.setdefault(record["rule"], RuleCost(record["rule"]))
        cost.jobs += 1
        cost.seconds += record["seconds"]
        cost.gpu_hours += record["gpu_hours"]
        cost.memory = max(cost.memory, record["peak_memory_mib"] or 0.0)
        if record["energy_joules"] is not None:
            cost.joules = (cost.joules or 0.0) + record["energy_joules"]
    return sorted(rules.values(), key=lambda cost: -cost.seconds)


def name_of(record: Record) -> str:
    """Name a job by its wildcards."""
    return " ".join(filter(None, record["wildcards"].values())) or record["rule"]


def mined(jobs: Iterable[Record]) -> list[dict[str, Any]]:
    """Rows of mining statistics: `name` and the columns MINED."""
    return _rows(jobs, "mine_negatives", MINED)


def spans(jobs: Iterable[Record]) -> list[dict[str, Any]]:
    """Rows of span statistics: `name` and the columns SPANS."""
    return _rows(jobs, "cut_spans", SPANS)


def _rows(jobs: Iterable[Record], rule: str, columns: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    chosen = [record for record in jobs if record["rule"] == rule and "statistics" in record["notes"]]
    return [
        {"name": name_of(record)} | {name: _at(record["notes"]["statistics"], keys) for name, keys in columns.items()}
        for record in chosen
    ]


def dropped(jobs: Iterable[Record]) -> list[tuple[str, str, str, float]]:
    """List rule, job, reason and number of what jobs left out; nothing where the number is 0."""
    rows = []
    for record in jobs:
        reasons = {name: _at(record["notes"], keys) for name, keys in DROPPED.get(record["rule"], {}).items()}
        if record["rule"] == "pretrain":
            for corpus, counts in record["notes"].get("left_out", {}).items():
                reasons |= {f"documents of {corpus}: {reason.replace('_', ' ')}": n for reason, n in counts.items()}
        if record["rule"] == "cut_spans":
            counts = record["notes"].get("statistics", {}).get("dropped", {})
            reasons |= {f"documents: {reason.replace('_', ' ')}": n for reason, n in counts.items()}
        if record["rule"] == "evaluate_run":
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
