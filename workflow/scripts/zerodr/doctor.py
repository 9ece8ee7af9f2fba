"""What this machine lacks for the bench, and how to mend it. One finding a line; nothing is changed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zerodr.artifacts.provenance import LOCK
from zerodr.config.base import mapping
from zerodr.config.files import read_yaml
from zerodr.config.load import load_bench
from zerodr.errors import ConfigError, MachineError
from zerodr.forecast import FLOAT_BYTES, GIBI, MEBI, UNPACKED, USUAL_DIMENSION, in_mirror, is_unpinned
from zerodr.lineage.store import FOLDER, shown_uri, tracking_uri
from zerodr.plan import Plan, paths
from zerodr.plan.resources import need
from zerodr.plan.rules import RULES

PYTHON = (3, 11)
HUB = "https://huggingface.co"
PATIENCE_S = 4
SPARE_BYTES = GIBI // 2
LEAST_MEMORY_MIB = 4000
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
NO_CONTROLLER = ("resolve_ctls_from_dns_srv", "Could not establish a configuration source")
INSTALL = "bash envs/create.sh"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        topic: what was looked at.
        state: `ok`, `missing` (the mini job can't run without it) or `optional` (something else needs it).
        found: what there is.
        mend: a command or a step, when the state is not `ok`.
    """

    topic: str
    state: Literal["ok", "missing", "optional"]
    found: str
    mend: str = ""


def examine(plan: Plan) -> list[Finding]:
    """Look at everything that the plan's scale needs."""
    return [
        python(),
        packages(),
        java(),
        *disk(plan),
        memory(),
        cores(),
        gpu(),
        slurm(),
        *archives(plan),
        hub(plan),
        mlflow(),
        writable(),
        browser(),
        *scales(plan),
    ]


def render(findings: list[Finding]) -> str:
    """One line a finding, then what it comes to."""
    width = max(len(finding.topic) for finding in findings)
    lines = [f"{f.state:<8}  {f.topic:<{width}}  {f.found}{f'  ->  {f.mend}' if f.mend else ''}" for f in findings]
    missing = [finding.topic for finding in findings if finding.state == "missing"]
    verdict = f"mend first: {', '.join(missing)}" if missing else "nothing is missing: make mini"
    return "\n".join([*lines, "", verdict])


def python() -> Finding:
    """The interpreter's version."""
    found = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, PYTHON))
    if sys.version_info[:2] == PYTHON:
        return Finding("Python", "ok", found)
    return Finding("Python", "missing", f"{found}, needs {wanted}", f"make PYTHON=python{wanted} mini")


def packages(lock: Path = LOCK) -> Finding:
    """Installed packages against the lock file; local build tags such as `+cpu` don't count."""
    wanted = dict(re.findall(r"^([\w.-]+)==([^\s;#]+)", lock.read_text(), re.M))
    absent, other = [], []
    for name, version in sorted(wanted.items()):
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
            continue
        if found.partition("+")[0] != version.partition("+")[0]:
            other.append(f"{name} {found} (pinned {version})")
    if absent:
        return Finding("packages", "missing", f"{len(absent)} of {len(wanted)} absent: {_few(absent)}", INSTALL)
    if other:
        return Finding("packages", "optional", f"{len(other)} of {len(wanted)} differ: {_few(other)}", INSTALL)
    return Finding("packages", "ok", f"{len(wanted)} as pinned in {lock.name}")


def java() -> Finding:
    """Java and the jar for Lucene."""
    from zerodr.lexical.jvm import java_status

    try:
        return Finding("Java", "ok", java_status())
    except MachineError as error:
        return Finding("Java", "missing", error.what, f"{error.next_step} (or methods: [bm25-flat+bm25s])")


def disk(plan: Plan) -> Iterator[Finding]:
    """Free space against what the whole scale takes."""
    needed = scale_bytes(plan)
    free = shutil.disk_usage(".").free
    found = f"{free / GIBI:.1f} GiB free, scale {plan.config.scale} takes about {needed / GIBI:.1f} GiB"
    short = free < needed
    mend = "free space, or work on a larger disk: ln -s /larger/disk results" if short else ""
    yield Finding("disk", "missing" if short else "ok", found, mend)
    inodes = os.statvfs(".")
    if inodes.f_files and inodes.f_favail < 10_000:
        yield Finding("inodes", "missing", f"{inodes.f_favail} left", "delete small files")


def scale_bytes(plan: Plan) -> int:
    """Bytes that the main table of the plan's scale takes: archives, collections, indexes, embeddings."""
    rows = {row.name: row for row in [*plan.columns, plan.collection(plan.source)]}.values()
    packed = {row.archive: row.archive_bytes or 0 for row in rows}
    encoders = [name for name in plan.methods if plan.method(name).kind == "encoder"]
    documents = sum(row.planned_documents + (row.queries or 0) for row in plan.columns)
    kept = 2 * UNPACKED * sum(packed.values())  # a collection and its index
    return SPARE_BYTES + kept + documents * USUAL_DIMENSION * FLOAT_BYTES * len(encoders)


def memory(meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup/memory.max")) -> Finding:
    """Memory of the machine, or of the container when that is less."""
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB", meminfo.read_text(), re.M)) if meminfo.exists() else {}
    sizes = [int(fields["MemTotal"]) // 1024] if "MemTotal" in fields else []
    if limit.exists() and limit.read_text().strip().isdigit():
        sizes.append(int(limit.read_text()) // MEBI)
    if not sizes:
        return Finding("memory", "optional", "can't be told on this system", f"have {LEAST_MEMORY_MIB} MiB")
    size, wanted = min(sizes), max(need(rule).base_mib for rule in RULES)
    if size < LEAST_MEMORY_MIB:
        return Finding("memory", "missing", f"{size} MiB, needs {LEAST_MEMORY_MIB}", "use another machine")
    if size < wanted:
        return Finding(
            "memory", "optional", f"{size} MiB, {wanted} are comfortable", "run fewer jobs at once: --cores 1"
        )
    return Finding("memory", "ok", f"{size} MiB")


def cores() -> Finding:
    """Cores that this process may use."""
    return Finding("cores", "ok", str(len(os.sched_getaffinity(0))))


def gpu() -> Finding:
    """CUDA devices by the driver, and whether the installed torch can use them."""
    try:
        import pynvml
    except ImportError:
        return Finding("GPU", "optional", "can't be told: package nvidia-ml-py is absent", INSTALL)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Finding("GPU", "optional", f"none ({error})", "scale mini needs none; scale=lab wants one")
    try:
        names = [
            str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(number)))
            for number in range(pynvml.nvmlDeviceGetCount())
        ]
    finally:
        pynvml.nvmlShutdown()
    import torch

    if names and not torch.cuda.is_available():
        mend = f"UV_TORCH_BACKEND=auto {INSTALL}"
        return Finding("GPU", "optional", f"{_few(names)}, but torch {torch.__version__} can't use it", mend)
    return Finding("GPU", "ok", f"{_few(names)}, torch {torch.__version__}")


def slurm() -> Finding:
    """Slurm's commands and partitions."""
    absent = [name for name in ("sbatch", "sinfo", "squeue") if shutil.which(name) is None]
    if absent:
        return Finding(
            "Slurm", "optional", f"{', '.join(absent)} not on PATH", "run on a login node to use --profile slurm"
        )
    done = subprocess.run(
        ["sinfo", "--noheader", "--format=%P"], capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode and any(sign in done.stderr for sign in NO_CONTROLLER):
        return Finding("Slurm", "optional", "no controller is configured here", "run on a login node of the cluster")
    if done.returncode:
        told = " ".join(done.stderr.split())[:120]
        return Finding("Slurm", "optional", f"sinfo: {told}", "ask the cluster's administrators")
    return Finding("Slurm", "ok", f"partitions {' '.join(done.stdout.split())}")


def archives(plan: Plan) -> Iterator[Finding]:
    """Archives of the plan's scale: downloaded, in a mirror folder, or still to fetch."""
    rows = {row.archive: row for row in [*plan.columns, plan.collection(plan.source)] if row.kind != "own"}
    far = [row for name, row in rows.items() if not Path(paths.archive(name)).exists() and not in_mirror(plan, name)]
    found = f"{len(rows) - len(far)} of {len(rows)} archives are here"
    unpinned = [name for name, row in rows.items() if is_unpinned(plan, row)]
    tail = f"; not pinned by a checksum: {_few(unpinned)}" if unpinned else ""
    if not far:
        yield Finding("archives", "ok", found + tail)
        return
    size = sum(row.archive_bytes or 0 for row in far) / MEBI
    names = _few([row.archive for row in far])
    without = [row.archive for row in far if not row.addresses]
    mend = f"put them into a mirror folder: {', '.join(plan.config.mirrors) or 'mirrors in config/config.yaml'}"
    if plan.config.offline or without:
        reason = "offline is set" if plan.config.offline else f"no address for {_few(without)}"
    else:
        first = far[0].addresses
        reason = "" if any(_answers(url) for url in first) else f"{first[0]} can't be reached"
    if reason:
        yield Finding("archives", "missing", f"{found}; absent: {names}; {reason}{tail}", mend)
    else:
        found += f"; the run fetches {size:.0f} MiB: {names}{tail}"
        yield Finding("archives", "optional", found, f"or {mend}")


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE_S):
            return True
    except OSError:
        return False


def hub(plan: Plan, address: str = HUB) -> Finding:
    """Whether the model hub answers."""
    if plan.config.offline or os.environ.get("HF_HUB_OFFLINE") == "1":
        return Finding("model hub", "ok", "not asked: offline is set")
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE_S) as answer:
            return Finding("model hub", "ok", f"{address} answers {answer.status}")
    except urllib.error.HTTPError as error:
        found = f"{address} answers {error.code}"
        return Finding(
            "model hub", "ok" if error.code < 500 else "optional", found, "" if error.code < 500 else "later"
        )
    except OSError as error:
        mend = "only models from the hub need it; set HTTPS_PROXY, or give folders"
        return Finding("model hub", "optional", f"{address}: {getattr(error, 'reason', error)}", mend)


def mlflow() -> Finding:
    """Where lineage is published to."""
    uri = tracking_uri()
    if uri.startswith(("http:", "https:")):
        try:
            with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=PATIENCE_S) as answer:
                return Finding("MLflow", "ok", f"{shown_uri(uri)} answers {answer.status}")
        except OSError as error:
            return Finding(
                "MLflow",
                "missing",
                f"{shown_uri(uri)}: {getattr(error, 'reason', error)}",
                "start the server, or: unset MLFLOW_TRACKING_URI",
            )
    there = (FOLDER / "mlflow.db").exists()
    return Finding("MLflow", "ok", f"{shown_uri(uri)}{'' if there else ' (made by the first run)'}")


def writable(folder: Path = Path("results")) -> Finding:
    """Whether files can be made in the results folder."""
    place = folder if folder.exists() else Path(".")
    try:
        with tempfile.TemporaryFile(dir=place):
            return Finding("results", "ok", f"{place.resolve()} is writable")
    except OSError as error:
        return Finding(
            "results", "missing", f"{place.resolve()}: {error.strerror}", f"chmod u+w {place}, or another checkout"
        )


def scales(plan: Plan, root: Path = Path(".")) -> Iterator[Finding]:
    """Whether the configuration can be meant at every other scale too."""
    given = plan.config.model_dump(exclude_unset=True)
    others = sorted(set(mapping(read_yaml(root / "config/scales.yaml"), "config/scales.yaml")) - {plan.config.scale})
    for scale in others:
        try:
            load_bench(root, given | {"scale": scale})
        except ConfigError as error:
            yield Finding(f"scale {scale}", "optional", f"{error.where}: {error.what}", error.next_step)
        else:
            yield Finding(f"scale {scale}", "ok", "its configuration can be read")


def browser() -> Finding:
    """A browser for the test of the HTML report."""
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found:
        return Finding("browser", "ok", found)
    return Finding(
        "browser", "optional", "no Chromium on PATH", "only the report's test needs it: apt install chromium"
    )


def _few(names: list[str], most: int = 4) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
