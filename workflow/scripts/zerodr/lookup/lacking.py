"""Name what a fusion lacks to answer queries, and the command that makes it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from zerodr.config.load import load_bench
from zerodr.config.methods import FusionMethod, Method, RunMethod
from zerodr.lineage.graph import Graph
from zerodr.plan import paths
from zerodr.plan.rules import facts_of

PROTOCOL = "standard"


def what_lacks(graph: Graph, name: str, collection: str, answering: Collection[str]) -> tuple[str, str] | None:
    """Return the problem and the next step of a fusion, half of which can't answer queries; None for other methods.

    Args:
        graph: the checkout's lineage.
        name: of the method.
        collection: manifest of the collection.
        answering: rankings whose methods answer queries.
    """
    methods, runs = configured_methods(), _runs(graph, collection)
    method, halves = methods.get(name), list[str]()
    if fused := runs.get(name):
        halves = fused["spec"]["params"].get("runs", [])
    elif isinstance(method, FusionMethod):
        halves = list(method.settings.runs)
    silent = [half for half in halves if half not in runs or runs[half]["outputs"]["run"] not in answering]
    if not silent:
        return None
    joined, named = f"joins {' and '.join(halves)}", " and ".join(silent)
    elsewhere = [half for half in silent if _is_imported(half, runs, methods)]
    if elsewhere:
        return f"{joined}, and {elsewhere[0]} is an imported run, whose method is not here", "name one of the methods"
    needed = [path for half in silent for path in _absent(graph, half, runs, collection)]
    verb = "is" if len(needed) == 1 else "are"
    problem = f"{joined}, and {named} can't answer queries: missing {verb} {', '.join(needed)}"
    words = ["snakemake", "--profile", "config/profiles/mini", *needed, *_own_folder(graph, collection)]
    return problem, f"make what is missing: {shlex.join(words)}"


def configured_methods() -> Mapping[str, Method]:
    """Methods of the checkout's configuration by name; none outside of a checkout."""
    return load_bench(Path(".")).methods if Path("config/config.yaml").is_file() else {}


def _runs(graph: Graph, collection: str) -> dict[str, dict[str, Any]]:
    """Records of the rankings of a collection by method."""
    records = {artifact: graph.require(artifact) for artifact in graph.artifacts()}
    runs = [record for record in records.values() if facts_of(record["rule"]).writes == "run"]
    return {record["wildcards"]["model"]: record for record in runs if collection in _paths(record, "collection")}


def _is_imported(half: str, runs: dict[str, dict[str, Any]], methods: Mapping[str, Method]) -> bool:
    if half in runs:
        return facts_of(runs[half]["rule"]).kind == "import"
    return isinstance(methods.get(half), RunMethod)


def _absent(graph: Graph, half: str, runs: dict[str, dict[str, Any]], collection: str) -> list[str]:
    """List the files that a method needs and that are not here: of its index or embeddings, else its ranking."""
    record = runs.get(half)
    searches = [graph.record(hits) for hits in _paths(record, "hits")] if record else []
    needed = [path for search in searches if search for path in _paths(search, "corpus")]
    needed += _paths(record, "index") if record else []
    lost = [path for path in needed if not Path(path).exists()]
    return lost or [record["outputs"]["run"] if record else paths.run(half, Path(collection).parent.name, PROTOCOL)]


def _own_folder(graph: Graph, collection: str) -> list[str]:
    """Words of a command that name the user's own folder of a collection; none for one of the registry."""
    record = graph.record(collection)
    own = record is not None and record["rule"] == "normalize_corpus"
    return ["--config", f"byo={record['spec']['params']['archive']}"] if record and own else []


def _paths(record: dict[str, Any], name: str) -> list[str]:
    return [entry["path"] for entry in record["inputs"] if entry["name"] == name]
