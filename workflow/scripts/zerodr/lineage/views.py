"""Convert records to what MLflow shows: tags, params, metrics, files; groups, names and views of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zerodr.artifacts.manifest import MANIFEST, is_folder_artifact, object_digest
from zerodr.artifacts.record import Record, record_path
from zerodr.lineage.graph import flatten, short_name
from zerodr.plan.rules import facts_of

MAIN_METRIC = "ndcg_cut_10"
STANDARD = "standard"  # the protocol that a score's name leaves out
PAGE = "http://127.0.0.1:5000"  # of `make mlflow`
VIEW_TAG = "mlflow.sharedViewState."  # MLflow's own views that are shared by address
DATA, TABLES = "data", "tables and figures"
DETAILS = ("collection", "archive", "index", "target", "split", "kind", "memory", "item", "shard")
DESCRIPTION = """Artifacts of zerodr: one run is one artifact, with settings, metrics, inputs and small files.

* **Groups**: method (scale) > stage > collection. A method's own run has its nDCG@10 by collection; a row of an
  earlier stage, such as `ance@ep0`, and another scale have runs of their own.
* **Filter**: `tags.method = 'bm25-flat'`, `tags.collection = 'scifact'`, `tags.rule = 'finetune'`, `tags.stage`,
  `tags.scale`, `tags.git_commit`, `tags.paper`.
* **From a number to its archive**: open a run, take a digest of its tags `in.<name>`, search `tags.out = '<digest>'`;
  repeat.
* **Back**: search `dataset.digest = '<the first 36 letters of tag out>'` for all that used an artifact.
* The full record is the run's file `lineage.json`.
"""
DIGEST_WIDTH = 36  # MLflow refuses longer dataset digests; the full hash is in the tags `digest`, `out` and `in.*`
PARAM_WIDTH, TAG_WIDTH, KEY_WIDTH = 6000, 5000, 250
SMALL_BYTES = 1 << 20
SHOWN = {".json", ".tsv", ".md", ".svg", ".png", ".html"}
COSTS = ("seconds", "peak_memory_mib", "gpu_hours", "energy_joules")
UNFIT = re.compile(r"[^\w\-. /]")


def method_of(record: Record) -> str:
    """Return the method that an artifact is of, an evaluation's with its stage (`ance@ep0`); empty for data, tables."""
    model = record["wildcards"].get("model", "")
    return model if facts_of(record["rule"]).kind == "evaluate" else model.partition("@")[0]


def groups_of(record: Record, scale: str = "") -> tuple[str, str]:
    """Return the groups of an artifact's run: its method at a scale, its paper, or its kind; its stage."""
    words, rule, method = record["wildcards"], record["rule"], method_of(record)
    if words.get("paper"):
        return f"paper {words['paper']}", rule
    named = f"{method} ({scale})" if method and scale else method  # scales that share a store have scores of their own
    first = TABLES if facts_of(rule).kind == "report" else named or DATA
    return first, " ".join(filter(None, [rule, words.get("stage", "")]))


def main_value(record: Record) -> float | None:
    """Return the main measure of an evaluation; None for other artifacts."""
    values = (metric["value"] for metric in record["metrics"] if metric["name"] == MAIN_METRIC)
    return next(values, None) if record["output"] == "summary" else None


def score_of(record: Record) -> str:
    """Return the name of an evaluation's main measure in its method's run: `ndcg_cut_10.scifact`."""
    words = record["wildcards"]
    protocol = words.get("protocol", STANDARD)
    return ".".join([MAIN_METRIC, words["collection"], *([protocol] if protocol != STANDARD else [])])


def level_of(groups: tuple[str, ...]) -> str:
    """Return the level of a group: `method`, `stage`, or `other` for data, tables and papers."""
    if len(groups) > 1:
        return "stage"
    return "other" if groups[0] in (DATA, TABLES) or groups[0].startswith("paper ") else "method"


def run_name(record: Record) -> str:
    """Return a short name: what tells an artifact from others of its stage."""
    words = record["wildcards"]
    scope = words.get("scope", "shared")
    named = [words[name] for name in DETAILS if words.get(name)]
    named += [scope] if scope != "shared" and scope not in named else []
    name = " ".join(named) or words.get("stage") or record["rule"]
    if record["output"] == "summary":
        return f"{words['model']} {name}"  # evaluations are read in one list
    return f"{name} ({record['output']})" if len(record["outputs"]) > 1 else name


def constants(record: Record) -> dict[str, float]:
    """Return curves that never change: they are settings, and a chart would draw small ones as 0."""
    points: dict[str, list[float]] = {}
    for metric in record["metrics"]:
        points.setdefault(metric["name"], []).append(metric["value"])
    return {name: v[0] for name, v in points.items() if len(v) > 1 and min(v) == max(v) == v[0]}


def list_views(collections: Iterable[str]) -> dict[str, str]:
    """Return the views by key: `methods` (a row a method, a column a collection) and `evaluations`."""
    by_collection = [f"metrics.`{MAIN_METRIC}.{name}`" for name in collections]
    tags = [f"tags.`{name}`" for name in ("method", "collection", "scale")]
    measures = [f"metrics.`{name}`" for name in (MAIN_METRIC, "recall_100", "recip_rank_cut_10", "seconds")]
    chosen = {
        "methods": _view("tags.level = 'method'", by_collection, by_collection[0] if by_collection else ""),
        "evaluations": _view("tags.output = 'summary'", [*tags, *measures], measures[0]),
    }
    return {key: json.dumps(view, sort_keys=True) for key, view in chosen.items()}


def _view(search: str, columns: list[str], order: str) -> dict[str, Any]:
    ordered = {"orderByKey": order, "orderByAsc": False} if order else {}
    return {"searchFilter": search, "selectedColumns": columns, "runListHidden": False} | ordered


def link(uri: str, experiment: str, view: str) -> str:
    """Return the address of a view, among MLflow's pages for trainings; of a database, where `make mlflow` opens it."""
    page = uri.rstrip("/") if uri.startswith(("http:", "https:")) else PAGE
    return f"{page}/#/experiments/{experiment}/runs?viewStateShareKey={view}&workflowType=machine_learning"


def key_of(record: Record) -> str:
    """Return the identity of a published run: the artifact, its bytes, its settings and inputs."""
    return object_digest([record["artifact"], record["digest"], record["spec_digest"]])


def dataset_digest(digest: str) -> str:
    """Cut a SHA-256 to the length of MLflow's dataset digests: `dataset.digest = '...'` finds its users."""
    return digest[:DIGEST_WIDTH]


def is_model(record: Record) -> bool:
    """Test whether an artifact is a model folder, which becomes a LoggedModel too."""
    return record["artifact"].startswith("results/models/") and is_folder_artifact(Path(record["artifact"]))


def model_name(artifact: str) -> str:
    """Return a LoggedModel's name: the path below results/models without characters that MLflow refuses."""
    return re.sub(r"""[/:.%"']+""", "-", short_name(artifact).removeprefix("models/"))


def input_tags(record: Record) -> dict[str, str]:
    """Map `in.<name>` to the full digest of each input; `in.<name>.<number>` when a name has several."""
    digests: dict[str, list[str]] = {}
    for entry in record["inputs"]:
        digests.setdefault(entry["name"], []).append(entry["digest"])
    tags = {f"in.{name}": values[0] for name, values in digests.items() if len(values) == 1}
    several = ((name, values) for name, values in digests.items() if len(values) > 1)
    return tags | {f"in.{name}.{n}": digest for name, values in several for n, digest in enumerate(values)}


def run_tags(record: Record, scale: str = "") -> dict[str, str]:
    """Return all tags by which runs are searched; wildcards (model, collection, ...) are tags by their names.

    Args:
        record: the artifact's record.
        scale: the preset of the run that publishes, of artifacts whose settings name none; empty: not known.
    """
    code, environment = record["code"], record["environment"]
    if facts_of(record["rule"]).kind == "report":  # a figure from an earlier run may be of another scale
        scale = record["spec"]["params"].get("scale", scale)
    tags = {
        "artifact": record["artifact"],
        "output": record["output"],
        "digest": record["digest"],
        "out": record["digest"],
        "spec": record["spec_digest"],
        "rule": record["rule"],
        "stage_version": str(record["spec"]["version"]),
        "seed": str(record["seed"]),
        "git_commit": code["commit"] or "none",
        "git_patch": code["dirty_patch_sha256"] or "none",
        "device": environment["device"],
        "processor": environment["processor"],
        "python": environment["python"],
        "environment_lock": environment["lock_sha256"] or "none",
        "mlflow.source.name": f"zerodr {record['rule']}",
    }
    if code["commit"]:
        tags["mlflow.source.git.commit"] = code["commit"]
    if "slurm_job" in environment:
        tags["slurm_job"] = environment["slurm_job"]
    named = {name: value for name, value in record["wildcards"].items() if value}
    named |= {name: value for name, value in (("method", method_of(record)), ("scale", scale)) if value}
    tags = named | tags | input_tags(record)
    tags |= {f"note.{name}": value for name, value in flatten(record["notes"]).items()}
    return {_key(name): value[:TAG_WIDTH] for name, value in tags.items()}


def run_params(record: Record) -> dict[str, str]:
    """Return settings by dotted names, and numbers that never changed; the run's lineage.json has the full values."""
    fixed = {f"constant.{name}": str(value) for name, value in constants(record).items()}
    return {_key(name): value[:PARAM_WIDTH] for name, value in (flatten(record["spec"]["params"]) | fixed).items()}


def run_metrics(record: Record) -> list[tuple[str, float, int]]:
    """Return name, value, step of the stage's numbers and its costs, each point once; no curve that never changes."""
    fixed = constants(record)
    points = {(m["name"], m["step"]): m["value"] for m in record["metrics"] if m["name"] not in fixed}
    points |= {(name, 0): record[name] for name in COSTS if record[name] is not None}
    return [(_key(name), value, step) for (name, step), value in sorted(points.items())]


def small_files(record: Record, files: list[dict]) -> list[tuple[Path, str]]:
    """List files up to 1 MiB that a browser shows, with their names in the run; always the record itself.

    Args:
        record: the artifact's record.
        files: the entries of its manifest when it is a folder artifact, else nothing.
    """
    artifact = Path(record["artifact"])
    chosen = [(record_path(artifact), "lineage.json")]
    named = [(artifact.parent / entry["path"], entry["path"]) for entry in files]
    for path, name in [(artifact, artifact.name), *named]:
        if path.suffix in SHOWN and path.exists() and path.stat().st_size <= SMALL_BYTES:
            chosen.append((path, name if name == MANIFEST or not files else f"files/{name}"))
    return chosen


def _key(name: str) -> str:
    return UNFIT.sub("_", name)[:KEY_WIDTH]
