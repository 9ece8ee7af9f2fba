"""Report a rehearsal: what ran, what failed and where its log says so, and what the run will cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from zerodr.artifacts.guard import run_stopped
from zerodr.artifacts.record import read_record
from zerodr.config.methods import EncoderMethod, TrainedMethod
from zerodr.config.quantities import counted
from zerodr.config.starts import line_of
from zerodr.errors import ArtifactError
from zerodr.operations.estimate.costs import START_S, Estimates, costs, render
from zerodr.operations.estimate.jobs import Job, jobs_of
from zerodr.operations.estimate.rehearsed import FILE, Measured, Rehearsed, measure
from zerodr.operations.estimate.sizes import disk_lines, sizes_of
from zerodr.pages.html import fill
from zerodr.plan import Plan

MEASURED, PAGE, TABLE = FILE.name, "rehearsal.html", "rehearsal.tsv"
HEAD = ("rule", "model", "node", "ran", "failed", "waiting", "seconds", "peak MiB", "peak GPU MiB", "log")
SHOWN = 10  # failed jobs on the screen


class Failure(NamedTuple):
    """A job that failed: its name, its log file, and the last line of it."""

    name: str
    log: str
    line: str


class Row(NamedTuple):
    """Jobs of one rule, kind of model and node."""

    rule: str
    model: str
    node: str
    ran: int
    failed: int
    waiting: int
    seconds: float
    mib: float
    gpu_mib: float
    line: str


def write_report(workflow: Any, plan: Plan) -> list[str]:
    """Write page, table and figures into the folder of the rehearsal, the working directory; return lines to show.

    Args:
        workflow: Snakemake's, whose graph has every job of the targets.
        plan: of the rehearsal.
    """
    known = [job for job in workflow.dag.jobs if job.rule.name != "all"]
    jobs = jobs_of(known)
    logs = {job.outputs: str(planned.log[0]) if planned.log else "" for job, planned in zip(jobs, known, strict=True)}
    done, failures, waiting = sort_jobs(jobs, logs, run_stopped())
    rehearsed = Rehearsed(figures for _, figures in done)
    rehearsed.write(Path(MEASURED))
    rows = rows_of(plan, done, failures, waiting)
    write_table(rows)
    cost = cost_of_run(plan, jobs, rehearsed)
    summary = [
        f"rehearsed   {len(done)} of {counted(len(jobs), 'job')}; {len(failures)} failed, {len(waiting)} wait",
        *(f"failed      {failure.name}: {failure.line} ({failure.log})" for _, failure in failures[:SHOWN]),
    ]
    page = fill("rehearsal.html", title="Rehearsal", summary=summary, head=HEAD, rows=rows, cost=cost)
    Path(PAGE).write_text(page, encoding="utf-8")
    note = ["note        stand-ins: a run has other times and memories"] if plan.config.substitutes else []
    return [*summary, "the run:", *cost, *note, f"page        {Path(PAGE).absolute()}"]


def sort_jobs(
    jobs: Iterable[Job], logs: Mapping[tuple[str, ...], str], stopped: bool = False
) -> tuple[list[tuple[Job, Measured]], list[tuple[Job, Failure]], list[Job]]:
    """Sort jobs into those that finished, those that failed, and those that wait for others or were not started.

    Args:
        jobs: of the rehearsal.
        logs: by outputs of the job.
        stopped: the run was stopped on request: a job that did not finish, and logged no error, waits.
    """
    done, failures, waiting = list[tuple[Job, Measured]](), list[tuple[Job, Failure]](), list[Job]()
    for job in jobs:
        record = _record(job)
        if record is not None:
            done.append((job, measure(record)))
            continue
        log = Path(logs.get(job.outputs, ""))
        started = log.is_file() and all(Path(path).exists() for path in job.inputs)
        if not started:
            waiting.append(job)
            continue
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "ended without a word")
        if stopped and "Error" not in last:
            waiting.append(job)
            continue
        name = " ".join([job.rule, *job.wildcards.values()])
        failures.append((job, Failure(name, str(log), last)))
    return done, failures, waiting


def _record(job: Job) -> dict[str, Any] | None:
    try:
        return read_record(job.outputs[0]) if job.outputs else None
    except ArtifactError:
        return None


def model_kind(plan: Plan, job: Job) -> str:
    """Name the published model that a job's model comes from, or the kind of its method."""
    name = job.wildcards.get("model", "").partition("@")[0]
    method = plan.bench.methods.get(name)
    if isinstance(method, EncoderMethod):
        return method.settings.model
    if isinstance(method, TrainedMethod):
        return line_of(name, plan.bench.methods)[-1].init
    return method.kind if method is not None else ""


def rows_of(
    plan: Plan, done: Iterable[tuple[Job, Measured]], failures: Iterable[tuple[Job, Failure]], waiting: Iterable[Job]
) -> list[Row]:
    """Summarise jobs by rule, kind of model and node, in the order of the plan."""
    groups: dict[tuple[str, str, str], list[tuple[Measured | None, str]]] = defaultdict(list)
    for job, figures in done:
        groups[job.rule, model_kind(plan, job), figures.node].append((figures, ""))
    for job, failure in failures:
        groups[job.rule, model_kind(plan, job), ""].append((None, f"{failure.log}: {failure.line}"))
    for job in waiting:
        groups[job.rule, model_kind(plan, job), ""].append((None, ""))
    rows = []
    for (rule, model, node), jobs in groups.items():
        ran = [figures for figures, _ in jobs if figures is not None]
        lines = [line for _, line in jobs if line]
        mib, gpu_mib = (max((getattr(one, name) for one in ran), default=0.0) for name in ("mib", "gpu_mib"))
        late = len(jobs) - len(ran) - len(lines)
        seconds = sum(one.seconds for one in ran)
        rows.append(Row(rule, model, node, len(ran), len(lines), late, seconds, mib, gpu_mib, next(iter(lines), "")))
    return sorted(rows, key=lambda row: (row.rule, row.model, row.node))


def write_table(rows: Iterable[Row]) -> None:
    """Write the rows as a table."""
    lines = ["\t".join(HEAD)]
    for row in rows:
        cells = [f"{cell:.1f}" if isinstance(cell, float) else str(cell).replace("\t", " ") for cell in row]
        lines.append("\t".join(cells))
    Path(TABLE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def cost_of_run(plan: Plan, jobs: list[Job], rehearsed: Rehearsed) -> list[str]:
    """Estimate what all jobs cost in a run, from what the rehearsal measured."""
    config = plan.config.model_copy(update={"rehearse": False})
    run = Plan(replace(plan.bench, config=config), lambda plan: Estimates(plan, rehearsed=rehearsed))
    estimates = run.machines.estimate
    assert isinstance(estimates, Estimates)
    return [*render(jobs, costs(jobs, estimates, START_S)).split("\n"), *disk_lines(sizes_of(jobs, run)).split("\n")]
