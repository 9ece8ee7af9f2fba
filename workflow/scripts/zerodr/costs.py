"""How long planned jobs will take: from jobs of the same rule that this checkout has done, scaled by size.

The unit of work is a million documents that a job reads, or a million queries where these count; of a training, a
million queries (or texts) it learns from.
A job of a rule without a past counts with the time limit that it asks the scheduler for.
"""

from __future__ import annotations

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
    """One finished job: the model it worked for, its size in units of work, its time."""

    model: str
    units: float
    seconds: float


@dataclass(frozen=True)
class Costs:
    """Time of the planned jobs.

    Attributes:
        seconds: of each job.
        gpu_hours: of all jobs.
        guessed: jobs that are counted with their limit.
        path: positions of the jobs on the critical path, first to last.
        spans: number of GPUs -> seconds until everything is done.
        most_gpus: of one job; farms with fewer have no span.
    """

    seconds: list[float] = field(default_factory=list)
    gpu_hours: float = 0.0
    guessed: int = 0
    path: list[int] = field(default_factory=list)
    spans: dict[int, float] = field(default_factory=dict)
    most_gpus: int = 0


def costs(jobs: list[Job], plan: Plan, folder: Path = Path("results")) -> Costs:
    """Time of all jobs, and of the longest chain of them."""
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
    """Seconds that a job may take at most, by its rule; local rules of a moment count nothing."""
    if job.rule == "all":
        return 0.0
    return 60.0 * plan.machines.minutes(job.rule)(SimpleNamespace(**job.wildcards))


def units_of(job: Job, plan: Plan) -> float:
    """Size of a planned job in units of work."""
    if job.rule in TRAINING:
        settings = json.loads(plan.settings(job.rule)(SimpleNamespace(**job.wildcards)))["settings"]
        return _learned(settings)
    row = plan.bench.collections.get(read_collection(SimpleNamespace(**job.wildcards)))
    return millions(row, plan.machines.shard_size, job.rule, job.wildcards.get("split", ""))


def _learned(params: dict[str, Any]) -> float:
    """Millions of queries in all steps of a training."""
    training = params.get("settings", params).get("training") or {}
    return int(training.get("steps", 0)) * int(training.get("batch_queries", 0)) / 1e6


def history(plan: Plan, folder: Path) -> dict[str, list[Past]]:
    """Finished jobs by rule, each once; those of GPU rules only when they ran on the kind of device that is planned."""
    found: dict[str, list[Past]] = defaultdict(list)
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
        found[rule].append(Past(record["wildcards"].get("model", ""), units, float(record["seconds"])))
    return found


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
    """Seconds of a job, from the finished one that is most like it; None without any.

    The same model comes first, then the nearest size. A larger job takes longer in proportion; a smaller one is not
    taken to be faster, since much of a small job's time does not depend on its size.
    """
    if not past:
        return None

    def unlike(other: Past) -> tuple[bool, float]:
        return other.model != model, abs(math.log(max(units, 1e-9)) - math.log(max(other.units, 1e-9)))

    like = min(past, key=unlike)
    return like.seconds * max(1.0, units / like.units if like.units else 1.0)


def render(jobs: list[Job], told: Costs) -> str:
    """Times as text."""
    hours = sum(told.seconds) / HOUR_S
    from_past = len(jobs) - told.guessed
    lines = [
        f"time        {hours:.2f} h one after another, {told.gpu_hours:.2f} GPU-hours; {from_past} jobs by their "
        f"like in this checkout, {told.guessed} by their time limits"
    ]
    chain = sum(told.seconds[number] for number in told.path) / HOUR_S
    lines.append(f"critical    {chain:.2f} h at least, through {len(told.path)} jobs, the longest of them:")
    longest = sorted(told.path, key=lambda number: -told.seconds[number])[:SHOWN]
    for number in sorted(longest, key=told.path.index):
        job = jobs[number]
        lines.append(
            f"            {told.seconds[number] / HOUR_S:8.2f} h  {' '.join([job.rule, *job.wildcards.values()])}"
        )
    lines += [f"            {span / HOUR_S:8.2f} h  with {farm} GPUs" for farm, span in told.spans.items()]
    lines += [
        f"            with {farm} GPUs not at all: a job asks for {told.most_gpus}"
        for farm in FARMS
        if farm < told.most_gpus
    ]
    return "\n".join(lines)
