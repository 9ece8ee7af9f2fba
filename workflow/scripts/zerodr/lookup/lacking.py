"""Name what a method or the half of a fusion lacks to answer queries, and the command that makes it."""

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
    """Return the problem and the next step of a method that can't answer queries; None where nothing is known of it.

    Args:
        graph: the checkout's lineage.
        name: of the method.
        collection: manifest of the collection.
        answering: rankings whose methods answer queries.
    """
    methods, runs = configured_methods(), _runs(graph, collection)
    if name not in methods and name not in runs:
        return None
    halves = _halves(methods.get(name), runs.get(name))
    words = [f"joins {' and '.join(halves)}"] if halves else []
    if elsewhere := [one for one in (name, *halves) if _is_imported(one, runs, methods)]:
        what = f"{elsewhere[0]} is an imported run, whose method is not here"
        return ", and ".join([*words, what]), "name another method"
    silent = [one for one in halves or [name] if one not in runs or runs[one]["outputs"]["run"] not in answering]
    absent = [path for one in silent for path in _absent(graph, one, runs, collection)]
    if absent:
        words.append(f"{' and '.join(silent)} can't answer queries: missing {_is(absent)} {', '.join(absent)}")
    needed = absent
    if name not in runs or not Path(runs[name]["outputs"]["run"]).exists():
        needed = [paths.run(name, Path(collection).parent.name, PROTOCOL)]
        words += [] if absent else [f"has not ranked it: missing is {needed[0]}"]
    if not needed:
        return None
    command = ["snakemake", "--profile", "config/profiles/mini", *needed, *_own_folder(graph, collection)]
    return ", and ".join(words), f"make what is missing: {shlex.join(command)}"


def what_was_never_read(name: str, collection: str) -> tuple[str, str] | None:
    """Return the problem and the next step of a collection of the registry that was not read; None for other names."""
    if not Path("config/config.yaml").is_file():
        return None
    bench, manifest = load_bench(Path(".")), paths.collection(collection)
    ranking = [method for method, one in bench.methods.items() if one.kind != "scores"]
    if collection not in bench.collections or name not in ("bm25", *ranking):
        return None
    needed = manifest if name == "bm25" else paths.run(name, collection, PROTOCOL)
    problem = f"{collection} was not read here: missing is {manifest}"
    return problem, f"make what is missing: snakemake --profile config/profiles/mini {needed}"


def _halves(method: Method | None, run: dict[str, Any] | None) -> list[str]:
    """Name the two methods that a fusion joins, by its record, else by the configuration; none of other methods."""
    if run is not None:
        return run["spec"]["params"].get("runs", [])
    return list(method.settings.runs) if isinstance(method, FusionMethod) else []


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def configured_methods() -> Mapping[str, Method]:
    """Return the methods of the checkout's configuration by name; none outside of a checkout."""
    return load_bench(Path(".")).methods if Path("config/config.yaml").is_file() else {}


def _runs(graph: Graph, collection: str) -> dict[str, dict[str, Any]]:
    """Map methods to the records of their rankings of a collection."""
    records = {artifact: graph.require(artifact) for artifact in graph.artifacts()}
    runs = [record for record in records.values() if facts_of(record["rule"]).writes == "run"]
    return {record["wildcards"]["model"]: record for record in runs if collection in _paths(record, "collection")}


def _is_imported(half: str, runs: dict[str, dict[str, Any]], methods: Mapping[str, Method]) -> bool:
    if half in runs:
        return facts_of(runs[half]["rule"]).kind == "import"
    return isinstance(methods.get(half), RunMethod)


def _absent(graph: Graph, name: str, runs: dict[str, dict[str, Any]], collection: str) -> list[str]:
    """List the files of a method that are not here: of its index or embeddings, and its ranking."""
    if (record := runs.get(name)) is None:
        return [paths.run(name, Path(collection).parent.name, PROTOCOL)]
    searches = [graph.record(hits) for hits in _paths(record, "hits")]
    needed = [path for search in searches if search for path in _paths(search, "corpus")]
    needed += [*_paths(record, "index"), record["outputs"]["run"]]
    return [path for path in needed if not Path(path).exists()]


def _own_folder(graph: Graph, collection: str) -> list[str]:
    """List the words of a command that name the user's own folder of a collection; none for one of the registry."""
    record = graph.record(collection)
    own = record is not None and facts_of(record["rule"]).kind == "import"
    return ["--config", f"byo={record['spec']['params']['archive']}"] if record and own else []


def _paths(record: dict[str, Any], name: str) -> list[str]:
    return [entry["path"] for entry in record["inputs"] if entry["name"] == name]
