"""Convert a lineage record to MLflow's tags, params and metrics, cut to MLflow's limits; pure functions."""

import re
from pathlib import Path

from zerodr.artifacts.digest import object_digest
from zerodr.artifacts.manifest import MANIFEST, is_folder_artifact
from zerodr.artifacts.record import Record, record_path
from zerodr.lineage.flatten import flatten
from zerodr.lineage.graph import short_name
from zerodr.lineage.views import constants, method_of

DIGEST_WIDTH = 36  # MLflow refuses longer dataset digests; the full hash is in the tags `digest`, `out` and `in.*`
PARAM_WIDTH, TAG_WIDTH, KEY_WIDTH = 6000, 5000, 250
SMALL_BYTES = 1 << 20
SHOWN = {".json", ".tsv", ".md", ".svg", ".png", ".html"}
COSTS = ("seconds", "peak_memory_mib", "gpu_hours", "energy_joules")
UNFIT = re.compile(r"[^\w\-. /]")


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
        scale: the preset of the run that publishes; empty: not known.
    """
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
