"""Say what a job of a rule needs: memory, time, GPUs, threads. Schedulers read it; it is never part of a digest."""

from typing import NamedTuple


class Need(NamedTuple):
    """Needs of one job.

    Attributes:
        base_mib: memory whatever the collection's size.
        mib_per_million: memory for each million documents that the job reads.
        base_minutes: time whatever the size.
        minutes_per_million: time for each million documents.
        threads: cores it can use.
        gpu: whether it runs on the scale's GPUs.
        nodes: whether it is a training, which shares the work among all GPUs, and among `nodes` machines.
        sharded: whether it reads one shard of a collection.
        resumes: whether another attempt continues where one stopped, so that it needs no more time than the first.
        queries: whether it counts the queries of its split, in place of documents.
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


def training(mib: int, minutes: int) -> Need:
    """Needs of a rule that trains a model."""
    return Need(mib, 0, minutes, threads=8, gpu=True, nodes=True, resumes=True)


def encoding(
    mib: int, per_million: int, minutes: int, minutes_per_million: int = 0, sharded: bool = False, queries: bool = False
) -> Need:
    """Needs of a rule that runs a model over texts, and resumes."""
    size = (mib, per_million, minutes, minutes_per_million)
    return Need(*size, threads=8, gpu=True, sharded=sharded, resumes=True, queries=queries)
