"""Compute what the jobs of rules ask the scheduler for, from their needs and the sizes of collections."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from zerodr.config.bench import Bench
from zerodr.config.registry import Collection
from zerodr.plan.lines import with_signature
from zerodr.plan.rules import Need, facts_of

OF_ALL_JOBS = "--open-mode=append --signal=TERM@120"  # as the profile `slurm` has it: `slurm_extra` replaces it
SIGNATURE = inspect.signature(lambda wildcards, attempt=1: None)
PROCESS_MIB, PROCESS_CORES = 2000, 4  # of each process of a training after the first; that each of several asks for
MOST_TIMES = 3  # an attempt after several asks for no more than this many times the first one


class Ceiling(NamedTuple):
    """The most that a cluster gives a job of a rule: MiB of memory and minutes; None where there is no limit."""

    memory_mib: int | None = None
    minutes: int | None = None


def need(rule: str) -> Need:
    """Needs of a rule; light ones take the default."""
    return facts_of(rule).need or Need()


def read_collection(wildcards: Any) -> str:
    """The collection whose documents a job reads: a memory where it searches or exports one, else its collection."""
    return getattr(wildcards, "memory", "") or getattr(wildcards, "collection", "")


def millions(row: Collection | None, shard_documents: int, rule: str, split: str = "") -> float:
    """Millions of documents that one job of `rule` reads: a shard for sharded rules, else the collection.

    Of rules that count queries, millions of the queries of the split.
    """
    if facts_of(rule).time == "queries":
        return (row and row.splits.get(split) or 0) / 1e6
    documents = row.planned_documents if row else 0
    if need(rule).sharded:
        documents = min(documents or shard_documents, shard_documents)
    return documents / 1e6


class Estimate(Protocol):
    """Estimate jobs by their work. `plan` reads no files, so `operations` supplies this; None: unknown."""

    def minutes(self, rule: str, wildcards: Any) -> int | None:
        """Minutes that a first attempt asks for."""

    def mib(self, rule: str, wildcards: Any) -> int | None:
        """MiB that a first attempt asks for."""


@dataclass(frozen=True)
class Machines:
    """Values of `resources:` and `threads:` in the rules.

    Attributes:
        bench: the configuration.
        estimate: of time and memory of jobs; None: these follow from the rule and the size of its collection.
        ceilings: what the cluster has for each rule, known before the first job is submitted.
        options: of sbatch, which the profile gives all jobs; None: jobs run on this machine and share its cores.
    """

    bench: Bench
    estimate: Estimate | None = None
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    options: str | None = None

    @property
    def shard_size(self) -> int:
        """Documents of one embedding shard."""
        return self.bench.config.shard_documents or self.bench.scale.shard_documents

    @property
    def training_gpus(self) -> int:
        """GPUs of one training."""
        configured = self.bench.config.gpus
        return self.bench.scale.gpus if configured is None else configured

    def resources(self, rule: str) -> dict[str, Any]:
        """All `resources:` of a rule; nothing for light ones, which take the profile's defaults."""
        if facts_of(rule).light:
            return {}
        placement = self.placement(rule) if facts_of(rule).trains else {}
        gpu: dict[str, Any] = {"gpu": self.gpus(rule)} if need(rule).gpu else {}
        if self.bench.config.gpu_partition and self.gpus(rule):
            gpu["slurm_partition"] = self.bench.config.gpu_partition
        return placement | {"mem_mb": self.memory_mib(rule), "runtime": self.minutes(rule)} | gpu

    def memory_mib(self, rule: str) -> Callable[..., int]:
        """`resources: mem_mb=` of a rule."""
        wants = need(rule)
        base = wants.base_mib + PROCESS_MIB * (self.processes(rule) - 1)
        usual = self._by_size(rule, base, wants.mib_per_million)

        def first(wildcards: Any) -> int:
            estimated = self.estimate.mib(rule, wildcards) if self.estimate else None
            return usual(wildcards) if estimated is None else estimated

        return self._growing(rule, first, "memory_mib", True)

    def minutes(self, rule: str) -> Callable[..., int]:
        """`resources: runtime=` of a rule; a rule that resumes asks for the same time again."""
        wants = need(rule)
        usual = self._by_size(rule, wants.base_minutes, wants.minutes_per_million)

        def first(wildcards: Any) -> int:
            estimated = self.estimate.minutes(rule, wildcards) if self.estimate else None
            return usual(wildcards) if estimated is None else estimated

        return self._growing(rule, first, "minutes", not wants.resumes)

    def _by_size(self, rule: str, base: int, slope: int) -> Callable[[Any], int]:
        """`base`, and `slope` for each million documents that the job reads."""

        def amount(wildcards: Any) -> int:
            if not slope:
                return base
            row = self.bench.collections.get(read_collection(wildcards))
            return int(base + slope * millions(row, self.shard_size, rule, getattr(wildcards, "split", "")))

        return amount

    def _growing(self, rule: str, first: Callable[[Any], int], ceiling: str, grows: bool) -> Callable[..., int]:
        """A resource function for Snakemake: what the `first` attempt asks for.

        Where it `grows`, it is multiplied by the attempt, up to MOST_TIMES, and up to the rule's ceiling by then; a
        first attempt above that stays as it is.
        """

        @with_signature(SIGNATURE)
        def amount(wildcards: Any, attempt: int = 1) -> int:
            least = first(wildcards)
            later = least * min(attempt, MOST_TIMES) if grows else least
            limit = getattr(self.ceilings.get(rule), ceiling, None)
            return later if limit is None else max(least, min(later, limit))

        return amount

    def gpus(self, rule: str) -> int:
        """`resources: gpu=` of a rule: all GPUs of the configuration for trainings, one for others that use a GPU."""
        gpus = self.training_gpus if need(rule).gpu else 0
        return gpus if facts_of(rule).trains else min(gpus, 1)

    def nodes(self, rule: str) -> int:
        """Machines of one job of a rule."""
        return self.bench.config.nodes if facts_of(rule).trains else 1

    def processes(self, rule: str) -> int:
        """Processes of a job on each of its machines: one for each GPU of a training."""
        return max(1, self.gpus(rule) // self.nodes(rule)) if facts_of(rule).trains else 1

    def placement(self, rule: str) -> dict[str, Any]:
        """`resources:` that put a job on as many nodes as it can use: one, however many GPUs it takes, or several.

        The Slurm plugin runs a job with `mpi` on the first of its nodes, without a step of its own around it.
        """
        nodes, gpus = self.nodes(rule), self.gpus(rule)
        if nodes == 1:
            return {"nodes": 1}
        whole = {"nodes": nodes, "mpi": "srun", "tasks": nodes}
        options = OF_ALL_JOBS if self.options is None else self.options
        extra = f"{options} --gpus-per-node={gpus // nodes}".strip()
        each = {"tasks_per_gpu": 0, "slurm_extra": extra} if gpus else {}
        return whole | each

    def threads(self, rule: str) -> int:
        """`threads:` of a rule; Snakemake lowers it to the cores there are."""
        processes, threads, jobs = self.processes(rule), need(rule).threads, self.bench.scale.jobs_at_once
        if jobs > 1 and self.options is None:
            threads = min(threads, max(1, (os.cpu_count() or 1) // jobs))
        return max(threads, PROCESS_CORES * processes if processes > 1 else 0)
