"""Check what this machine lacks for the bench, and name the remedy. One finding a line; nothing is changed."""

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
from zerodr.forecast import FLOAT_BYTES, GIBI, MEBI, UNPACKED, USUAL_DIMENSION, first_names, in_mirror, is_unpinned
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
    """The result of one check.

    Attributes:
        topic: subject of the check.
        state: `ok`, `missing` (the mini job can't run without it) or `optional` (other features need it).
        detail: what is available.
        step: a command or a step, when the state is not `ok`.
    """

    topic: str
    state: Literal["ok", "missing", "optional"]
    detail: str
    step: str = ""


def examine(plan: Plan) -> list[Finding]:
    """Check everything that the plan's scale needs."""
    machine = [python(), packages(), java(), *disk(plan), memory(), cores(), gpu(), slurm()]
    return [*machine, *archives(plan), hub(plan), mlflow(), writable(), browser(), *scales(plan)]


def render(findings: list[Finding]) -> str:
    """Format one line a finding, then the verdict."""
    width = max(len(finding.topic) for finding in findings)
    lines = [f"{f.state:<8}  {f.topic:<{width}}  {f.detail}{f'  ->  {f.step}' if f.step else ''}" for f in findings]
    missing = [finding.topic for finding in findings if finding.state == "missing"]
    verdict = f"provide first: {', '.join(missing)}" if missing else "nothing is missing: make mini"
    return "\n".join([*lines, "", verdict])


def python() -> Finding:
    """Check the interpreter's version."""
    version, needed = (".".join(map(str, numbers)) for numbers in (sys.version_info[:3], PYTHON))
    if sys.version_info[:2] == PYTHON:
        return Finding("Python", "ok", version)
    return Finding("Python", "missing", f"{version}, needs {needed}", f"make PYTHON=python{needed} mini")


def packages(lock: Path = LOCK) -> Finding:
    """Compare installed packages with the lock file; local build tags such as `+cpu` don't count."""
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s;#]+)", lock.read_text(), re.M))
    absent, other = [], []
    for name, version in sorted(pinned.items()):
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
            continue
        if installed.partition("+")[0] != version.partition("+")[0]:
            other.append(f"{name} {installed} (pinned {version})")
    if absent:
        return Finding("packages", "missing", f"{len(absent)} of {len(pinned)} absent: {first_names(absent)}", INSTALL)
    if other:
        return Finding("packages", "optional", f"{len(other)} of {len(pinned)} differ: {first_names(other)}", INSTALL)
    return Finding("packages", "ok", f"{len(pinned)} as pinned in {lock.name}")


def java() -> Finding:
    """Check Java and the jar for Lucene."""
    from zerodr.lexical.jvm import java_status

    try:
        return Finding("Java", "ok", java_status())
    except MachineError as error:
        return Finding("Java", "missing", error.what, f"{error.next_step} (or methods: [bm25-flat+bm25s])")


def disk(plan: Plan) -> Iterator[Finding]:
    """Compare free space with the estimated needs of the scale."""
    needed = scale_bytes(plan)
    free = shutil.disk_usage(".").free
    detail = f"{free / GIBI:.1f} GiB free, scale {plan.config.scale} needs about {needed / GIBI:.1f} GiB"
    if free < needed:
        yield Finding("disk", "missing", detail, "free space, or use a larger disk: ln -s /larger/disk results")
    else:
        yield Finding("disk", "ok", detail)
    inodes = os.statvfs(".")
    if inodes.f_files and inodes.f_favail < 10_000:
        yield Finding("inodes", "missing", f"{inodes.f_favail} left", "delete small files")


def scale_bytes(plan: Plan) -> int:
    """Estimate the bytes of the main table at the plan's scale: archives, collections, indexes, embeddings."""
    rows = {row.name: row for row in [*plan.columns, plan.collection(plan.source)]}.values()
    packed = {row.archive: row.archive_bytes or 0 for row in rows}
    encoders = [name for name in plan.methods if plan.method(name).kind == "encoder"]
    documents = sum(row.planned_documents + (row.queries or 0) for row in plan.columns)
    unpacked = 2 * UNPACKED * sum(packed.values())  # a collection and its index
    return SPARE_BYTES + unpacked + documents * USUAL_DIMENSION * FLOAT_BYTES * len(encoders)


def memory(meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup/memory.max")) -> Finding:
    """Check the memory of the machine, or of the container when that is less."""
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB", meminfo.read_text(), re.M)) if meminfo.exists() else {}
    sizes = [int(fields["MemTotal"]) // 1024] if "MemTotal" in fields else []
    if limit.exists() and limit.read_text().strip().isdigit():
        sizes.append(int(limit.read_text()) // MEBI)
    if not sizes:
        return Finding("memory", "optional", "unknown on this system", f"needs {LEAST_MEMORY_MIB} MiB")
    size, comfortable = min(sizes), max(need(rule).base_mib for rule in RULES)
    if size < LEAST_MEMORY_MIB:
        return Finding("memory", "missing", f"{size} MiB, needs {LEAST_MEMORY_MIB}", "use another machine")
    if size < comfortable:
        detail = f"{size} MiB, {comfortable} are comfortable"
        return Finding("memory", "optional", detail, "run fewer jobs at once: --cores 1")
    return Finding("memory", "ok", f"{size} MiB")


def cores() -> Finding:
    """Count the cores that this process may use."""
    return Finding("cores", "ok", str(len(os.sched_getaffinity(0))))


def gpu() -> Finding:
    """List CUDA devices by the driver, and check whether the installed torch can use them."""
    try:
        import pynvml
    except ImportError:
        return Finding("GPU", "optional", "unknown: package nvidia-ml-py is absent", INSTALL)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Finding("GPU", "optional", f"none ({error})", "scale mini needs none; scale=lab should have one")
    try:
        devices = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        names = [str(pynvml.nvmlDeviceGetName(device)) for device in devices]
    finally:
        pynvml.nvmlShutdown()
    import torch

    if names and not torch.cuda.is_available():
        detail = f"{first_names(names)}, but torch {torch.__version__} can't use it"
        return Finding("GPU", "optional", detail, f"UV_TORCH_BACKEND=auto {INSTALL}")
    return Finding("GPU", "ok", f"{first_names(names)}, torch {torch.__version__}")


def slurm() -> Finding:
    """Check Slurm's commands and partitions."""
    absent = [name for name in ("sbatch", "sinfo", "squeue") if shutil.which(name) is None]
    if absent:
        detail = f"{', '.join(absent)} not on PATH"
        return Finding("Slurm", "optional", detail, "run on a login node to use --profile slurm")
    words = ["sinfo", "--noheader", "--format=%P"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode and any(sign in done.stderr for sign in NO_CONTROLLER):
        return Finding("Slurm", "optional", "no controller is configured here", "run on a login node of the cluster")
    if done.returncode:
        message = " ".join(done.stderr.split())[:120]
        return Finding("Slurm", "optional", f"sinfo: {message}", "ask the cluster's administrators")
    return Finding("Slurm", "ok", f"partitions {' '.join(done.stdout.split())}")


def archives(plan: Plan) -> Iterator[Finding]:
    """Check the archives of the plan's scale: downloaded, in a mirror folder, or still to fetch."""
    rows = {row.archive: row for row in [*plan.columns, plan.collection(plan.source)] if row.kind != "own"}
    far = [row for name, row in rows.items() if not Path(paths.archive(name)).exists() and not in_mirror(plan, name)]
    present = f"{len(rows) - len(far)} of {len(rows)} archives are available"
    unpinned = [name for name, row in rows.items() if is_unpinned(plan, row)]
    tail = f"; not pinned by a checksum: {first_names(unpinned)}" if unpinned else ""
    if not far:
        yield Finding("archives", "ok", present + tail)
        return
    size = sum(row.archive_bytes or 0 for row in far) / MEBI
    names = first_names([row.archive for row in far])
    without = [row.archive for row in far if not row.addresses]
    step = f"put them into a mirror folder: {', '.join(plan.config.mirrors) or 'mirrors in config/config.yaml'}"
    if plan.config.offline or without:
        reason = "offline is set" if plan.config.offline else f"no address for {first_names(without)}"
    else:
        first = far[0].addresses
        reason = "" if any(_answers(url) for url in first) else f"{first[0]} can't be reached"
    if reason:
        yield Finding("archives", "missing", f"{present}; absent: {names}; {reason}{tail}", step)
    else:
        present += f"; the run fetches {size:.0f} MiB: {names}{tail}"
        yield Finding("archives", "optional", present, f"or {step}")


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE_S):
            return True
    except OSError:
        return False


def hub(plan: Plan, address: str = HUB) -> Finding:
    """Check whether the model hub answers."""
    if plan.config.offline or os.environ.get("HF_HUB_OFFLINE") == "1":
        return Finding("model hub", "ok", "not checked: offline is set")
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE_S) as answer:
            return Finding("model hub", "ok", f"{address} answers {answer.status}")
    except urllib.error.HTTPError as error:
        state: Literal["ok", "optional"] = "ok" if error.code < 500 else "optional"
        return Finding("model hub", state, f"{address} answers {error.code}", "" if error.code < 500 else "try later")
    except OSError as error:
        step = "only models from the hub need it; set HTTPS_PROXY, or give folders"
        return Finding("model hub", "optional", f"{address}: {getattr(error, 'reason', error)}", step)


def mlflow() -> Finding:
    """Check the store of published lineage."""
    uri = tracking_uri()
    if uri.startswith(("http:", "https:")):
        try:
            with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=PATIENCE_S) as answer:
                return Finding("MLflow", "ok", f"{shown_uri(uri)} answers {answer.status}")
        except OSError as error:
            detail = f"{shown_uri(uri)}: {getattr(error, 'reason', error)}"
            return Finding("MLflow", "missing", detail, "start the server, or: unset MLFLOW_TRACKING_URI")
    exists = (FOLDER / "mlflow.db").exists()
    return Finding("MLflow", "ok", f"{shown_uri(uri)}{'' if exists else ' (the first run creates it)'}")


def writable(folder: Path = Path("results")) -> Finding:
    """Check whether files can be written to the results folder."""
    folder = folder if folder.exists() else Path(".")
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding("results", "ok", f"{folder.resolve()} is writable")
    except OSError as error:
        detail = f"{folder.resolve()}: {error.strerror}"
        return Finding("results", "missing", detail, f"chmod u+w {folder}, or use another checkout")


def scales(plan: Plan, root: Path = Path(".")) -> Iterator[Finding]:
    """Check whether the configuration is valid at every other scale too."""
    given = plan.config.model_dump(exclude_unset=True)
    others = sorted(set(mapping(read_yaml(root / "config/scales.yaml"), "config/scales.yaml")) - {plan.config.scale})
    for scale in others:
        try:
            load_bench(root, given | {"scale": scale})
        except ConfigError as error:
            yield Finding(f"scale {scale}", "optional", f"{error.where}: {error.what}", error.next_step)
        else:
            yield Finding(f"scale {scale}", "ok", "its configuration is valid")


def browser() -> Finding:
    """Check for a browser for the test of the HTML report."""
    if path := next((path for path in map(shutil.which, BROWSERS) if path), None):
        return Finding("browser", "ok", path)
    step = "only the report's test needs it: apt install chromium"
    return Finding("browser", "optional", "no Chromium on PATH", step)
