"""Find the longest chain of jobs, and schedule jobs on a number of GPUs. Jobs are positions in lists."""

import heapq
from graphlib import TopologicalSorter

from zerodr.errors import MachineError


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
