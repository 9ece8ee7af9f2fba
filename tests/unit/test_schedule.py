"""Critical path and schedules, against small graphs done by hand and bounds that always hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerodr.errors import MachineError
from zerodr.operations.estimate.jobs import longest_path, makespan, order

DIAMOND = [[], [0], [0], [1, 2]]


def test_the_longest_chain_of_a_diamond():
    assert longest_path([1.0, 5.0, 2.0, 1.0], DIAMOND) == [0, 1, 3]
    assert longest_path([], []) == []


def test_one_gpu_does_one_thing_after_another():
    seconds, gpus = [1.0, 5.0, 2.0, 1.0], [0, 1, 1, 0]
    assert makespan(seconds, gpus, DIAMOND, 1) == 9.0
    assert makespan(seconds, gpus, DIAMOND, 2) == 7.0


def test_the_longer_chain_goes_first():
    """Two jobs for one GPU; the one with work behind it starts, although it is listed last."""
    assert makespan([2.0, 2.0, 10.0], [1, 1, 0], [[], [], [1]], 1) == 12.0


def test_jobs_larger_than_the_farm_are_refused():
    with pytest.raises(MachineError, match="needs 8 GPUs, the schedule has 4"):
        makespan([1.0], [8], [[]], 4)


@st.composite
def graphs(draw):
    size = draw(st.integers(1, 12))
    before = [sorted(draw(st.sets(st.integers(0, n - 1), max_size=3))) if n else [] for n in range(size)]
    seconds = draw(st.lists(st.integers(0, 9).map(float), min_size=size, max_size=size))
    gpus = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    return seconds, gpus, before


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(2, 5))
def test_bounds_of_every_schedule(graph, farm):
    seconds, gpus, before = graph
    chain = sum(seconds[n] for n in longest_path(seconds, before))
    work = sum(s * g for s, g in zip(seconds, gpus, strict=True))
    span = makespan(seconds, gpus, before, farm)
    assert max(chain, work / farm) <= span <= sum(seconds)
    assert makespan(seconds, [0] * len(gpus), before, 1) == chain
    position = {n: at for at, n in enumerate(order(before))}
    assert all(position[a] < position[n] for n, jobs in enumerate(before) for a in jobs)
