"""Give copied artifacts the times of their order, where contents are those recorded: `cp -r` must not repeat work.

Snakemake decides by contents where `.snakemake/` remembers them, else by times, which many ways of copying lose.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from zerodr.config.quantities import counted
from zerodr.errors import ArtifactError
from zerodr.lineage.graph import Graph

MEMORY, BENCHMARKS = Path(".snakemake/metadata"), Path("results/benchmarks")


def settle_times() -> int:
    """Set the time of each artifact that an unchanged input is newer than; do nothing where Snakemake remembers.

    Returns:
        the number of artifacts whose times were set.
    """
    if not Path("results").is_dir() or (MEMORY.is_dir() and any(MEMORY.iterdir())):
        return 0
    graph, count, last = Graph(), 0, 0
    try:
        every = graph.ancestors(*graph.artifacts())
    except ArtifactError:  # a record that can't be read: `zerodr verify` names it
        return 0
    for artifact in every:
        record = graph.record(artifact)
        if record is None or not (path := Path(artifact)).exists():
            continue
        newest = max([0, *(_changed(Path(entry["path"])) for entry in record["inputs"])])
        last = max(last, newest, _changed(path))
        if newest <= path.stat().st_mtime_ns:
            continue
        if graph.current_digest(artifact) == record["digest"] and not any(edge.stale for edge in graph.up(artifact)):
            os.utime(path, ns=(newest, newest))
            count += 1
    for benchmark in BENCHMARKS.rglob("*.tsv"):  # Snakemake takes them for outputs
        if _changed(benchmark) < last:
            os.utime(benchmark, ns=(last, last))
    if count:
        what = f"{counted(count, 'finished artifact')} older than an input of the same content as then"
        sys.stderr.write(f"{what}: results were copied here without their times. They count as finished.\n")
    return count


def _changed(path: Path) -> int:
    """Return the time of a file as Snakemake sees it: of a link the later one of its own and its target's."""
    return max(path.stat().st_mtime_ns, path.lstat().st_mtime_ns) if path.exists() else 0
