"""Estimate the time of planned jobs from finished jobs of the same rule in this checkout, scaled by size.

The unit of work is a million documents that a job reads, or a million queries where these decide; for a training, a
million queries (or texts) it learns from. A job of a rule without finished jobs counts with its time limit.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from zerodr.artifacts.record import Record
from zerodr.config.registry import Collection
from zerodr.forecast import Job
from zerodr.plan import Plan
from zerodr.plan.resources import millions, need, read_collection
from zerodr.schedule import longest_path, makespan

TRAINING = ("finetune", "pretrain", "train_main", "train_augmenter")
FARMS = (8, 64)
HOUR_S = 3600
START_S = 10.0  # a job's start: Snakemake in the job, Python, imports
SHOWN = 8


@dataclass(frozen=True)
class Past:
    """One finished job: its model, its size in units of work, its time."""

    model: str
    units: float
    seconds: float


@dataclass(frozen=True)
class Costs:
    """Time of the planned jobs.

    Attributes:
        seconds: of each job.
        gpu_hours: of all jobs.
        guessed: number of jobs that count with their time limit.
        path: positions of the jobs on the critical path, first to last.
        spans: number of GPUs -> seconds until all jobs are finished.
        most_gpus: GPUs of the largest job; farms with fewer have no span.
    """

    seconds: list[float] = field(default_factory=list)
    gpu_hours: float = 0.0
    guessed: int = 0
    path: list[int] = field(default_factory=list)
    spans: dict[int, float] = field(default_factory=dict)
    most_gpus: int = 0


def costs(jobs: list[Job], plan: Plan, folder: Path = Path("results")) -> Costs:
    """Estimate the time of all jobs, and of the longest chain of them."""
    past, seconds, guessed = history(plan, folder), [], 0
    for job in jobs:
        known = estimate(past.get(job.rule, []), job.wildcards.get("model", ""), units_of(job, plan))
        guessed += known is None
        seconds.append(START_S + (limit(job, plan) if known is None else known))
    gpus = [plan.machines.gpus(job.rule) for job in jobs]
    makers = {path: number for number, job in enumerate(jobs) for path in job.outputs}
    before = [sorted({makers[path] for path in job.inputs if path in makers}) for job in jobs]
    most = max(gpus, default=0)
    spans = {farm: makespan(seconds, gpus, before, farm) for farm in FARMS if 0 < most <= farm}
    hours = sum(s * g for s, g in zip(seconds, gpus, strict=True)) / HOUR_S
    return Costs(seconds, hours, guessed, longest_path(seconds, before), spans, most)


def limit(job: Job, plan: Plan) -> float:
    """Return the time limit of a job in seconds, by its rule; 0 for the rule `all`."""
    if job.rule == "all":
        return 0.0
    return 60.0 * plan.machines.minutes(job.rule)(SimpleNamespace(**job.wildcards))


def units_of(job: Job, plan: Plan) -> float:
    """Return the size of a planned job in units of work."""
    if job.rule in TRAINING:
        settings = json.loads(plan.settings(job.rule)(SimpleNamespace(**job.wildcards)))["settings"]
        return _learned(settings)
    row = plan.bench.collections.get(read_collection(SimpleNamespace(**job.wildcards)))
    return millions(row, plan.machines.shard_size, job.rule, job.wildcards.get("split", ""))


def _learned(params: dict[str, Any]) -> float:
    """Return the millions of queries in all steps of a training."""
    training = params.get("settings", params).get("training") or {}
    return int(training.get("steps", 0)) * int(training.get("batch_queries", 0)) / 1e6


def history(plan: Plan, folder: Path) -> dict[str, list[Past]]:
    """List finished jobs by rule, each once; of GPU rules only those on the planned kind of device."""
    past: dict[str, list[Past]] = defaultdict(list)
    seen: set[str] = set()
    for record in _records(folder):
        rule, params = record["rule"], record["spec"]["params"]
        if record["spec_digest"] in seen or not _same_device(record, plan):
            continue
        seen.add(record["spec_digest"])
        if rule in TRAINING:
            units = _learned(params)
        else:
            row = plan.bench.collections.get(read_collection(SimpleNamespace(**record["wildcards"])))
            units = _done(row, rule, record)
        past[rule].append(Past(record["wildcards"].get("model", ""), units, float(record["seconds"])))
    return past


def _done(row: Collection | None, rule: str, record: Record) -> float:
    if need(rule).queries:
        return millions(row, 0, rule, record["wildcards"].get("split", ""))
    return (row.planned_documents if row else 0) / int(record["spec"]["params"].get("shards", 1)) / 1e6


def _records(folder: Path) -> Iterator[Record]:
    for path in sorted(folder.rglob("*lineage.json")):
        if path.name.startswith(".") and path.name.endswith(".making"):
            continue
        value = json.loads(path.read_text())
        if isinstance(value, dict) and "spec_digest" in value:
            yield value


def _same_device(record: Record, plan: Plan) -> bool:
    rule = record["rule"]
    if not need(rule).gpu:
        return True
    return str(record["notes"].get("device", "cpu")).startswith("cuda") == (plan.machines.gpus(rule) > 0)


def estimate(past: list[Past], model: str, units: float) -> float | None:
    """Estimate the seconds of a job from the most similar finished one; None without any.

    The same model comes first, then the nearest size. A larger job counts in proportion to its size; a smaller one
    counts as much, since much of a small job's time does not depend on its size.
    """
    if not past:
        return None

    def unlike(other: Past) -> tuple[bool, float]:
        return other.model != model, abs(math.log(max(units, 1e-9)) - math.log(max(other.units, 1e-9)))

    like = min(past, key=unlike)
    return like.seconds * max(1.0, units / like.units if like.units else 1.0)


def render(jobs: list[Job], estimates: Costs) -> str:
    """Format the estimates as text."""
    hours = [seconds / HOUR_S for seconds in estimates.seconds]
    path, guessed, most = estimates.path, estimates.guessed, estimates.most_gpus
    lines = [
        f"time        {sum(hours):.2f} h one after another, {estimates.gpu_hours:.2f} GPU-hours; estimated: "
        f"{len(jobs) - guessed} jobs from similar finished ones, {guessed} from their time limits",
        f"critical    {sum(hours[n] for n in path):.2f} h at least, through {len(path)} jobs, the longest of them:",
    ]
    for number in sorted(sorted(path, key=lambda n: -hours[n])[:SHOWN], key=path.index):
        job = jobs[number]
        lines.append(f"            {hours[number]:8.2f} h  {' '.join([job.rule, *job.wildcards.values()])}")
    lines += [f"            {span / HOUR_S:8.2f} h  with {farm} GPUs" for farm, span in estimates.spans.items()]
    lines += [f"            {farm} GPUs are too few: a job needs {most}" for farm in FARMS if farm < most]
    return "\n".join(lines)
