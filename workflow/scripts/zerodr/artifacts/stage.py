"""Run a stage: spec -> lock -> library function -> atomic publication -> lineage record.

A stage is a library function that takes one `Stage`. It reads `stage.path("corpus")`, writes `stage.output("run")`
(a temporary path that is renamed when the function returned), writes what must survive a kill to `stage.state`, and
reports with `stage.metric(...)` and `stage.note(...)`. The same `spec.json` runs by hand: `python -m zerodr.run SPEC`.
"""

import importlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zerodr.artifacts import provenance
from zerodr.artifacts.machine import MachineErrors, take_lock
from zerodr.artifacts.manifest import file_digest, is_folder_artifact, move_folder, object_digest, put_back, seal_folder
from zerodr.artifacts.processor import job_kind, recorded_kind
from zerodr.artifacts.provenance import Warnings
from zerodr.artifacts.record import (
    STATE,
    BlameInputs,
    artifact_digest,
    input_digest,
    read_record,
    record_path,
    write_json,
)
from zerodr.artifacts.spent import Spent, sum_joules
from zerodr.config.rehearsal import Rehearsal
from zerodr.errors import ArtifactError, ZerodrError, nearest
from zerodr.plan.rules import RULES

log = logging.getLogger("zerodr")
PUBLISHED = "published"  # in a stage's state folder: a Slurm job of the run under way published it
Paths = str | list[str]


@dataclass(frozen=True)
class StageSpec:
    """Everything that decides what a stage writes, and where.

    Attributes:
        rule: name of the Snakemake rule.
        version: raised by the function's author when its results change.
        wildcards: the rule's wildcards.
        inputs: name -> path or paths, relative to the project's root.
        outputs: name -> path; a path that ends in `manifest.json` is a folder artifact.
        params: the stage's settings, canonical JSON types.
        seed: source of every random choice.
        threads: cores to use (no part of the digest).
        site: what belongs to the machine: mirror folders, offline (no part of the digest).
        rehearsal: what a rehearsal does of its work; empty in a run, and then no part of the digest.
    """

    rule: str
    version: int
    wildcards: dict[str, str]
    inputs: dict[str, Paths]
    outputs: dict[str, str]
    params: dict[str, Any]
    seed: int = 0
    threads: int = 1
    site: dict[str, Any] = field(default_factory=dict)
    rehearsal: dict[str, Any] = field(default_factory=dict)

    def input_list(self) -> list[str]:
        """All input paths, in the order of their names."""
        lists = [[v] if isinstance(v, str) else list(v) for _, v in sorted(self.inputs.items())]
        return [path for paths in lists for path in paths]

    def digest(self, input_digests: dict[str, str]) -> str:
        """Hex digest of the spec and its inputs' digests; threads and site don't count."""
        value = asdict(self)
        del value["threads"], value["site"]
        if not self.rehearsal:
            del value["rehearsal"]
        return object_digest({"spec": value, "inputs": input_digests})

    def name(self) -> str:
        """The rule with its wildcards, for logs."""
        return " ".join([self.rule, *self.wildcards.values()])


@dataclass
class Stage:
    """Inputs, outputs and settings of a running stage, and the facts that it reports."""

    spec: StageSpec
    state: Path
    volatile: tuple[str, ...] = ()
    metrics: list[dict] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, Any]:
        """The stage's settings, with the few steps of a rehearsal."""
        return (
            self.spec.params
            if self.cut is None
            else self.cut.shorten(self.spec.params, RULES[self.spec.rule].questions)
        )

    @property
    def cut(self) -> Rehearsal | None:
        """What a rehearsal does of the stage's work; None in a run."""
        return Rehearsal.model_validate(self.spec.rehearsal) if self.spec.rehearsal else None

    @property
    def threads(self) -> int:
        """Cores that the stage may use."""
        return self.spec.threads

    @property
    def seed(self) -> int:
        """Seed of every random choice of the stage."""
        return self.spec.seed

    def paths(self, name: str) -> list[Path]:
        """The input files called `name`; for folder artifacts, their manifests."""
        value = self.spec.inputs[name]
        return [Path(value)] if isinstance(value, str) else [Path(v) for v in value]

    def path(self, name: str) -> Path:
        """The one input called `name`; for a folder artifact, the folder."""
        (path,) = self.paths(name)
        return path.parent if is_folder_artifact(path) else path

    def folders(self, name: str) -> dict[str, Path]:
        """Folders of the collections called `name` by their names; none where there is no such input."""
        return {path.parent.name: path.parent for path in (self.paths(name) if name in self.spec.inputs else ())}

    def output(self, name: str) -> Path:
        """Where to write output `name`: a temporary file, or for a folder artifact a temporary empty folder."""
        return temporary_output(self.spec.outputs[name])

    def metric(self, name: str, value: float, step: int = 0) -> None:
        """Put a number in the lineage record (and so in MLflow, which refuses names with `@`)."""
        if "@" in name:
            raise ValueError(f"metric name {name!r} holds '@'")
        self.metrics.append({"name": name, "value": float(value), "step": step})

    def numbers(self, facts: Mapping[str, Any]) -> None:
        """Put the numbers among facts in the lineage record, each as a metric of its name."""
        for name, value in facts.items():
            if isinstance(value, int | float):
                self.metric(name, value)

    def note(self, **facts: Any) -> None:
        """Put facts (backend, counts, paths tried) in the lineage record."""
        self.notes.update(facts)


def temporary_output(declared: str) -> Path:
    """Path of the hidden sibling in which an output grows before it is renamed."""
    path = Path(declared)
    if is_folder_artifact(path):
        return path.parent.with_name(f".{path.parent.name}.making")
    return path.with_name(f".{path.name}.making")


def run_spec(spec: StageSpec, function: Callable[[Stage], None] | None = None) -> None:
    """Run one stage to published outputs and lineage records.

    Raises:
        ZerodrError: what the user can mend; no output was published.
    """
    function = function or function_of(spec.rule)
    with MachineErrors(spec.name(), [str(STATE / "x"), *spec.outputs.values()]):
        inputs = {path: input_digest(path) for path in spec.input_list()}
        digest = spec.digest(inputs)
        home = STATE / digest[:16]
        work = home / "work"
        write_json(home / "spec.json", asdict(spec))
        with _locked(spec):
            if _published(spec, digest):
                again = f"delete {next(iter(spec.outputs.values()))} to run the stage again"
                log.info("%s: already published from the same spec; %s", spec.name(), again)
                return
            if _taken_back(spec, digest, home):
                log.info("%s: published by a job that counted as failed afterwards; taken back", spec.name())
                return
            work.mkdir(exist_ok=True)
            stage = Stage(spec, work)
            _clear(spec)
            _prepare_outputs(spec)
            try:
                with BlameInputs(spec.input_list()), Spent(home, work) as spent:
                    with Warnings() as warned, job_kind(work):
                        function(stage)
                    stage.notes |= {"warnings": warned.messages} if warned.messages else {}
                    stage.notes |= {"peak_gpu_mib": mib} if (mib := provenance.peak_gpu_mib()) else {}
                    stage.notes |= {"processor_kind": kind} if (kind := recorded_kind(work)) else {}
                    _publish(stage, digest, inputs, spent)
            finally:
                _clear(spec)
            shutil.rmtree(work)
            # Only Slurm fails a job that has already published (see `_taken_back`).
            if "SLURM_JOB_ID" in os.environ:
                (home / PUBLISHED).touch()


def forget_published() -> None:
    """Forget what jobs of earlier runs published, so that a new run builds again what it is asked for."""
    for path in STATE.glob(f"*/{PUBLISHED}"):
        path.unlink()


def function_of(rule: str) -> Callable[[Stage], None]:
    """Import the library function that a rule runs.

    Raises:
        ZerodrError: there is no such rule.
    """
    if rule not in RULES:
        raise ZerodrError(f"rule {rule}", "is unknown", nearest(rule, RULES))
    module, name = RULES[rule].function.split(":")
    return getattr(importlib.import_module(f"zerodr.{module}"), name)


def _taken_back(spec: StageSpec, digest: str, home: Path) -> bool:
    """Whether folder artifacts of an earlier attempt of this run, whose manifests Snakemake deleted, are there again.

    Slurm counts a job as failed, whatever it did, that ends after its time or was asked to stop while it ended.
    """
    if not (home / PUBLISHED).exists():
        return False
    for declared in filter(is_folder_artifact, map(Path, spec.outputs.values())):
        put_back(declared)
    return _published(spec, digest)


def _published(spec: StageSpec, digest: str) -> bool:
    try:
        for path in spec.outputs.values():
            record = read_record(path)
            if not (record and record["spec_digest"] == digest and artifact_digest(path) == record["digest"]):
                return False
    except ArtifactError:  # missing or damaged: the stage runs again
        return False
    return True


def _temporary_record(declared: str) -> Path:
    path = record_path(declared)
    return path.with_name(f".{path.name}.making")


def _clear(spec: StageSpec) -> None:
    """Remove what a try left behind."""
    for declared in spec.outputs.values():
        for path in (temporary_output(declared), _temporary_record(declared)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _prepare_outputs(spec: StageSpec) -> None:
    """Prepare folders for temporary outputs, and remove records whose artifact Snakemake deleted."""
    for declared in spec.outputs.values():
        if not Path(declared).exists():
            record_path(declared).unlink(missing_ok=True)
        path = temporary_output(declared)
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_folder_artifact(Path(declared)):
            path.mkdir()


def _publish(stage: Stage, digest: str, inputs: dict[str, str], spent: Spent) -> None:
    spec = stage.spec
    for name, declared in spec.outputs.items():
        temporary = temporary_output(declared)
        if not temporary.exists() or (temporary.is_dir() and not any(temporary.iterdir())):
            raise ArtifactError(
                spec.name(), f"output {name} ({declared}) was not written", "this is a defect: report it"
            )
    base = _record(stage, digest, inputs, spent)
    for name, declared in spec.outputs.items():  # everything that a full disk can refuse comes before the first rename
        temporary, path = temporary_output(declared), Path(declared)
        content = seal_folder(temporary, stage.volatile) if is_folder_artifact(path) else temporary
        stat = content.stat()
        facts = {"artifact": declared, "output": name, "digest": file_digest(content), "bytes": stat.st_size}
        write_json(_temporary_record(declared), base | facts | {"mtime_ns": stat.st_mtime_ns})
    for declared in spec.outputs.values():
        temporary, path = temporary_output(declared), Path(declared)
        # A kill between two renames leaves an artifact without a record, never one with another's record.
        record_path(path).unlink(missing_ok=True)
        if is_folder_artifact(path):
            move_folder(temporary, path)
        else:
            temporary.replace(path)
        _temporary_record(declared).replace(record_path(path))


def _record(stage: Stage, digest: str, inputs: dict[str, str], spent: Spent) -> dict:
    spec, seconds, gpus = stage.spec, round(spent.seconds, 3), provenance.gpus_used(stage.notes)
    joules, source = sum_joules(spent.joules, gpus > 0)
    listed = []
    for name, value in sorted(spec.inputs.items()):
        for path in [value] if isinstance(value, str) else value:
            record = record_path(path)
            listed.append(
                {"name": name, "path": path, "digest": inputs[path], "record": str(record) if record.exists() else None}
            )
    return {
        "record_version": 1,
        "rule": spec.rule,
        "wildcards": spec.wildcards,
        "spec": asdict(spec),
        "spec_digest": digest,
        "inputs": listed,
        "outputs": spec.outputs,
        "code": provenance.code(),
        "environment": provenance.environment(),
        "seed": spec.seed,
        "started_unix_s": round(spent.started_unix_s, 3),
        "seconds": seconds,
        "peak_memory_mib": provenance.peak_memory_mib(),
        "gpu_hours": round(seconds * gpus / 3600, 6),
        "energy_joules": joules,
        "energy_source": source,
        "metrics": stage.metrics,
        "notes": stage.notes,
    }


@contextmanager
def _locked(spec: StageSpec) -> Iterator[None]:
    """Hold the lock of the outputs; wait for a process that survived a killed scheduler, whatever its settings."""
    path = STATE / "locks" / object_digest(sorted(spec.outputs.values()))[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        if not take_lock(stream, wait=False):
            log.info("%s: another process is at work on these very outputs; waiting for it", spec.name())
            take_lock(stream, wait=True)
        yield


def load_spec(path: Path) -> StageSpec:
    """Read a `spec.json`.

    Raises:
        ZerodrError: the file is missing or no stage spec.
    """
    try:
        return StageSpec(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ZerodrError(path, f"is no stage spec ({error})", "give a results/.state/<digest>/spec.json") from error
