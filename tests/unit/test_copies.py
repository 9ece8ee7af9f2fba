"""Results that were copied without their times count as finished where contents are those recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_bench import make_bench

from zerodr.lineage.graph import Graph
from zerodr.operations.copies import settle_times


@pytest.fixture
def copied(tmp_path, monkeypatch) -> Graph:
    """A finished bench whose times are in the reverse order of its making."""
    monkeypatch.chdir(tmp_path)
    make_bench(tmp_path)
    graph = Graph()
    for number, artifact in enumerate(graph.ancestors(*graph.artifacts())):
        os.utime(artifact, ns=(10**18 - number * 10**9,) * 2)
    return graph


def disordered(graph: Graph) -> list[str]:
    pairs = [(source["path"], user) for user in graph.artifacts() for source in graph.require(user)["inputs"]]
    return sorted({user for source, user in pairs if Path(source).stat().st_mtime_ns > Path(user).stat().st_mtime_ns})


def test_a_copy_without_times_has_its_order_again(copied, capsys):
    users = len(disordered(copied))
    assert users > 3 and settle_times() == users
    assert disordered(copied) == [] and settle_times() == 0
    assert f"{users} finished artifacts older than an input" in capsys.readouterr().err


def test_changed_content_keeps_its_time(copied):
    source, user = next(
        (e.source, a) for a in copied.artifacts() for e in copied.up(a) if not e.source.endswith("json")
    )
    Path(source).write_bytes(Path(source).read_bytes() + b"\n")
    settle_times()
    assert user in disordered(copied)


def test_what_snakemake_remembers_is_left_to_it(copied):
    Path(".snakemake/metadata").mkdir(parents=True)
    Path(".snakemake/metadata/x").write_text("{}")
    assert settle_times() == 0 and disordered(copied)
