"""Compose the commands that update an artifact, as a user can type them."""

import shlex
from pathlib import Path

from zerodr.lineage.difference import Difference
from zerodr.lineage.graph import Graph

PROFILE = "config/profiles/mini"
WIDTH = 118
Command = list[str]


def remedy(graph: Graph, artifact: str, stale: dict[str, list[Difference]], config: list[str]) -> list[Command]:
    """Return the commands that update an artifact, given everything stale about it and above it."""
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
    """Test whether Snakemake sees by the modification times that the artifact is out of date."""
    if not Path(artifact).exists():
        return True
    written = Path(artifact).stat().st_mtime_ns
    return any(not Path(path).exists() or Path(path).stat().st_mtime_ns > written for path in inputs)


def shown(command: Command, indent: str = "  ") -> str:
    """Format a command for a shell; a long one continues on further lines after a backslash."""
    lines, line = [], indent
    for word in map(shlex.quote, command):
        if line.strip() and len(line) + len(word) + 2 > WIDTH:
            lines.append(f"{line}\\")
            line = f"{indent}    "
        line += f"{word} "
    return "\n".join([*lines, line.rstrip()])


def recorded_config(graph: Graph, artifact: str, given: list[str]) -> list[str]:
    """Return the given `--config` words, and `byo=` when the records show a user's collection above the artifact.

    Records hold the settings that other words changed, but not the words. A folder that is gone
    is not named.
    """
    records = (graph.record(path) for path in graph.ancestors(artifact))
    rows = (record["spec"]["params"] for record in records if record and record["rule"] == "normalize_corpus")
    folders = {row["archive"]: row["name"] for row in rows if Path(row["archive"]).is_dir()}
    if not folders or any(word.startswith("byo=") for word in given):
        return given
    alike = all(Path(path).resolve().name.lower().replace(" ", "-") == name for path, name in folders.items())
    named = [] if alike or len(folders) > 1 else [f"byo_name={name}" for name in folders.values()]
    return [f"byo={','.join(folders)}", *named, *given]
