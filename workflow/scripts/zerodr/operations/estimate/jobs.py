"""List the jobs that a target still needs, as Snakemake plans them, and estimate how long they take together."""

import heapq
import logging
import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from types import SimpleNamespace
from typing import Any

from zerodr.artifacts.guard import OURS, plainly
from zerodr.errors import ConfigError, MachineError
from zerodr.plan import Plan
from zerodr.plan.rules import Rule, facts_of
from zerodr.plan.targets import is_target, nearest_target


def order(before: list[list[int]]) -> list[int]:
    """Sort positions so that each comes after those `before` it."""
    return list(TopologicalSorter(dict(enumerate(before))).static_order())


def followers(before: list[list[int]]) -> list[list[int]]:
    """List for each job those that wait for it."""
    after: list[list[int]] = [[] for _ in before]
    for number, jobs in enumerate(before):
        for job in jobs:
            after[job].append(number)
    return after


def tails(seconds: list[float], before: list[list[int]]) -> list[float]:
    """Return for each job its time and that of the longest chain after it."""
    after, tail = followers(before), list(seconds)
    for number in reversed(order(before)):
        tail[number] = seconds[number] + max((tail[later] for later in after[number]), default=0.0)
    return tail


def longest_path(seconds: list[float], before: list[list[int]]) -> list[int]:
    """Return the critical path, first to last."""
    tail, after, path = tails(seconds, before), followers(before), []
    candidates = list(range(len(seconds)))
    while candidates:
        path.append(max(candidates, key=tail.__getitem__))
        candidates = after[path[-1]]
    return path


def makespan(seconds: list[float], gpus: list[int], before: list[list[int]], farm: int) -> float:
    """Return the seconds until all jobs are finished with `farm` GPUs and as many CPU nodes as they need.

    A list schedule: of the GPU jobs that could start, the one with the longest chain after it starts first.

    Raises:
        MachineError: a job needs more GPUs than there are.
    """
    if max(gpus, default=0) > farm:
        raise MachineError("plan", f"a job needs {max(gpus)} GPUs, the schedule has {farm}", "lower gpus")
    tail, after = tails(seconds, before), followers(before)
    waits, free, now = [len(jobs) for jobs in before], farm, 0.0
    running: list[tuple[float, int]] = []
    queue: list[tuple[float, int]] = []

    def release(number: int) -> None:
        if gpus[number]:
            heapq.heappush(queue, (-tail[number], number))
        else:
            heapq.heappush(running, (now + seconds[number], number))

    for number in [number for number, count in enumerate(waits) if count == 0]:
        release(number)
    while running or queue:
        while queue and gpus[queue[0][1]] <= free:
            _, number = heapq.heappop(queue)
            free -= gpus[number]
            heapq.heappush(running, (now + seconds[number], number))
        now, number = heapq.heappop(running)
        free += gpus[number]
        for later in after[number]:
            waits[later] -= 1
            if waits[later] == 0:
                release(later)
    return now


REASON = re.compile(r"\w*Error: ")


@dataclass(frozen=True)
class Job:
    """One planned job: its rule, wildcards, and the files that it reads and writes."""

    rule: str
    wildcards: dict[str, str]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def facts(self) -> Rule:
        """Facts of its rule."""
        return facts_of(self.rule)

    @property
    def asked(self) -> Any:
        """Return the wildcards in the form that rules' functions take."""
        return SimpleNamespace(**self.wildcards)


def job_for(rule: str, wildcards: Any) -> Job:
    """Return a job of a rule with the wildcards that Snakemake gives its functions."""
    return Job(rule, {name: value for name, value in vars(wildcards).items() if isinstance(value, str)})


def jobs_of(planned: Iterable[Any]) -> list[Job]:
    """Convert Snakemake's jobs."""
    return [
        Job(job.rule.name, dict(job.wildcards.items()), tuple(map(str, job.input)), tuple(map(str, job.output)))
        for job in planned
    ]


class _Listener(logging.Handler):
    """Collects the jobs of a dry run, and what Snakemake complains of."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.jobs: list[Job] = []
        self.complaints: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        facts: Any = record
        if getattr(record, "event", None) == "job_info":
            self.jobs.append(Job(facts.rule_name, dict(facts.wildcards), tuple(facts.input), tuple(facts.output)))
        elif record.levelno >= logging.WARNING:
            self.complaints += [line.strip() for line in record.getMessage().splitlines() if line.strip()]


def planned_jobs(target: str, values: Mapping[str, Any], plan: Plan) -> list[Job]:
    """List the jobs that Snakemake would run for a target; `plan` is the plan of these `values` of the configuration.

    Raises:
        ConfigError: Snakemake refuses the target or the configuration; the message repeats its reason.
    """
    listener = _Listener()
    if _dry_run(target, values, listener):
        return listener.jobs
    lines = listener.complaints or ["no reason is known"]
    reason = plainly(next((line for line in lines if REASON.match(line)), lines[-1])).split(" (if ")[0].rstrip(".")
    if OURS.match(reason):  # it contains the next step
        raise ConfigError(target, f"can't be planned: {OURS.sub('', reason, count=1)}")
    step = f"see: snakemake -n {target}" if is_target(target, plan) else nearest_target(target, plan)
    raise ConfigError(target, f"can't be planned: {reason}", step)


def _dry_run(target: str, values: Mapping[str, Any], listener: logging.Handler) -> bool:
    """Plan a target by Snakemake's library, as the profiles do; return whether that was possible.

    Its log records carry the jobs: the API gives no access to the graph itself.
    """
    from snakemake.api import SnakemakeApi
    from snakemake.exceptions import RuleException, WorkflowError
    from snakemake.settings.types import (
        ConfigSettings,
        DAGSettings,
        ExecutionSettings,
        OutputSettings,
        RerunTrigger,
        ResourceSettings,
    )
    from snakemake_interface_common.exceptions import ApiError

    triggers = frozenset((RerunTrigger.MTIME, RerunTrigger.PARAMS, RerunTrigger.INPUT))
    wanted = DAGSettings(targets={target}, rerun_triggers=triggers, force_incomplete=True)
    stopping = signal.getsignal(signal.SIGTERM)
    with SnakemakeApi(OutputSettings(dryrun=True, enable_file_logging=False)) as api:
        log = api.logger_manager.logger
        log.handlers, log.propagate = [listener], False  # nothing on the screen
        try:
            workflow = api.workflow(ResourceSettings(cores=1), ConfigSettings(config=dict(values), config_args=()))
            workflow.dag(wanted).execute_workflow("dryrun", execution_settings=ExecutionSettings(lock=False))
        except (ApiError, RuleException, WorkflowError) as error:
            api.print_exception(error)
            return False
        finally:
            log.propagate = True
            signal.signal(signal.SIGTERM, stopping)  # its scheduler took the signal
    return True
