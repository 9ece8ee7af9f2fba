"""What a Slurm cluster offers, and whether jobs fit it: asked before the first job, so that nothing waits in vain.

Partitions, accounts and walltimes come from the profile (config/profiles/slurm); no cluster's names stand here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zerodr.errors import MachineError, nearest
from zerodr.plan import Plan
from zerodr.plan.resources import Ceiling

COMMANDS = ("sbatch", "sinfo", "squeue", "scancel")
NODES = ["sinfo", "--noheader", "--Node", "--format=%P|%l|%c|%m|%G"]
PATIENCE_S = 30
MINUTES = re.compile(r"^(?:(?P<days>\d+)-)?(?:(?P<a>\d+):)?(?P<b>\d+)(?::(?P<c>\d+))?$")
GPUS = re.compile(r"(?:^|,)gpu(?::[\w.-]+)?:(\d+)")
PROFILE = "config/profiles/slurm/config.yaml"


@dataclass(frozen=True)
class Node:
    """Size of one node: cores, MiB of memory, GPUs."""

    cores: int
    memory_mib: int
    gpus: int


@dataclass(frozen=True)
class Partition:
    """A queue.

    Attributes:
        name: as `sbatch -p` takes it.
        default: jobs without a partition go here.
        minutes: the longest walltime; None when there is no limit.
        nodes: sizes of its nodes.
    """

    name: str
    default: bool
    minutes: int | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, order=True)
class Ask:
    """What jobs of one rule ask of Slurm.

    Attributes:
        rule: their rule.
        gpus: of all nodes.
        nodes: machines of a job.
        cores: of one node's task.
        memory_mib: of a node.
        minutes: walltime.
        partition: as written, maybe several with commas between.
        account: likewise; jobs are submitted with the first.
        queue: further options that say where jobs may run (`--qos=`, `--reservation=`, `--constraint=`, `--clusters=`).
        shape: options of sbatch alone (GPUs, nodes, slurm_extra).
        chosen_later: no partition is named, and the plugin takes one from its own list (slurm-partition-config).
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
        """Whether this cluster's partitions say nothing about it."""
        return self.chosen_later or any(word.startswith("--clusters") for word in self.queue)


@dataclass(frozen=True)
class Submitting:
    """Settings of the executor plugin (`--slurm-qos` and so on) that are the same for all jobs."""

    qos: str = ""
    reservation: str = ""
    partition_file: bool = False


def submitting(settings: Any) -> Submitting:
    """From the plugin's settings and the environment, as the plugin reads them."""
    file = settings.partition_config or os.environ.get("SNAKEMAKE_SLURM_PARTITIONS")
    return Submitting(settings.qos or "", settings.reservation or "", bool(file))


def ask_of(rule: str, resources: dict[str, Any], cores: int, common: Submitting | None = None) -> Ask:
    """The ask of a Snakemake job, from its resources; what is no number yet counts as nothing."""

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
    return Ask(
        rule,
        gpus or sum(map(int, GPUS.findall(text("gres")))),
        nodes or 1,
        cores,
        number("mem_mb"),
        number("runtime"),
        partition,
        text("slurm_account"),
        _options(queue),
        (*_options(shape), *shlex.split(text("slurm_extra"))),
        common.partition_file and not partition,
    )


def _options(values: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"--{name}={value}" for name, value in values.items() if value)


def read_partitions() -> dict[str, Partition]:
    """The cluster's partitions.

    Raises:
        MachineError: there is no Slurm here, or its controller does not answer.
    """
    absent = [name for name in COMMANDS if shutil.which(name) is None]
    if absent:
        raise MachineError(
            "Slurm",
            f"{', '.join(absent)} not on PATH: this host is no login node of a Slurm cluster",
            "run it there, or use --profile config/profiles/local",
        )
    done = ask_slurm(NODES)
    if done.returncode:
        raise MachineError(
            "Slurm",
            f"its controller does not answer ({last_words(done.stderr)})",
            "ask the cluster's administrators, or wait",
        )
    return parse_partitions(done.stdout)


def parse_partitions(text: str) -> dict[str, Partition]:
    """Lines `partition|walltime|cores|memory|gres`, one a node, as `sinfo` prints them; `*` marks the default."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        name, time, cores, memory, gres = line.strip().split("|")
        key = name.rstrip("*")
        node = Node(_leading(cores), _leading(memory), sum(map(int, GPUS.findall(gres))))
        before = found[key].nodes if key in found else ()
        found[key] = Partition(key, name.endswith("*"), minutes_of(time), (*before, node))
    return found


def _leading(text: str) -> int:
    """`8`, `8+` -> 8."""
    return int("0" + "".join(re.findall(r"^\d+", text)))


def minutes_of(text: str) -> int | None:
    """Slurm's `[days-]hours:minutes:seconds` or `minutes:seconds` in minutes; None for `infinite`."""
    found = MINUTES.match(text.strip())
    if not found:
        return None
    days, a, b, c = (int(found[name] or 0) for name in ("days", "a", "b", "c"))
    if found["c"] is not None:
        return days * 1440 + a * 60 + b
    return days * 1440 + a if found["a"] is not None else days * 1440 + b


@dataclass(frozen=True, order=True)
class Unfit:
    """Why jobs can't run in a partition: the reason, what helps, and what `--set-resources` would lower."""

    reason: str
    advice: str
    setting: str = ""


def check_fit(asks: Iterable[Ask], partitions: dict[str, Partition]) -> None:
    """Some node of a partition of each ask can hold the job, and that partition lets it run that long.

    Raises:
        MachineError: names every rule that does not fit by its largest job, those with the same reason together.
    """
    rules: dict[Unfit, list[str]] = {}
    seen: set[tuple[str, str, str]] = set()
    for ask in sorted(set(asks), key=lambda ask: (-ask.memory_mib, -ask.minutes, ask.rule)):
        found = unfit(ask, partitions)
        if found and (ask.rule, found.advice, found.setting) not in seen:
            seen.add((ask.rule, found.advice, found.setting))
            rules.setdefault(found, []).append(ask.rule)
    if rules:
        (first, names), *others = rules.items()
        told = "; ".join([_reason(first, names), *(f"{', '.join(them)}: {_reason(why, them)}" for why, them in others)])
        advice = "; ".join(dict.fromkeys(_advice(why, them) for why, them in rules.items()))
        raise MachineError(", ".join(names), told, advice)


def _reason(why: Unfit, rules: list[str]) -> str:
    return f"each {why.reason}" if len(rules) > 1 else why.reason


def _advice(why: Unfit, rules: list[str]) -> str:
    changes = " ".join(f"{rule}:{why.setting}" for rule in rules) if why.setting else ""
    return why.advice.replace("{changes}", changes)


def unfit(ask: Ask, partitions: dict[str, Partition]) -> Unfit | None:
    """Why no partition of an ask can run its jobs: that of the first one; None where some can, or none is known."""
    names = names_of(ask, partitions)
    if ask.elsewhere:
        return None
    if not names:
        return Unfit(
            "names no partition and this cluster has no default one",
            f"set slurm_partition in {PROFILE}: {nearest('', partitions)}",
        )
    found = [
        _unfit_for(ask, partitions[name], partitions) if name in partitions else _unknown(name, partitions)
        for name in names
    ]
    return None if None in found else found[0]


def _unknown(name: str, partitions: dict[str, Partition]) -> Unfit:
    return Unfit(
        f"asks for partition {name}, which is not known to this cluster",
        f"change {PROFILE}: {nearest(name, partitions)}",
    )


def _unfit_for(ask: Ask, partition: Partition, partitions: dict[str, Partition]) -> Unfit | None:
    name, gpus = partition.name, -(-ask.gpus // ask.nodes)
    most = max(node.gpus for node in partition.nodes)
    if gpus > most:
        larger = [other.name for other in partitions.values() if max(node.gpus for node in other.nodes) >= gpus]
        ways = [f"lower gpus (--config gpus={most * ask.nodes})", "raise nodes"] if most else []
        ways += [f"set slurm_partition of these rules to {' or '.join(larger)} in {PROFILE}"] if larger else []
        return Unfit(
            f"asks for {gpus} GPUs on a node, the largest node of partition {name} has {most}",
            ", or ".join(ways) or "work on the CPU (--config gpus=0)",
        )
    if ask.nodes > len(partition.nodes):
        return Unfit(
            f"asks for {ask.nodes} nodes, partition {name} has {len(partition.nodes)}",
            "lower nodes, or choose another partition",
        )
    fitting = [node for node in partition.nodes if node.gpus >= gpus]
    kind = "with a GPU " if gpus else ""
    cores, memory = max(node.cores for node in fitting), max(node.memory_mib for node in fitting)
    if ask.cores > cores:
        return Unfit(
            f"asks for {ask.cores} cores, the largest node of partition {name} {kind}has {cores}",
            f"lower it with --max-threads {cores}",
        )
    if ask.memory_mib > memory:
        return Unfit(
            f"asks for {ask.memory_mib} MiB of memory, the largest node of partition {name} {kind}has {memory}",
            "lower it with --set-resources {changes}",
            f"mem_mb={memory}",
        )
    if partition.minutes is not None and ask.minutes > partition.minutes:
        return Unfit(
            f"asks for {ask.minutes} minutes, partition {name} allows {partition.minutes}",
            "--set-resources {changes}; a training that takes longer goes on in its next attempt (--retries)",
            f"runtime={partition.minutes}",
        )
    return None


def names_of(ask: Ask, partitions: dict[str, Partition]) -> list[str]:
    """Partitions that an ask may go to: those that it names, separated by commas, else the cluster's default."""
    named = [name for name in ask.partition.split(",") if name]
    return named or [partition.name for partition in partitions.values() if partition.default][:1]


def ceilings(asks: Iterable[Ask]) -> dict[str, Ceiling]:
    """The most memory of a fitting node and the longest walltime, by rule: no later attempt needs to ask for more."""
    distinct = sorted(set(asks))
    partitions = read_partitions() if distinct else {}
    found: dict[str, Ceiling] = {}
    for ask in (ask for ask in distinct if not ask.elsewhere):
        queues = [partitions[name] for name in names_of(ask, partitions) if name in partitions]
        gpus = -(-ask.gpus // ask.nodes)
        memory = [node.memory_mib for queue in queues for node in queue.nodes if node.gpus >= gpus]
        minutes = [queue.minutes for queue in queues]
        longest = None if None in minutes else max((limit for limit in minutes if limit is not None), default=None)
        found[ask.rule] = Ceiling(max(memory, default=None), longest)
    return found


def check_planned(plan: Plan, rules: Iterable[str]) -> None:
    """No planned rule asks for more GPUs on a node than this cluster's largest has; without Slurm nothing is asked.

    Raises:
        MachineError: one does.
    """
    if any(shutil.which(name) is None for name in COMMANDS):
        return
    done = ask_slurm(NODES)
    if done.returncode or not done.stdout.strip():
        return
    most = max(node.gpus for partition in parse_partitions(done.stdout).values() for node in partition.nodes)
    for rule in dict.fromkeys(rules):
        wanted = -(-plan.machines.gpus(rule) // plan.machines.nodes(rule))
        if wanted > most:
            lower = f"lower gpus (--config gpus={most * plan.machines.nodes(rule)}) or raise nodes"
            raise MachineError(
                rule,
                f"asks for {wanted} GPUs on a node, the largest node of this cluster has {most}",
                lower if most else "work on the CPU (--config gpus=0)",
            )


def ask_slurm(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands; one that hangs counts as failed."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]}: no answer within {PATIENCE_S} s")


def last_words(text: str) -> str:
    """The last line that a command said."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"
