"""The commands that make an artifact current, as a person can type them."""

from __future__ import annotations

import shlex
from pathlib import Path

from zerodr.lineage.difference import Difference
from zerodr.lineage.graph import Graph

PROFILE = "config/profiles/mini"
WIDTH = 118
Command = list[str]


def remedy(graph: Graph, artifact: str, stale: dict[str, list[Difference]], config: list[str]) -> list[Command]:
    """The commands that make an artifact current, given everything stale about it and above it."""
    damaged, unseen = [], set()
    for path, reasons in stale.items():
        kinds = {d.what for d in reasons}
        record = graph.require(path)
        if "content" in kinds and Path(path).exists():
            damaged.append(path)
        elif kinds <= {"input"} and not _newer_input(path, [d.name for d in reasons]):
            unseen.add(record["rule"])
    words = ["snakemake", "--profile", PROFILE, artifact]
    words += ["--config", *config] if config else []
    words += ["--forcerun", *sorted(unseen)] if unseen else []
    return [["rm", *damaged], words] if damaged else [words]


def _newer_input(artifact: str, inputs: list[str]) -> bool:
    """Whether Snakemake sees by the modification times that the artifact is out of date."""
    if not Path(artifact).exists():
        return True
    made = Path(artifact).stat().st_mtime_ns
    return any(not Path(path).exists() or Path(path).stat().st_mtime_ns > made for path in inputs)


def shown(command: Command, indent: str = "  ") -> str:
    """A command for a shell; a long one goes on in further lines, each but the last ended by a backslash."""
    lines, line = [], indent
    for word in map(shlex.quote, command):
        if line.strip() and len(line) + len(word) + 2 > WIDTH:
            lines.append(f"{line}\\")
            line = f"{indent}    "
        line += f"{word} "
    return "\n".join([*lines, line.rstrip()])


def recorded_config(graph: Graph, artifact: str, given: list[str]) -> list[str]:
    """The given `--config` words, and `byo=` when the records tell that an own collection is above the artifact.

    Other words of that time are not in the records as such; the settings that they changed are. A folder that is gone
    is not named.
    """
    records = (graph.record(path) for path in graph.ancestors(artifact))
    made = (record["spec"]["params"] for record in records if record and record["rule"] == "normalize_collection")
    own = [params["archive"] for params in made if params.get("kind") == "own" and Path(params["archive"]).is_dir()]
    if not own or any(word.startswith("byo=") for word in given):
        return given
    return [f"byo={own[0]}", *given]
