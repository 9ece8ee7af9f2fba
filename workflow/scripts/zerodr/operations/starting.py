"""Check a run before its first job, and start its screen: the Snakefile's `onstart`."""

import os
import sys
from pathlib import Path
from typing import Any

from zerodr.artifacts.guard import (
    QUIET_STAGES,
    advise_profile,
    ask_for_single_run,
    missing_gpus,
    refuse_run,
    replaced_reports,
    withdraw_reports,
)
from zerodr.artifacts.stage import forget_published
from zerodr.config.pins import LOCK, require_repositories
from zerodr.encoders.start.hub import fetch_model
from zerodr.errors import MachineError, ZerodrError
from zerodr.operations.estimate.costs import START_HERE_S, START_S, costs, estimates_of, slowdown
from zerodr.operations.estimate.jobs import jobs_of
from zerodr.operations.estimate.sizes import disk_warning
from zerodr.operations.folders import notices
from zerodr.operations.revisions import lock_models
from zerodr.operations.screen import METRIC, Screen
from zerodr.operations.slurm.cluster import ceilings, check_planned, request_of, require_slurm, submitting
from zerodr.operations.slurm.submission import refusal, start_again, wait_for_jobs
from zerodr.operations.trust import changed_artifacts
from zerodr.operations.warm import fork_jobs
from zerodr.plan import Plan
from zerodr.plan.pins import loose_models, planned_writers
from zerodr.plan.resources import Ceiling
from zerodr.plan.rules import facts_of
from zerodr.plan.targets import idle_variants, other_names
from zerodr.plan.training import uneven_batches

LISTED = 100  # jobs of a dry run that fit a few screens


def start_run(workflow: Any, plan: Plan, limits: dict[str, Ceiling], screen: Screen | None) -> None:
    """Refuse a run that can't work, tell Slurm's limits to the plan, and let the screen expect the jobs.

    Args:
        workflow: Snakemake's workflow, whose graph of jobs is complete.
        plan: its plan.
        limits: the plan's `ceilings`, which are filled in here.
        screen: shows the run, if anything of ours does.

    Raises:
        SystemExit: the run is refused, with a message.
    """
    executor = workflow.executor_plugin.name
    ask_for_single_run()
    for line in notices(plan.bench):
        sys.stderr.write(f"{line}\n")
    for asked, path in other_names(sys.orig_argv, plan).items():
        sys.stderr.write(f"{asked} is written as {path}\n")
    sys.stderr.write("".join(f"{line}\n" for line in _idle(workflow, plan)))
    forget_published()
    planned = list(workflow.dag.needrun_jobs())
    refuse_run(changed_artifacts(str(path) for job in planned for path in job.output))
    if any(facts_of(job.rule.name).kind == "publish" for job in planned):
        refuse_run(_store_problem())
    _lock_models(plan, planned)
    _fetch_writers(plan, planned)
    sys.stderr.write("".join(f"{line}\n" for line in _warnings(plan, planned)))
    if executor == "slurm":
        _prepare_slurm(workflow, limits)
    else:
        advise_profile(workflow.rerun_triggers)
        if screen is not None:
            os.environ[QUIET_STAGES] = "1"
    if executor == "local":
        refuse_run(missing_gpus((job.rule.name, plan.machines.gpus(job.rule.name)) for job in planned))
        if plan.config.warm_start:
            fork_jobs()
    reports = [(job.rule.name, job.output) for job in planned]
    if gone := replaced_reports(reports, plan.config.scale):
        sys.stderr.write(f"{gone}\n")
    withdraw_reports(reports)
    if screen is not None:
        here = executor == "local"
        seconds = _expected_seconds(plan, planned, START_HERE_S if here else START_S)
        expected = dict(zip(map(workflow.dag.jobid, planned), seconds, strict=True))
        screen.expect(expected, here, next(iter(plan.config.measures), METRIC))


def _expected_seconds(plan: Plan, planned: list[Any], start: float) -> list[float]:
    """Estimate each job. A rehearsal's do little work, whatever their stage's settings say, and count alike.

    Jobs whose like has not run here take longer next to other work on this machine.
    """
    if plan.config.rehearse:
        return [start] * len(planned)
    known = costs(jobs_of(planned), estimates_of(plan), start)
    slower = dict.fromkeys(known.reckoned, slowdown() if start == START_HERE_S else 1.0)
    return [seconds * slower.get(number, 1.0) for number, seconds in enumerate(known.seconds)]


def foretell(workflow: Any, plan: Plan, slurm: bool) -> list[str]:
    """List what a run with this command line would be refused for, or does first; nothing is submitted or asked."""
    jobs = list(workflow.dag.needrun_jobs(exclude_finished=False))  # a dry run finishes all
    lines, refused = list[str](), [changed_artifacts(str(path) for job in jobs for path in job.output)]
    if len(jobs) > LISTED and not workflow.output_settings.quiet:
        lines.append(f"{len(jobs):,} jobs are listed above one by one; add --quiet rules to count them by rule alone.")
    if models := loose_models(plan, _models_of(jobs)):
        try:
            require_repositories(models)
            lines.append(f"The run asks the hub for the commit of {', '.join(models)} first, and locks it in {LOCK}.")
        except ZerodrError as error:
            refused.append(str(error))
    lines += _idle(workflow, plan)
    if gone := replaced_reports([(job.rule.name, job.output) for job in jobs], plan.config.scale):
        lines.append(gone)
    lines += _warnings(plan, jobs)
    if any(facts_of(job.rule.name).kind == "publish" for job in jobs):
        refused.append(_store_problem())
    if not slurm:
        refused.append(missing_gpus((job.rule.name, plan.machines.gpus(job.rule.name)) for job in jobs))
    elif jobs:
        try:
            require_slurm()
            check_planned(plan, (job.rule.name for job in jobs))
        except ZerodrError as error:
            refused.append(str(error))
    return [*lines, *(f"A run here is refused: {problem}" for problem in refused if problem)]


def _idle(workflow: Any, plan: Plan) -> list[str]:
    """Return the line on variants that this run makes nothing of, if there are any."""
    if not plan.bench.overridden:
        return []
    outputs = (path for job in workflow.dag.jobs for path in job.output)
    line = idle_variants(sys.orig_argv, outputs, plan)
    return [line] if line else []


def _lock_models(plan: Plan, planned: list[Any]) -> None:
    """Lock hub models without a revision, then plan again: their commits are part of what jobs are."""
    models = loose_models(plan, _models_of(planned))
    if not models:
        return
    try:
        lines = lock_models(models, plan.config.offline, plan.bench.root)
    except ZerodrError as error:
        refuse_run(str(error))
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    start_again()


def _warnings(plan: Plan, planned: list[Any]) -> list[str]:
    """Return the lines on a lack of room, and on batches that the GPUs can't share.

    A rehearsal writes little, and its report has the line of the run on room.
    """
    room = "" if plan.config.rehearse else disk_warning(jobs_of(planned), plan)
    uneven = uneven_batches(plan, ((job.rule.name, job.wildcards) for job in planned))
    return [line for line in (room, uneven) if line]


def _fetch_writers(plan: Plan, planned: list[Any]) -> None:
    """Download the language models of the hub that jobs without a way to it read."""
    try:
        for name, commit in planned_writers(plan, _models_of(planned)).items():
            fetch_model(name, commit, plan.config.offline)
    except ZerodrError as error:
        refuse_run(str(error))


def _models_of(jobs: list[Any]) -> list[tuple[str, str]]:
    return [(job.rule.name, job.wildcards.get("model", "")) for job in jobs]


def _store_problem() -> str:
    """Return why the run's last job could not publish; empty where it can."""
    from zerodr.lineage.store import RENAME, path_problem, shown_uri, tracking_uri

    problem = path_problem(tracking_uri())
    return str(MachineError(shown_uri(tracking_uri()), problem, RENAME)) if problem else ""


def _prepare_slurm(workflow: Any, limits: dict[str, Ceiling]) -> None:
    """Check that Slurm takes the jobs, read its limits, and wait for jobs of an earlier run."""
    settings, common = workflow.executor_settings, submitting(workflow.executor_settings)
    jobs = [job for job in workflow.dag.needrun_jobs() if not job.is_local]
    asks = [request_of(job.rule.name, dict(job.resources), job.threads, common) for job in jobs]
    refuse_run(refusal(asks, Path.cwd(), settings.status_command))
    limits.update(ceilings(asks))
    if wait_for_jobs(Path.cwd()):
        start_again()
