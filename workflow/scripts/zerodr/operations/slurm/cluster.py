"""Check before the first job that a Slurm cluster can run all jobs, so that none waits in vain.

Partitions, accounts and walltimes come from the profile (config/profiles/slurm); this module names no cluster.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from zerodr.errors import MachineError, nearest
from zerodr.plan import Plan
from zerodr.plan.resources import Ceiling

COMMANDS = ("sbatch", "sinfo", "squeue", "scancel")
NODES = ["sinfo", "--noheader", "--Node", "--format=%P|%l|%c|%m|%G|%T|%a"]
PATIENCE_S = 30
MINUTES = re.compile(r"^(?:(?P<days>\d+)-)?(?:(?P<a>\d+):)?(?P<b>\d+)(?::(?P<c>\d+))?$")
GPUS = re.compile(r"(?:^|,)gpu(?::[\w.-]+)*?:(\d+)(?![\w.:-])")
AWAY = ("down", "drain", "fail", "error", "unknown", "inval", "future", "inact")
"""Beginnings of the states of nodes and partitions that start no job until an administrator acts."""
PROFILE = "config/profiles/slurm/config.yaml"


@dataclass(frozen=True)
class ClusterNode:
    """Size of one node: cores, MiB of memory, GPUs."""

    cores: int
    memory_mib: int
    gpus: int


@dataclass(frozen=True)
class Partition:
    """A queue.

    Attributes:
        name: as `sbatch -p` takes it.
        default: true when jobs without a partition go here.
        minutes: the longest walltime; None when there is no limit.
        nodes: sizes of its nodes that start jobs.
        away: number of its nodes that are down or drained, or all where it is itself.
    """

    name: str
    default: bool
    minutes: int | None
    nodes: tuple[ClusterNode, ...]
    away: int = 0


@dataclass(frozen=True, order=True)
class JobRequest:
    """Resources that jobs of one rule request from Slurm.

    Attributes:
        rule: their rule.
        gpus: of all nodes.
        nodes: machines of a job.
        cores: of one node's task.
        memory_mib: of a node.
        minutes: walltime.
        partition: as configured, possibly several separated by commas.
        account: as configured; jobs are submitted with the first.
        queue: further options for where jobs may run (`--qos=`, `--reservation=`, `--constraint=`, `--clusters=`).
        shape: options of sbatch only (GPUs, nodes, slurm_extra).
        chosen_later: no partition is named, and the plugin chooses one from its list (slurm-partition-config).
    """

    rule: str
    gpus: int = 0
    nodes: int = 1
    cores: int = 1
    memory_mib: int = 0
    minutes: int = 0
    partition: str = ""
    account: str = ""
    queue: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()
    chosen_later: bool = False

    @property
    def elsewhere(self) -> bool:
        """True when this cluster's partitions do not decide about it."""
        return self.chosen_later or any(word.startswith("--clusters") for word in self.queue)


@dataclass(frozen=True)
class Submitting:
    """Settings of the executor plugin (`--slurm-qos` and so on) that are the same for all jobs."""

    qos: str = ""
    reservation: str = ""
    partition_file: bool = False


def submitting(settings: Any) -> Submitting:
    """Read the plugin's settings and the environment, as the plugin does."""
    file = settings.partition_config or os.environ.get("SNAKEMAKE_SLURM_PARTITIONS")
    return Submitting(settings.qos or "", settings.reservation or "", bool(file))


def request_of(rule: str, resources: dict[str, Any], cores: int, common: Submitting | None = None) -> JobRequest:
    """Read the request of a Snakemake job from its resources; a value that is no number yet counts as 0."""

    def number(name: str) -> int:
        value = resources.get(name)
        return int(value) if isinstance(value, int | float) else 0

    def text(*names: str) -> str:
        return next((str(resources[name]) for name in names if resources.get(name)), "")

    common = common or Submitting()
    gpus, nodes, partition = number("gpu"), number("nodes"), text("slurm_partition")
    model = f"{text('gpu_model')}:" if text("gpu_model") else ""
    queue = {
        "clusters": text("cluster", "clusters", "slurm_cluster"),
        "constraint": text("constraint"),
        "qos": common.qos or text("qos"),
        "reservation": common.reservation,
    }
    shape = {"gres": text("gres"), "gpus": f"{model}{gpus}" if gpus else "", "nodes": str(nodes or "")}
    gpus = gpus or sum(map(int, GPUS.findall(text("gres"))))
    by_gpu = number("cpus_per_gpu") * -(-gpus // (nodes or 1))
    cores = max(1, number("cpus_per_task") or by_gpu or cores)  # below 0: as many as the cluster gives
    return JobRequest(
        rule=rule,
        gpus=gpus,
        nodes=nodes or 1,
        cores=cores,
        memory_mib=number("mem_mb_per_cpu") * cores or number("mem_mb"),
        minutes=number("runtime"),
        partition=partition,
        account=text("slurm_account"),
        queue=_options(queue),
        shape=(*_options(shape), *shlex.split(text("slurm_extra"))),
        chosen_later=common.partition_file and not partition,
    )


def _options(values: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"--{name}={value}" for name, value in values.items() if value)


def require_slurm() -> None:
    """Check that Slurm's commands are here.

    Raises:
        MachineError: this host has no Slurm.
    """
    if absent := [name for name in COMMANDS if shutil.which(name) is None]:
        problem = f"{', '.join(absent)} not on PATH: this host is no login node of a Slurm cluster"
        raise MachineError("Slurm", problem, "run it on a login node, or use --profile config/profiles/local")


def read_partitions() -> dict[str, Partition]:
    """Read the cluster's partitions.

    Raises:
        MachineError: this host has no Slurm, or its controller does not answer.
    """
    require_slurm()
    done = ask_slurm(NODES)
    if done.returncode:
        problem = f"its controller does not answer ({last_line(done.stderr)})"
        raise MachineError("Slurm", problem, "ask the cluster's administrators, or wait")
    return parse_partitions(done.stdout)


def parse_partitions(text: str) -> dict[str, Partition]:
    """Parse lines `partition|walltime|cores|memory|gres|states`, one a node, as `sinfo` prints; `*` marks the default.

    Other lines, such as `CLUSTER: name` where several clusters are asked, are left out.
    """
    partitions: dict[str, Partition] = {}
    for line in text.splitlines():
        if line.count("|") < 4:
            continue
        name, time, cores, memory, gres, *state = line.strip().split("|")
        key = name.rstrip("*")
        node = ClusterNode(_leading(cores), _leading(memory), sum(map(int, GPUS.findall(gres))))
        known = partitions.get(key, Partition(key, name.endswith("*"), minutes_of(time), ()))
        away = any(word.lower().startswith(AWAY) for word in state)
        nodes = known.nodes if away else (*known.nodes, node)
        partitions[key] = replace(known, nodes=nodes, away=known.away + away)
    return partitions


def _leading(text: str) -> int:
    """Parse the number at the start: `8`, `8+` -> 8."""
    # sinfo prints `8+` where the nodes of a partition differ.
    return int("0" + "".join(re.findall(r"^\d+", text)))


def minutes_of(text: str) -> int | None:
    """Parse Slurm's `[days-]hours:minutes:seconds` or `minutes:seconds` to minutes; None for `infinite`."""
    match = MINUTES.match(text.strip())
    if not match:
        return None
    days, a, b, c = (int(match[name] or 0) for name in ("days", "a", "b", "c"))
    if match["c"] is not None:
        return days * 1440 + a * 60 + b
    return days * 1440 + a if match["a"] is not None else days * 1440 + b


@dataclass(frozen=True, order=True)
class Unfit:
    """A misfit of jobs and partition: the reason, the step, and the value for `--set-resources`."""

    reason: str
    advice: str
    setting: str = ""


# snakemake-executor-plugin-slurm issue 320: a refusal of sbatch ends the run while its other jobs stay in the queue.
def check_fit(requests: Iterable[JobRequest], partitions: dict[str, Partition]) -> None:
    """Check that for each request some node can hold the job and its partition allows the walltime.

    Raises:
        MachineError: lists all rules that do not fit, by their largest job; rules with the same reason together.
    """
    rules: dict[Unfit, list[str]] = {}
    seen: set[tuple[str, str, str]] = set()
    for request in sorted(set(requests), key=lambda r: (-r.memory_mib, -r.minutes, r.rule)):
        misfit = unfit(request, partitions)
        if misfit and (request.rule, misfit.advice, misfit.setting) not in seen:
            seen.add((request.rule, misfit.advice, misfit.setting))
            rules.setdefault(misfit, []).append(request.rule)
    if rules:
        (first, names), *others = rules.items()
        reasons = [_reason(first, names), *(f"{', '.join(some)}: {_reason(misfit, some)}" for misfit, some in others)]
        advice = "; ".join(dict.fromkeys(_advice(misfit, some) for misfit, some in rules.items()))
        raise MachineError(", ".join(names), "; ".join(reasons), advice)


def _reason(why: Unfit, rules: list[str]) -> str:
    return f"each {why.reason}" if len(rules) > 1 else why.reason


def _advice(why: Unfit, rules: list[str]) -> str:
    changes = " ".join(f"{rule}:{why.setting}" for rule in rules) if why.setting else ""
    return why.advice.replace("{changes}", changes)


def unfit(request: JobRequest, partitions: dict[str, Partition]) -> Unfit | None:
    """Return why the first partition of a request can't run its jobs; None when one can, or none is known."""
    names = names_of(request, partitions)
    if request.elsewhere:
        return None
    if not names:
        step = f"set slurm_partition in {PROFILE}: {nearest('', partitions)}"
        return Unfit("names no partition and this cluster has no default one", step)
    misfits = [_unfit_for(request, name, partitions) for name in names]
    return None if None in misfits else misfits[0]


def _unfit_for(request: JobRequest, name: str, partitions: dict[str, Partition]) -> Unfit | None:
    if name not in partitions:
        step = f"change {PROFILE}: {nearest(name, partitions)}"
        return Unfit(f"requests partition {name}, which is not known to this cluster", step)
    partition, gpus = partitions[name], -(-request.gpus // request.nodes)
    if not partition.nodes:
        reason = f"requests partition {name}, which is down, or its nodes are all down or drained ({partition.away})"
        return Unfit(reason, f"wait, or name another partition in {PROFILE}")
    most = max(node.gpus for node in partition.nodes)
    if gpus > most:
        larger = [other.name for other in partitions.values() if any(node.gpus >= gpus for node in other.nodes)]
        ways = [f"lower gpus (--config gpus={most * request.nodes})", "raise nodes"] if most else []
        ways += [f"set slurm_partition of these rules to {' or '.join(larger)} in {PROFILE}"] if larger else []
        reason = f"requests {gpus} GPUs on a node, the largest node of partition {name} has {most}"
        return Unfit(reason, ", or ".join(ways) or "use the CPU (--config gpus=0)")
    if request.nodes > len(partition.nodes):
        reason = f"requests {request.nodes} nodes, partition {name} has {len(partition.nodes)}"
        return Unfit(reason, "lower nodes, or choose another partition")
    fitting = [node for node in partition.nodes if node.gpus >= gpus]
    largest = f"the largest node of partition {name} {'with a GPU ' if gpus else ''}has"
    cores = max(node.cores for node in fitting)
    if request.cores > cores:
        return Unfit(f"requests {request.cores} cores, {largest} {cores}", f"lower it with --max-threads {cores}")
    some, fitting = fitting, [node for node in fitting if node.cores >= request.cores]
    memory = max(node.memory_mib for node in fitting)
    if request.memory_mib > memory:
        if memory < max(node.memory_mib for node in some):
            largest = f"the largest node of partition {name} with {request.cores} cores has"
        reason = f"requests {request.memory_mib} MiB of memory, {largest} {memory}"
        return Unfit(reason, "lower it with --set-resources {changes}", f"mem_mb={memory}")
    large = sum(node.memory_mib >= request.memory_mib for node in fitting)
    if request.nodes > large:
        reason = f"requests {request.nodes} nodes of that size, partition {name} has {large}"
        return Unfit(reason, "lower nodes, or choose another partition")
    if partition.minutes is not None and request.minutes > partition.minutes:
        reason = f"requests {request.minutes} minutes, partition {name} allows {partition.minutes}"
        step = "--set-resources {changes}; a longer training resumes in its next attempt (--retries)"
        return Unfit(reason, step, f"runtime={partition.minutes}")
    return None


def names_of(request: JobRequest, partitions: dict[str, Partition]) -> list[str]:
    """List the partitions of a request: those that it names, separated by commas, else the cluster's default."""
    named = [name for name in request.partition.split(",") if name]
    return named or [partition.name for partition in partitions.values() if partition.default][:1]


def ceilings(requests: Iterable[JobRequest]) -> dict[str, Ceiling]:
    """Return the largest memory of a fitting node and the longest walltime, by rule: upper limits of later attempts."""
    distinct = sorted(set(requests))
    partitions = read_partitions() if distinct else {}
    limits: dict[str, Ceiling] = {}
    for request in (request for request in distinct if not request.elsewhere):
        queues = [partitions[name] for name in names_of(request, partitions) if name in partitions]
        gpus = -(-request.gpus // request.nodes)
        nodes = [node for queue in queues for node in queue.nodes]
        memory = [node.memory_mib for node in nodes if node.gpus >= gpus and node.cores >= request.cores]
        minutes = [queue.minutes for queue in queues]
        longest = None if None in minutes else max((limit for limit in minutes if limit is not None), default=None)
        limits[request.rule] = Ceiling(max(memory, default=None), longest)
    return limits


def check_planned(plan: Plan, rules: Iterable[str]) -> None:
    """Check that no planned rule needs more GPUs on a node than this cluster's largest has; skipped without Slurm.

    Raises:
        MachineError: a rule needs more.
    """
    if any(shutil.which(name) is None for name in COMMANDS):
        return
    done = ask_slurm(NODES)
    if done.returncode or not done.stdout.strip():
        return
    nodes = [node for partition in parse_partitions(done.stdout).values() for node in partition.nodes]
    most = max((node.gpus for node in nodes), default=0)
    for rule in dict.fromkeys(rules):
        gpus = -(-plan.machines.gpus(rule) // plan.machines.nodes(rule))
        if gpus > most:
            problem = f"requests {gpus} GPUs on a node, the largest node of this cluster has {most}"
            step = f"lower gpus (--config gpus={most * plan.machines.nodes(rule)}) or raise nodes"
            raise MachineError(rule, problem, step if most else "use the CPU (--config gpus=0)")


def ask_slurm(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands; one that hangs counts as failed."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False, encoding="utf-8")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]}: no answer within {PATIENCE_S} s")


def last_line(text: str) -> str:
    """Return the last line of a command's output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"
