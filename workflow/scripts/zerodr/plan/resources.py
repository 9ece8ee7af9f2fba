"""What a job of each rule needs: memory, time, GPUs, threads. Used by schedulers; never part of a digest."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from zerodr.config.bench import Bench
from zerodr.config.registry import Collection

OF_ALL_JOBS = "--open-mode=append --signal=TERM@120"  # as the profile `slurm` has it: `slurm_extra` replaces it


class Need(NamedTuple):
    """Needs of one job.

    Attributes:
        base_mib: memory whatever the collection's size.
        mib_per_million: memory for each million documents that the job reads.
        base_minutes: time whatever the size.
        minutes_per_million: time for each million documents.
        queries: whether it counts the queries of its split, in place of documents.
        threads: cores it can use.
        gpu: whether it runs on the scale's GPUs.
        nodes: whether it is a training, which shares the work among all GPUs, and among `nodes` machines.
        sharded: whether it reads one shard of a collection.
        resumes: whether another attempt goes on where one stopped, so that it needs no more time than the first.
    """

    base_mib: int = 1000
    mib_per_million: int = 0
    base_minutes: int = 10
    minutes_per_million: int = 0
    threads: int = 1
    gpu: bool = False
    nodes: bool = False
    sharded: bool = False
    resumes: bool = False
    queries: bool = False


class Ceiling(NamedTuple):
    """The most that a cluster gives a job of a rule: MiB of memory and minutes; None where there is no limit."""

    memory_mib: int | None = None
    minutes: int | None = None


NEEDS = {
    "fetch_archive": Need(500, 0, 120, 30),
    "normalize_collection": Need(2000, 500, 20, 20),
    "measure_statistics": Need(2000, 1000, 20, 20, threads=2),
    "index_bm25": Need(6000, 2500, 15, 30),
    "search_bm25": Need(6000, 200, 30, 30, threads=8),
    "import_model": Need(4000, 0, 60),
    "embed_corpus": Need(6000, 3500, 30, 120, threads=8, gpu=True, sharded=True, resumes=True),
    "embed_queries": Need(4000, 0, 30, threads=8, gpu=True, resumes=True),
    "search_shard": Need(4000, 6500, 20, 60, threads=8, sharded=True),
    "merge_run": Need(4000, 100, 15, 5),
    "fuse_runs": Need(4000, 0, 15),
    "rank_bm25": Need(4000, 4000, 30, 30, threads=8),
    "search_candidates": Need(4000, 6500, 30, 120, threads=8, sharded=True),
    "merge_candidates": Need(6000, 100, 30, 10),
    "mine_negatives": Need(8000, 0, 60),
    "cut_spans": Need(4000, 500, 30, 30, threads=8),
    "pretrain": Need(16000, 0, 2880, threads=8, gpu=True, nodes=True, resumes=True),
    "cluster_queries": Need(6000, 0, 60, threads=8),
    "init_model": Need(6000, 0, 60),
    "finetune": Need(12000, 0, 1440, threads=8, gpu=True, nodes=True, resumes=True),
    "embed_memory": Need(6000, 3500, 30, 120, threads=8, gpu=True, sharded=True, resumes=True),
    "embed_memory_queries": Need(4000, 0, 30, threads=8, gpu=True, resumes=True),
    "search_memory": Need(4000, 6500, 30, 120, threads=8, sharded=True),
    "merge_memories": Need(6000, 100, 30, 10),
    "measure_shares": Need(8000, 500, 60),
    "export_memory": Need(4000, 7000, 30, 30),
    "train_main": Need(24000, 0, 1440, threads=8, gpu=True, nodes=True, resumes=True),
    "measure_attention": Need(12000, 40000, 240, 1000, threads=8, gpu=True, queries=True),
    "mine_memories": Need(16000, 0, 120),
    "train_augmenter": Need(12000, 0, 1440, threads=8, gpu=True, nodes=True, resumes=True),
    "join_components": Need(4000, 0, 30),
    "embed_fused_queries": Need(12000, 20000, 240, 1000, threads=8, gpu=True, resumes=True, queries=True),
    "assemble": Need(8000, 0, 30),
    "init_teacher": Need(6000, 0, 60),
    "train_teacher": Need(12000, 0, 1440, threads=8, gpu=True, nodes=True, resumes=True),
    "score_pairs": Need(8000, 0, 1440, threads=8, gpu=True, resumes=True),
    "segment_units": Need(4000, 0, 60),
    "label_units": Need(8000, 0, 60),
    "measure_units": Need(8000, 0, 120, threads=8, gpu=True),
    "init_reader": Need(6000, 0, 60),
    "train_reader": Need(12000, 0, 1440, threads=8, gpu=True, nodes=True, resumes=True),
    "read_units": Need(8000, 0, 720, threads=8, gpu=True, resumes=True),
    "export_model": Need(6000, 0, 30),
    "measure_space": Need(6000, 500, 60, threads=8, gpu=True),
    "measure_domains": Need(6000, 0, 60, threads=8, gpu=True),
    "project_domains": Need(6000, 0, 60, threads=8, gpu=True),
    "evaluate_run": Need(3000, 0, 15),
    "compare_runs": Need(4000, 0, 30),
}


def need(rule: str) -> Need:
    """Needs of a rule; light ones take the default."""
    return NEEDS.get(rule, Need())


def read_collection(wildcards: Any) -> str:
    """The collection whose documents a job reads: a memory where it searches or exports one, else its collection."""
    return getattr(wildcards, "memory", "") or getattr(wildcards, "collection", "")


def millions(row: Collection | None, shard_documents: int, rule: str, split: str = "") -> float:
    """Millions of documents that one job of `rule` reads: a shard for sharded rules, else the collection.

    Of rules that count queries, millions of the queries of the split.
    """
    if need(rule).queries:
        return (row and row.splits.get(split) or 0) / 1e6
    documents = row.planned_documents if row else 0
    if need(rule).sharded:
        documents = min(documents or shard_documents, shard_documents)
    return documents / 1e6


MOST_TIMES = 3  # an attempt after several asks for no more than this many times the first one


def scaled(
    base: int, slope: int, size: Callable[[Any], float], grows: bool, most: Callable[[], int | None]
) -> Callable[..., int]:
    """A resource function for Snakemake: base + slope * millions.

    Where it `grows`, it is multiplied by the attempt, up to MOST_TIMES, and up to what `most` says by then; a first
    attempt above that stays as it is.
    """

    def amount(wildcards: Any, attempt: int = 1) -> int:
        first, limit = int(base + slope * size(wildcards)), most()
        later = first * min(attempt, MOST_TIMES) if grows else first
        return later if limit is None else max(first, min(later, limit))

    return amount


class Machines:
    """What rules write under `resources:` and `threads:`."""

    bench: Bench

    @cached_property
    def ceilings(self) -> dict[str, Ceiling]:
        """What the cluster has for each rule, filled in before the first job is submitted."""
        return {}

    @property
    def shard_size(self) -> int:
        """Documents of one embedding shard."""
        return self.bench.config.shard_documents or self.bench.scale.shard_documents

    def _millions(self, rule: str) -> Any:
        rows = self.bench.collections
        return lambda wc: millions(rows.get(read_collection(wc)), self.shard_size, rule, getattr(wc, "split", ""))

    def memory_mib(self, rule: str) -> Any:
        """`resources: mem_mb=` of a rule."""
        wants, size = need(rule), self._millions(rule)
        return scaled(wants.base_mib, wants.mib_per_million, size, True, lambda: self._ceiling(rule).memory_mib)

    def minutes(self, rule: str) -> Any:
        """`resources: runtime=` of a rule; a rule that resumes asks for the same time again."""
        wants, size = need(rule), self._millions(rule)
        return scaled(
            wants.base_minutes, wants.minutes_per_million, size, not wants.resumes, lambda: self._ceiling(rule).minutes
        )

    def _ceiling(self, rule: str) -> Ceiling:
        return self.ceilings.get(rule, Ceiling())

    def gpus(self, rule: str) -> int:
        """`resources: gpu=` of a rule: all GPUs of the configuration for trainings, one for others that use a GPU."""
        own = self.bench.config.gpus
        gpus = (self.bench.scale.gpus if own is None else own) if need(rule).gpu else 0
        return gpus if need(rule).nodes else min(gpus, 1)

    def nodes(self, rule: str) -> int:
        """Machines of one job of a rule."""
        return self.bench.config.nodes if need(rule).nodes else 1

    def placement(self, rule: str) -> dict[str, Any]:
        """`resources:` that put a job on as many nodes as it can use: one, however many GPUs it takes, or several.

        The Slurm plugin runs a job with `mpi` on the first of its nodes, without a step of its own around it.
        """
        nodes, gpus = self.nodes(rule), self.gpus(rule)
        if nodes == 1:
            return {"nodes": 1}
        whole = {"nodes": nodes, "mpi": "srun", "tasks": nodes}
        each = {"tasks_per_gpu": 0, "slurm_extra": f"{OF_ALL_JOBS} --gpus-per-node={gpus // nodes}"} if gpus else {}
        return whole | each

    def threads(self, rule: str) -> int:
        """`threads:` of a rule; Snakemake lowers it to the cores there are."""
        return need(rule).threads
