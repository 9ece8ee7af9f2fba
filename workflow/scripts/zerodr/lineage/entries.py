"""What MLflow is told about one artifact: pure functions of its lineage record, cut to MLflow's limits."""

from __future__ import annotations

import re
from pathlib import Path

from zerodr.artifacts.digest import object_digest
from zerodr.artifacts.manifest import MANIFEST, is_folder_artifact
from zerodr.artifacts.record import Record, record_path
from zerodr.lineage.flatten import flatten
from zerodr.lineage.graph import short_name

DIGEST_WIDTH = 36  # MLflow refuses longer dataset digests; the full hash is in the tags `digest`, `out` and `in.*`
PARAM_WIDTH, TAG_WIDTH, KEY_WIDTH = 6000, 5000, 250
SMALL_BYTES = 1 << 20
SHOWN = {".json", ".tsv", ".md", ".svg", ".png"}
COSTS = ("seconds", "peak_memory_mib", "gpu_hours", "energy_joules")
UNFIT = re.compile(r"[^\w\-. /]")


def key_of(record: Record) -> str:
    """Identity of a published run: the artifact, its bytes, and the settings and inputs that made them."""
    return object_digest([record["artifact"], record["digest"], record["spec_digest"]])


def dataset_digest(digest: str) -> str:
    """The part of a SHA-256 that MLflow takes as digest of a dataset: `dataset.digest = '...'` finds its users."""
    return digest[:DIGEST_WIDTH]


def is_model(record: Record) -> bool:
    """True for model folders, which become LoggedModels too."""
    return record["artifact"].startswith("results/models/") and is_folder_artifact(Path(record["artifact"]))


def model_name(artifact: str) -> str:
    """A LoggedModel's name: the model's path below results/models, with the characters that MLflow refuses replaced."""
    return re.sub(r"""[/:.%"']+""", "-", short_name(artifact).removeprefix("models/"))


def input_tags(record: Record) -> dict[str, str]:
    """`in.<name>` -> full digest of each input; `in.<name>.<number>` when the rule takes several by that name."""
    counts: dict[str, int] = {}
    for given in record["inputs"]:
        counts[given["name"]] = counts.get(given["name"], 0) + 1
    tags: dict[str, str] = {}
    numbers = dict.fromkeys(counts, 0)
    for given in record["inputs"]:
        name = given["name"]
        tags[f"in.{name}" if counts[name] == 1 else f"in.{name}.{numbers[name]}"] = given["digest"]
        numbers[name] += 1
    return tags


def run_tags(record: Record) -> dict[str, str]:
    """Everything a run is searched by. Wildcards (model, collection, protocol, shard, ...) are tags by their names."""
    code, environment = record["code"], record["environment"]
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
    named = {name: value for name, value in record["wildcards"].items() if value}
    tags = named | tags | input_tags(record)
    tags |= {f"note.{name}": value for name, value in flatten(record["notes"]).items()}
    return {_key(name): value[:TAG_WIDTH] for name, value in tags.items()}


def run_params(record: Record) -> dict[str, str]:
    """The stage's settings by dotted names. Longer values than MLflow takes are whole in the run's lineage.json."""
    return {_key(name): value[:PARAM_WIDTH] for name, value in flatten(record["spec"]["params"]).items()}


def run_metrics(record: Record) -> list[tuple[str, float, int]]:
    """Name, value, step: the stage's numbers and its costs, each point once."""
    points = {(m["name"], m["step"]): m["value"] for m in record["metrics"]}
    points |= {(name, 0): record[name] for name in COSTS if record[name] is not None}
    return [(_key(name), value, step) for (name, step), value in sorted(points.items())]


def small_files(record: Record, files: list[dict]) -> list[tuple[Path, str]]:
    """Files of at most 1 MiB that a browser shows, with their names in the run; the record itself always.

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
