"""The stages of the miniature: planned by Snakemake, run one by one in forks of a process that imported everything."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from zerodr import run as by_hand
from zerodr.artifacts import provenance
from zerodr.artifacts.adapter import spec_of
from zerodr.artifacts.manifest import check_manifest, file_digest, is_folder_artifact
from zerodr.artifacts.record import read_record, record_path
from zerodr.artifacts.stage import StageSpec
from zerodr.errors import ArtifactError
from zerodr.plan.rules import RULES

PATIENCE_S = 300.0
TIMED = ("measure_latency", "build_leaderboard", "publish_lineage")  # what they write has times of this machine in it
WHOLE = "whole"  # stands for the digest of such an output: that of its record will do
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.copyfile", "shutil.rmtree")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Reference:
    """Outputs of an undisturbed run of a stage.

    Attributes:
        digests: by output path.
        seconds: of the run.
        operations: file operations of Python that change something.
        size_bytes: of the outputs.
    """

    digests: dict[str, str]
    seconds: float
    operations: int
    size_bytes: int


@dataclass(frozen=True)
class Result:
    """End of a run: exit status, negative for a signal; what it wrote to the screen."""

    status: int
    said: str

    @property
    def traceback(self) -> bool:
        """True when it ended in an error that no user can understand."""
        return "Traceback (most recent call last)" in self.said


def planned(folder: Path, targets: list[str]) -> list[StageSpec]:
    """Plan the targets with Snakemake in `folder`; the specs of all jobs, each after those that it needs."""
    from snakemake.api import SnakemakeApi
    from snakemake.settings.types import DAGSettings, OutputSettings, Quietness, ResourceSettings

    os.chdir(folder)
    with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
        workflow_api = api.workflow(ResourceSettings(cores=1), snakefile=folder / "Snakefile", workdir=folder)
        workflow_api.dag(DAGSettings(targets=set(targets), forceall=True))
        workflow = workflow_api._workflow
        workflow._prepare_dag(forceall=True, ignore_incomplete=True, lock_warn_only=True)
        workflow._build_dag()
        levels = [sorted(level, key=lambda job: str(job.output)) for level in workflow.dag.toposorted()]
        jobs = [job for level in levels for job in level if job.rule.name in RULES]
        return [spec_of(_facade(job, workflow.config)) for job in jobs]


def _facade(job: Any, config: dict[str, Any]) -> SimpleNamespace:
    """The variables that a job's script sees."""
    return SimpleNamespace(
        rule=job.rule.name,
        params=job.params,
        wildcards=job.wildcards,
        input=job.input,
        output=job.output,
        threads=1,
        config=config,
    )


def warm_up(rules: set[str]) -> None:
    """Import what the rules' functions need, so that a fork starts at once."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    importlib.import_module("torch").set_num_threads(1)
    for name in ("transformers", "pandas", "pyarrow.parquet", "bm25s", "sentence_transformers", "matplotlib", "mlflow"):
        importlib.import_module(name)
    for rule in rules:
        importlib.import_module(f"zerodr.{RULES[rule].function.partition(':')[0]}")
    provenance.code()
    provenance.environment()


class Operations:
    """Count the file operations of this process that change something, and end it before one of them.

    Args:
        last: number of the operation that is never done; 0: none.
    """

    def __init__(self, last: int = 0) -> None:
        self.count, self.last = 0, last
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple) -> None:
        if event in CHANGES or event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            self.count += 1
            if self.count == self.last:
                os.kill(os.getpid(), signal.SIGKILL)


class Forks:
    """Runs of stages in forks of this process; their screens and specs are files of `scratch`."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self._started = scratch, 0

    def start(self, spec: StageSpec, prepare: Callable[[], object] | None = None) -> int:
        """Run a stage as by hand from its spec.json; return its process number.

        Args:
            spec: the stage.
            prepare: called in the fork before the stage.
        """
        self._started += 1  # a spec of its own: two runners of one stage may read theirs at any time
        path = self.scratch / f"spec-{self._started % 4}.json"
        path.write_text(json.dumps(asdict(spec)))
        child = os.fork()
        if child:
            return child
        status = 3
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            stream = os.open(self._screen(os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(stream, 1)
            os.dup2(stream, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            if prepare:
                prepare()
            status = by_hand.main([str(path)])
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def finish(self, child: int) -> Result:
        """Wait for the end of a run; one that hangs is killed."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.005)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # its own children
        screen = self._screen(child)
        said = screen.read_text(errors="replace") if screen.exists() else ""  # killed before it had one
        screen.unlink(missing_ok=True)
        return Result(os.waitstatus_to_exitcode(status), said)

    def run(self, spec: StageSpec, prepare: Callable[[], object] | None = None) -> Result:
        """Run a stage to its end."""
        return self.finish(self.start(spec, prepare))

    def measure(self, spec: StageSpec) -> Reference:
        """Run a stage undisturbed.

        Raises:
            RuntimeError: it fails.
        """
        counted, started = self.scratch / "operations", time.monotonic()

        def count() -> None:
            operations = Operations()
            leave = os._exit

            def write_count(status: int) -> None:
                counted.write_text(str(operations.count))
                leave(status)

            os._exit = write_count  # type: ignore[assignment]

        result = self.run(spec, count)
        if result.status:
            raise RuntimeError(f"{spec.name()} failed: {result.said[-3000:]}")
        seconds = time.monotonic() - started
        size = sum(path.stat().st_size for declared in spec.outputs.values() for path in files_of(declared))
        return Reference(digests_of(spec), seconds, int(counted.read_text()), size)

    def _screen(self, child: int) -> Path:
        return self.scratch / f"screen.{child}"


def digests_of(spec: StageSpec) -> dict[str, str]:
    """True digest of each output, by path.

    Raises:
        ArtifactError: an output is missing, or a folder is not whole.
    """
    digests = {path: true_digest(path) for path in spec.outputs.values()}
    if absent := [path for path, digest in digests.items() if digest is None]:
        raise ArtifactError(", ".join(absent), "is missing or damaged")
    timed = {spec.rule, *(str((read_record(path) or {}).get("rule")) for path in spec.input_list())} & set(TIMED)
    return {path: WHOLE if timed else str(digest) for path, digest in digests.items()}


def true_digest(declared: str) -> str | None:
    """Digest of an artifact's bytes; of a folder that of its manifest, if its files are those that it lists."""
    path = Path(declared)
    try:
        whole = path.exists() and not (is_folder_artifact(path) and check_manifest(path, digests=True))
    except ValueError:  # the manifest is no JSON
        whole = False
    return file_digest(path) if whole else None


def differing(reference: dict[str, str]) -> list[str]:
    """List outputs that are missing or have other bytes than the reference; than their record, where times differ."""
    return [path for path, digest in reference.items() if true_digest(path) != expected(path, digest)]


def expected(path: str, digest: str) -> str:
    """Digest that an output must have."""
    record = read_record(path) if digest == WHOLE else None
    return str(record["digest"]) if record is not None else digest


def unfinished(reference: dict[str, str]) -> list[str]:
    """List outputs that are visible and have other bytes than the reference."""
    return [path for path in differing(reference) if Path(path).exists()]


def files_of(declared: str) -> list[Path]:
    """Files of an artifact: those that its manifest lists, or itself."""
    path = Path(declared)
    if not is_folder_artifact(path):
        return [path]
    return [path.parent / entry["path"] for entry in json.loads(path.read_text())["files"]]


def remove_outputs(spec: StageSpec) -> None:
    """Remove the declared outputs, as Snakemake does before it runs a job."""
    for declared in spec.outputs.values():
        Path(declared).unlink(missing_ok=True)


def leftovers(spec: StageSpec) -> list[str]:
    """Find what a finished stage must not leave: temporary outputs, records without artifact or of other bytes."""
    found = []
    for declared in map(Path, spec.outputs.values()):
        place = declared.parent.parent if is_folder_artifact(declared) else declared.parent
        found += [str(path) for path in place.glob(".*making")]
        record = read_record(declared)
        if record is None or record["digest"] != file_digest(declared):
            found.append(f"{record_path(declared)} does not fit")
        elif record["seconds"] < 0:
            found.append(f"{record_path(declared)} has {record['seconds']} seconds")
    return found
