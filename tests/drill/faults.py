"""Faults of one stage each: what goes wrong, and how the disturbed run ended."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.drill.disk import Disk
from tests.drill.stages import Forks, Operations, Reference, Result, files_of, remove_outputs
from zerodr.artifacts.manifest import is_folder_artifact
from zerodr.artifacts.record import record_path
from zerodr.artifacts.stage import StageSpec
from zerodr.errors import ArtifactError
from zerodr.lineage.graph import Graph
from zerodr.lineage.verify import verify

PAGE_BYTES = 4096
JUMPS_S = (-630_720_000, -86_400, -3_600, 3_600, 86_400, 630_720_000)
DOWNLOADS = ("fetch_archive",)
PUBLISHER = "publish_lineage"


@dataclass
class Site:
    """Where faults happen.

    Attributes:
        forks: runs stages.
        disk: their file system.
        references: of undisturbed runs, by the stage's name.
        mirror: folder with the archives.
    """

    forks: Forks
    disk: Disk
    references: dict[str, Reference] = field(default_factory=dict)
    mirror: Path = Path("mirror")

    def run_and_signal(self, spec: StageSpec, number: signal.Signals, draw: random.Random) -> Result:
        """Run a stage and send it a signal at a random moment of its usual time, or shortly after."""
        child = self.forks.start(spec)
        time.sleep(draw.uniform(0, 1.1 * self.references[spec.name()].seconds))
        with suppress(ProcessLookupError):
            os.kill(child, number)
        return self.forks.finish(child)


Disturb = Callable[[Site, StageSpec, random.Random], list[Result]]


def kill(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Send kill -9 at a random moment."""
    return [site.run_and_signal(spec, signal.SIGKILL, draw)]


def kill_at_write(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """End the process before a random file operation; half of them are among the last, which publish."""
    count = site.references[spec.name()].operations
    last = draw.randint(1 if draw.random() < 0.5 else max(1, count - 16), count)
    return [site.forks.run(spec, lambda: Operations(last))]


def terminate(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Send SIGTERM at a random moment."""
    return [site.run_and_signal(spec, signal.SIGTERM, draw)]


def full_disk(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Leave less space than the outputs need."""
    pages = site.references[spec.name()].size_bytes // PAGE_BYTES
    with site.disk.full(draw.randint(0, pages + 1) * PAGE_BYTES):
        return [site.forks.run(spec)]


def read_only(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Mount the file system read-only."""
    with site.disk.read_only():
        return [site.forks.run(spec)]


def corrupted_input(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Change bytes of an input; size and time stay."""
    path, content = damaged_file(spec, draw)
    place = draw.randrange(len(content))
    changed = content[:place] + bytes(b ^ 0xFF for b in content[place : place + 16]) + content[place + 16 :]
    return _with_content(site, spec, path, content, changed)


def truncated_input(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Cut an input; its time stays."""
    path, content = damaged_file(spec, draw)
    return _with_content(site, spec, path, content, content[: draw.randrange(len(content))])


def _with_content(site: Site, spec: StageSpec, path: Path, content: bytes, changed: bytes) -> list[Result]:
    state = path.stat()
    _replace(path, changed, state)
    try:
        result = site.forks.run(spec)
        found = any(path.name in str(finding) for finding in verify(Graph(), inputs_of(spec)))
        if not found:
            raise RuntimeError(f"verify does not find that {path} is damaged")
        if result.status == 0:  # `verify` names what was built from it; its step is to rebuild that
            remove_outputs(spec)
            result = Result(0, "found by verify")
        return [result]
    finally:
        _replace(path, content, state)


def _replace(path: Path, content: bytes, state: os.stat_result) -> None:
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def truncated_output(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Run to the end, then cut an output; the same stage must notice it."""
    result = site.forks.run(spec)
    files = [path for declared in spec.outputs.values() for path in files_of(declared) if path.stat().st_size]
    path = draw.choice(files)
    os.truncate(path, draw.randrange(path.stat().st_size))
    return [result]


def clock_jump(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Let the clock jump at a random call, and give an input a time in the future or the past."""
    jump, calls = draw.choice(JUMPS_S), draw.randint(1, 12)
    path = Path(draw.choice(spec.input_list() or ["config/config.yaml"]))
    state = path.stat()
    os.utime(path, (state.st_atime, state.st_mtime + jump))
    try:
        return [site.forks.run(spec, lambda: _shift_clock(jump, calls))]
    finally:
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def _shift_clock(jump: float, calls: int) -> None:
    clock, seen = time.time, [0]

    def shifted() -> float:
        seen[0] += 1
        return clock() + (jump if seen[0] > calls else 0)

    time.time = shifted
    time.time_ns = lambda: int(shifted() * 1e9)


def second_runner(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Start the same stage twice, the second one at a random moment of the first."""
    first = site.forks.start(spec)
    time.sleep(draw.uniform(0, site.references[spec.name()].seconds))
    return [site.forks.finish(child) for child in (first, site.forks.start(spec))]


def vanished_mirror(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Move the mirror away before the stage, or at a random moment of it."""
    away = site.mirror.with_name("away")
    delay = draw.choice([0.0, draw.uniform(0, site.references[spec.name()].seconds)])
    child = site.forks.start(spec, (lambda: time.sleep(0.1)) if not delay else None)
    time.sleep(delay)
    site.mirror.rename(away)
    try:
        return [site.forks.finish(child)]
    finally:
        away.rename(site.mirror)


def killed_publisher(site: Site, spec: StageSpec, draw: random.Random) -> list[Result]:
    """Forget the store, and kill the publisher while it fills it anew."""
    for path in Path("results/lineage").glob("mlflow.db*"):
        path.unlink()
    return [site.run_and_signal(spec, signal.SIGKILL, draw)]


KINDS: dict[str, Disturb] = {
    "kill -9": kill,
    "kill -9 at a write": kill_at_write,
    "TERM": terminate,
    "full disk": full_disk,
    "read-only": read_only,
    "corrupted input": corrupted_input,
    "truncated input": truncated_input,
    "truncated output": truncated_output,
    "clock jump": clock_jump,
    "second runner": second_runner,
    "vanished mirror": vanished_mirror,
    "killed publisher": killed_publisher,
}


def can_happen(kind: str, spec: StageSpec, disk: Disk) -> bool:
    """True when a kind of fault makes sense for a stage and can be made on this machine."""
    if kind in ("full disk", "read-only"):
        return disk.mounted
    if kind in ("corrupted input", "truncated input"):
        return bool(recorded_inputs(spec))
    if kind == "vanished mirror":
        return spec.rule in DOWNLOADS
    return kind != "killed publisher" or spec.rule == PUBLISHER


def recorded_inputs(spec: StageSpec) -> list[str]:
    """Inputs that another stage wrote."""
    return [path for path in spec.input_list() if record_path(path).exists()]


def inputs_of(spec: StageSpec) -> list[str]:
    """Inputs with a record, for `verify`.

    Raises:
        ArtifactError: there are none.
    """
    paths = recorded_inputs(spec)
    if not paths:
        raise ArtifactError(spec.name(), "has no input with a record")
    return paths


def damaged_file(spec: StageSpec, draw: random.Random) -> tuple[Path, bytes]:
    """Choose a file of an input, and read it. Files without a checksum of their own are left out."""
    files = []
    for declared in inputs_of(spec):
        path = Path(declared)
        listed = json.loads(path.read_text())["files"] if is_folder_artifact(path) else []
        volatile = {path.parent / entry["path"] for entry in listed if "sha256" not in entry}
        files += [file for file in files_of(declared) if file not in volatile and file.stat().st_size]
    path = draw.choice(files)
    return path, path.read_bytes()
