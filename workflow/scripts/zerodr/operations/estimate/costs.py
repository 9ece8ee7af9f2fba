"""Estimate the time of planned jobs: from finished jobs of the same rule, else from their work at a usual speed.

The unit of work is a million documents that a job reads (of a ranking of a sample, times the sample's share of the
queries), or a million queries where these decide; for a training, a million queries (or texts) it learns from. Where
neither says anything the time is unknown, and its limit is shown.
"""

import json
import logging
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from zerodr.artifacts.record import Record
from zerodr.config.quantities import HOUR_S, counted, duration
from zerodr.config.registry import Collection
from zerodr.config.speeds import Speeds, read_speeds
from zerodr.operations.estimate.jobs import Job, job_for, longest_path, makespan
from zerodr.operations.estimate.rehearsed import Rehearsed, read
from zerodr.operations.estimate.work import (
    embeds_documents,
    length_share,
    memory_mib,
    reckon,
    settings_of,
    work_of,
)
from zerodr.plan import Plan
from zerodr.plan.mining import ranked_share
from zerodr.plan.resources import millions, need, read_collection
from zerodr.plan.rules import RULES, facts_of

LOG = logging.getLogger("zerodr")
FARMS = (8, 64)
START_S = 10.0  # a job's start on a cluster: its queue, Snakemake in the job, Python, imports
START_HERE_S = 1.0  # the same on this machine, where one process has imported for all
SIMILAR = 10  # a job that is more times larger than any finished one is reckoned from its work, where that is known
SHOWN = 8
SHORTEST_S = 3.0  # an embedding or a training of next to nothing, behind its job's start
FEWEST_PACED = 5  # finished jobs that tell how fast this machine is


def slowdown() -> float:
    """Return how many times longer a job takes next to what else runs on this machine now; 1 on an idle one."""
    return max(1.0, 1 + (os.getloadavg()[0] - 1) / (os.cpu_count() or 1))


@dataclass(frozen=True)
class Past:
    """One finished job: its model, its size in units of work, its time; of a training, times its GPUs."""

    model: str
    units: float
    seconds: float


@dataclass(frozen=True)
class Costs:
    """Time of the planned jobs.

    Attributes:
        seconds: of each job; of one whose time is unknown only its start.
        gpu_hours: of all jobs.
        limits: time limit of each job, in seconds.
        unknown: positions of jobs whose time is unknown.
        reckoned: positions of jobs whose time follows from their work and a usual speed.
        rehearsed: number of jobs whose time follows from the rates of a rehearsal.
        extrapolated: share of these jobs' time that the rehearsal did not run.
        light: number of jobs that count with their start alone.
        path: positions of the jobs on the critical path, first to last.
        spans: number of GPUs -> seconds until all jobs are finished.
        most_gpus: GPUs of the largest job; farms with fewer have no span.
        start: seconds until a job's stage runs.
    """

    seconds: list[float] = field(default_factory=list)
    gpu_hours: float = 0.0
    limits: list[float] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    reckoned: list[int] = field(default_factory=list)
    rehearsed: int = 0
    extrapolated: float = 0.0
    light: int = 0
    path: list[int] = field(default_factory=list)
    spans: dict[int, float] = field(default_factory=dict)
    most_gpus: int = 0
    start: float = START_S


class Estimates:
    """Estimates of the time and memory of a plan's jobs: `Plan(bench, Estimates)`.

    Args:
        plan: the plan.
        folder: where finished jobs left their records.
        rehearsed: what a rehearsal measured; None: that of the checkout, if any.
    """

    def __init__(self, plan: Plan, folder: Path = Path("results"), rehearsed: Rehearsed | None = None) -> None:
        self.plan, self.folder, self._rehearsed = plan, folder, rehearsed

    @cached_property
    def rehearsed(self) -> Rehearsed:
        """Jobs of the last rehearsal."""
        return read() if self._rehearsed is None else self._rehearsed

    @cached_property
    def past(self) -> dict[str, list[Past]]:
        """Finished jobs by rule."""
        return history(self.plan, self.folder, self._length)

    @cached_property
    def speeds(self) -> Speeds:
        """Read rates for jobs that resemble no finished job."""
        return read_speeds(Path("."))

    @cached_property
    def pace(self) -> float:
        """Median of what finished jobs of rules without a model took, in units of config/speeds.yaml; 1 without five.

        Small jobs say what any job takes here, and nothing of what a million documents take.
        """
        known = [(self.speeds.jobs[rule], past) for rule, past in self.past.items() if rule in self.speeds.jobs]
        taken = [done.seconds / (base + slope * done.units) for (base, slope), past in known for done in past]
        return median(taken) if len(taken) >= FEWEST_PACED else 1.0

    def seconds(self, job: Job, least: float | None = SHORTEST_S) -> tuple[float | None, bool]:
        """Seconds of a job, None when unknown, and whether they come from finished jobs. Light jobs take 0.

        A training is estimated by its work until one of its recipe has finished: a step of another reads other texts.
        An embedding or a training that is smaller than all finished ones takes its share, `least` seconds at least;
        with None, for limits, as long as they.
        """
        if job.facts.light:
            return 0.0, True
        units, model = units_of(job, self.plan) * self._length(job), job.wildcards.get("model", "")
        past = [done for done in self.past.get(job.rule, []) if units <= SIMILAR * done.units or not done.units]
        alike = not job.facts.trains or any(recipe_of(done.model) == recipe_of(model) for done in past)
        if past and alike:
            shares = job.facts.embeds or job.facts.trains
            return (estimate(past, model, units, least if shares else None) or 0.0) / _devices(job, self.plan), True
        if (rehearsed := self.rehearsed_seconds(job)) is not None:
            return rehearsed, True
        known = reckon(job, self.plan, self.speeds, units)
        if known is None and job.rule in self.past:
            return (estimate(self.past[job.rule], model, units) or 0.0) / _devices(job, self.plan), True
        if known is not None and job.rule in self.speeds.jobs:
            known += self.speeds.jobs[job.rule][0] * (self.pace - 1)
        return known, False

    def _length(self, job: Job) -> float:
        """Compute the length of the documents that a job embeds, as a share of the usual one."""
        return length_share(self.plan, self.speeds, job.wildcards["collection"]) if embeds_documents(job) else 1.0

    def rehearsed_seconds(self, job: Job) -> float | None:
        """Seconds of a job by the rate that a rehearsal measured; None where it measured none."""
        like = self.rehearsed.like(job) if self.rehearsed.jobs else None
        work = work_of(job, self.plan) if like is not None and like.rate else None
        return like.seconds_for(work) if like is not None and work else None

    def minutes(self, rule: str, wildcards: Any) -> int | None:
        """Minutes that a job asks a scheduler for; None when its time is unknown.

        Without a collection the size is unknown and the estimate weak: the job asks for its rule's base time at least.
        """
        job = job_for(rule, wildcards)
        known, finished = self.seconds(job, least=None)
        if known is None:
            return None
        sized = finished or job.facts.trains or read_collection(wildcards)
        return max(self.speeds.limits.minutes(START_S + known, finished), 0 if sized else need(rule).base_minutes)

    def mib(self, rule: str, wildcards: Any) -> int | None:
        """MiB that a job asks a scheduler for; None when its rule and the size of its collection decide."""
        job = job_for(rule, wildcards)
        like = self.rehearsed.find(job) if self.rehearsed.jobs else None
        return memory_mib(job, self.plan, like.mib if like is not None else None)


def estimates_of(plan: Plan) -> Estimates:
    """Return the estimates that a plan was made with, which know finished jobs already, or new ones."""
    estimate = plan.machines.estimate
    return estimate if isinstance(estimate, Estimates) else Estimates(plan)


def _devices(job: Job, plan: Plan) -> int:
    return max(1, plan.machines.gpus(job.rule)) if job.facts.trains else 1


def costs(jobs: list[Job], estimates: Estimates, start: float = START_S) -> Costs:
    """Estimate the time of all jobs, and of the longest chain of them; `start`: seconds until a job's stage runs."""
    plan, seconds, unknown, reckoned = estimates.plan, list[float](), list[int](), list[int]()
    rehearsed, ran, counted_s = 0, 0.0, 0.0
    for number, job in enumerate(jobs):
        known, finished = estimates.seconds(job)
        seconds.append(start + (known or 0.0))
        unknown += [number] if known is None else []
        reckoned += [number] if known is not None and not finished else []
        if known is not None and finished and not job.facts.light and known == estimates.rehearsed_seconds(job):
            rehearsed, counted_s = rehearsed + 1, counted_s + known
            ran += getattr(estimates.rehearsed.find(job), "seconds", 0.0)
    gpus = [plan.machines.gpus(job.rule) for job in jobs]
    makers = {path: number for number, job in enumerate(jobs) for path in job.outputs}
    before = [sorted({makers[path] for path in job.inputs if path in makers}) for job in jobs]
    most = max(gpus, default=0)
    spans = {farm: makespan(seconds, gpus, before, farm) for farm in FARMS if 0 < most <= farm}
    hours = sum(s * g for s, g in zip(seconds, gpus, strict=True)) / HOUR_S
    limits = [limit(job, plan) for job in jobs]
    light = sum(job.facts.light for job in jobs)
    extrapolated = 1 - min(1.0, ran / counted_s) if counted_s else 0.0
    chain = longest_path(seconds, before)
    numbers = reckoned, rehearsed, extrapolated, light
    return Costs(seconds, hours, limits, unknown, *numbers, chain, spans, most, start)


def limit(job: Job, plan: Plan) -> float:
    """Return the time limit of a job in seconds; 0 for the rule `all`, which runs nothing."""
    return 60.0 * plan.machines.minutes(job.rule)(job.asked) if job.rule in RULES else 0.0


def units_of(job: Job, plan: Plan) -> float:
    """Return the size of a planned job in units of work."""
    if job.facts.trains:
        return _learned(settings_of(plan, job))
    row = plan.bench.collections.get(read_collection(job.asked))
    split = job.wildcards.get("split", "")
    return millions(row, plan.machines.shard_size, job.rule, split) * _ranked_share(row, split)


def _ranked_share(row: Collection | None, split: str) -> float:
    """Share of a split's queries that a job ranks: a ranking of a sample takes less time in proportion."""
    return ranked_share(split, {} if row is None else row.splits)


def _learned(params: dict[str, Any]) -> float:
    """Return the millions of queries in all steps of a training."""
    training = params.get("settings", params).get("training") or {}
    return int(training.get("steps", 0)) * int(training.get("batch_queries", 0)) / 1e6


def history(plan: Plan, folder: Path, length: Callable[[Job], float] = lambda job: 1.0) -> dict[str, list[Past]]:
    """List finished jobs by rule, each once; of GPU rules only those on the planned kind of device.

    Args:
        plan: the plan.
        folder: where finished jobs left their records.
        length: of the texts of a job, as a share of the usual length.
    """
    past: dict[str, list[Past]] = defaultdict(list)
    seen: set[str] = set()
    for record in _records(folder):
        rule, params = record["rule"], record["spec"]["params"]
        rehearsal = record["spec"].get("rehearsal")
        if record["spec_digest"] in seen or rehearsal or not _same_device(record, plan):
            continue
        seen.add(record["spec_digest"])
        job, devices = Job(rule, record["wildcards"]), 1
        if job.facts.trains:
            units, devices = _learned(params), max(1, int(params.get("gpus", 0)))
        else:
            units = _done(plan.bench.collections.get(read_collection(job.asked)), rule, record)
        past[rule].append(
            Past(record["wildcards"].get("model", ""), units * length(job), float(record["seconds"]) * devices)
        )
    return past


def _done(row: Collection | None, rule: str, record: Record) -> float:
    split = record["wildcards"].get("split", "")
    if facts_of(rule).time == "queries":
        return millions(row, 0, rule, split)
    documents = (row.planned_documents if row else 0) / int(record["spec"]["params"].get("shards", 1))
    return documents / 1e6 * _ranked_share(row, split)


def _records(folder: Path) -> Iterator[Record]:
    for path in sorted(folder.rglob("*lineage.json")):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # one damaged record must not end every run
            LOG.warning(
                "%s can't be read and counts in no estimate (%s): zerodr verify --all names such files", path, error
            )
            continue
        if isinstance(value, dict) and "spec_digest" in value:
            yield value


def _same_device(record: Record, plan: Plan) -> bool:
    rule = record["rule"]
    if not need(rule).gpu:
        return True
    return str(record["notes"].get("device", "cpu")).startswith("cuda") == (plan.machines.gpus(rule) > 0)


def recipe_of(model: str) -> str:
    """Return the recipe of a model's name, without variants, seed and stage.

    >>> recipe_of("modir-dpr-seed14+single@modir1"), recipe_of("modir-dpr")
    ('modir-dpr', 'modir-dpr')
    """
    return re.split(r"-seed\d+|[+@]", model, maxsplit=1)[0]


def estimate(past: list[Past], model: str, units: float, least: float | None = None) -> float | None:
    """Estimate the seconds of a job from the most similar finished one; None without any.

    The same model comes first, then one of the same recipe, then the nearest size. A larger job counts in proportion
    to its size. So does a smaller one down to `least` seconds; without `least` it counts as much as the finished one.
    """
    if not past:
        return None

    def unlike(other: Past) -> tuple[bool, bool, float]:
        strange = recipe_of(other.model) != recipe_of(model)
        return other.model != model, strange, abs(math.log(max(units, 1e-9)) - math.log(max(other.units, 1e-9)))

    like = min(past, key=unlike)
    share = units / like.units if like.units else 1.0
    return like.seconds * max(1.0, share) if least is None else max(min(least, like.seconds), like.seconds * share)


def render(jobs: list[Job], estimates: Costs, price: float | None = None) -> str:
    """Format the estimates as text, with the limits that the jobs ask for, and the price of their GPU-hours."""
    seconds, path, limits, unknown = estimates.seconds, estimates.path, estimates.limits, estimates.unknown
    others = len(estimates.reckoned) + estimates.rehearsed + estimates.light + len(unknown)
    by_rate = f"by the rates of the rehearsal, {estimates.extrapolated:.1%} of their time extrapolated"
    sources = {
        "estimated from finished jobs of this checkout": len(jobs) - others,
        by_rate: estimates.rehearsed,
        "estimated from work and config/speeds.yaml": len(estimates.reckoned),
        f"light, {estimates.start:.0f} s for the start": estimates.light,
    }
    lines = [f"time        about {duration(sum(seconds))} one after another, {estimates.gpu_hours:.2f} GPU-hours"]
    if price is not None:
        lines.append(f"price       about {estimates.gpu_hours * price:,.2f} for the GPU-hours, at {price:g} each")
    lines += [f"            {counted(count, 'job')}: {source}" for source, count in sources.items() if count]
    if unknown:
        most = sum(limits[number] for number in unknown)
        lines.append(f"            {counted(len(unknown), 'job')}: time unknown, at most {duration(most)} in all:")
        by_rule: dict[str, float] = defaultdict(float)
        for number in unknown:
            by_rule[jobs[number].rule] += limits[number]
        lines += [f"            {duration(most):>12}  at most, {rule}" for rule, most in by_rule.items()]
    lines.append(
        f"critical    about {duration(sum(seconds[n] for n in path))}, {counted(len(path), 'job')}, "
        "the longest of them (the time limit that each asks Slurm for):"
    )
    for number in sorted(sorted(path, key=lambda n: -seconds[n])[:SHOWN], key=path.index):
        job, about = jobs[number], "unknown" if number in unknown else duration(seconds[number])
        name = " ".join([job.rule, *job.wildcards.values()])
        lines.append(f"            {about:>12}  {name} (limit {duration(limits[number])})")
    lines += [f"            {duration(span):>12}  with {farm} GPUs" for farm, span in estimates.spans.items()]
    most_gpus = estimates.most_gpus
    lines += [f"            {farm} GPUs are too few: a job needs {most_gpus}" for farm in FARMS if farm < most_gpus]
    return "\n".join(lines)
