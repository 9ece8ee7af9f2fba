"""Check a machine with the standard library alone, before anything is installed. Nothing is changed."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from zerodr.checkout import CACHES, REFUSED, provide_caches
from zerodr.config.mirrors import shared_mirrors
from zerodr.config.quantities import GIBI, MEBI, first_names

LOCK = Path(__file__).resolve().parents[4] / "envs" / "requirements.lock"
PIN = re.compile(r"^([\w.-]+)==([^\s;#]+)", re.M)
PYTHONS = ((3, 11), (3, 13))
HUB = "https://huggingface.co"
WAIT_S = 30  # for nvidia-smi and sinfo
PATIENCE_S = 4
ENVIRONMENT_GIB = 3  # .venv with torch for the CPU; CUDA's libraries take more
LEAST_MEMORY_MIB = 4000
COMFORTABLE_MEMORY_MIB = 24000
NO_CONTROLLER = ("resolve_ctls_from_dns_srv", "Could not establish a configuration source")
NO_GPU = "scale mini needs none; scale=lab should have one"
INSTALL = "bash envs/create.sh"
SHOWN = 4


class ScaleNeeds(NamedTuple):
    """Needs of the default target at a scale, estimated.

    Attributes:
        disk_gib: results and downloads: measured at `mini`, by `zerodr plan` at the others, with models added; None:
            not known.
        memory_mib: of the largest job.
        gpu: whether its trainings are planned for a GPU.
    """

    disk_gib: float | None
    memory_mib: int
    gpu: bool


MINI_GIB = 3
SCALES = {
    "mini": ScaleNeeds(MINI_GIB, LEAST_MEMORY_MIB, False),
    "lab": ScaleNeeds(20, 5000, True),
    "paper": ScaleNeeds(5000, 20000, True),
}


@dataclass(frozen=True)
class Check:
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


def is_missing(findings: Sequence[Check]) -> bool:
    """True when the mini job can't run."""
    return any(finding.state == "missing" for finding in findings)


def examine(root: Path = Path(".")) -> list[Check]:
    """Check what can be checked without a package."""
    machine, free = machine_checks(space(root)), shutil.disk_usage(root).free
    where = [mirrors(root / "config/config.yaml"), hub(False), writable(root / "results"), caches()]
    has_gpu = any(check.topic == "GPU" and check.state == "ok" for check in machine)
    return [*machine, *where, *runnable(free, memory_mib(), has_gpu, SCALES)]


def machine_checks(*room: Check) -> list[Check]:
    """Check Python, packages, memory, processor, GPU and Slurm; `room` comes behind the packages."""
    return [python(), packages(), *room, memory(), cores(), gpu(), slurm()]


def render(findings: list[Check]) -> str:
    """Format one line a finding, then the verdict."""
    width = max(len(finding.topic) for finding in findings)
    lines = [f"{f.state:<8}  {f.topic:<{width}}  {f.detail}{f'  ->  {f.step}' if f.step else ''}" for f in findings]
    missing = [finding.topic for finding in findings if finding.state == "missing"]
    verdict = f"provide first: {', '.join(missing)}" if missing else "nothing is missing: make mini"
    return "\n".join([*lines, "", verdict])


def space(root: Path = Path(".")) -> Check:
    """Compare free space with what the environment and the smallest scale need."""
    free, needed = shutil.disk_usage(root).free / GIBI, ENVIRONMENT_GIB + MINI_GIB
    detail = f"{free:.1f} GiB free, environment and scale mini need about {needed:.0f} GiB"
    return Check("disk", "ok" if free >= needed else "missing", detail, "" if free >= needed else "free space")


def mirrors(config: Path) -> Check:
    """List the mirror folders of the configuration, read as text, and of the machine, and the archives in them."""
    text = config.read_text(encoding="utf-8") if config.exists() else ""
    match = re.search(r"^mirrors:\s*\[([^\]]*)\]", text, re.M)
    named = [name.strip(" '\"") for name in (match[1] if match else "").split(",") if name.strip()]
    folders = [Path(name) for name in dict.fromkeys([*named, *shared_mirrors(config.parent.parent)])]
    present = [f"{path} ({len([*path.iterdir()])} files)" for path in folders if path.is_dir()]
    absent = [str(path) for path in folders if not path.is_dir()]
    detail = "; ".join([*present, *(f"{name} is no folder" for name in absent)]) or "none configured"
    step = "" if present else "archives come from the network; or put them into a mirror folder (docs/install.md)"
    return Check("mirrors", "ok" if present else "optional", detail, step)


def runnable(free_bytes: int, memory: int | None, gpus: bool, scales: dict[str, ScaleNeeds]) -> Iterator[Check]:
    """Say for each scale whether its default target can run here, as far as disk, memory and GPU decide."""
    for name, scale in scales.items():
        lacks = []
        if scale.disk_gib is not None and free_bytes < scale.disk_gib * GIBI:
            lacks.append(f"disk: {free_bytes / GIBI:.0f} of about {scale.disk_gib:.0f} GiB")
        if memory is not None and memory < scale.memory_mib:
            lacks.append(f"memory: {memory} of {scale.memory_mib} MiB")
        if scale.gpu and not gpus:
            lacks.append("a GPU (--config gpus=0 trains on the CPU, slowly)")
        command = f"snakemake --profile config/profiles/local --config scale={name}"
        detail = f"lacks {'; '.join(lacks)}" if lacks else "can run here"
        yield Check(f"target all, scale {name}", "optional" if lacks else "ok", detail, command if not lacks else "")


def memory_mib(meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int | None:
    """Return the memory of the machine, or of the container when that is less; None when unknown."""
    fields = (
        dict(re.findall(r"^(\w+):\s+(\d+) kB", meminfo.read_text(encoding="utf-8"), re.M)) if meminfo.exists() else {}
    )
    sizes = [int(fields["MemTotal"]) // 1024] if "MemTotal" in fields else []
    if limit.exists() and limit.read_text(encoding="utf-8").strip().isdigit():
        sizes.append(int(limit.read_text(encoding="utf-8")) // MEBI)
    return min(sizes, default=None)


def python() -> Check:
    """Check the interpreter's version."""
    version, first, last = (".".join(map(str, numbers)) for numbers in (sys.version_info[:3], *PYTHONS))
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return Check("Python", "ok", version)
    return Check("Python", "missing", f"{version}, needs {first} to {last}", f"make PYTHON=python{last} mini")


def packages(lock: Path = LOCK) -> Check:
    """Compare installed packages with the lock file; local build tags such as `+cpu` don't count."""
    pinned = dict(PIN.findall(lock.read_text(encoding="utf-8")))
    absent, other = [], []
    for name, version in sorted(pinned.items()):
        installed = installed_version(name)
        if installed is None:
            absent.append(name)
        elif installed.partition("+")[0] != version.partition("+")[0]:
            other.append(f"{name} {installed} (pinned {version})")
    if absent:
        return Check(
            "packages", "missing", f"{len(absent)} of {len(pinned)} absent: {first_names(absent, SHOWN)}", INSTALL
        )
    if other:
        return Check(
            "packages", "optional", f"{len(other)} of {len(pinned)} differ: {first_names(other, SHOWN)}", INSTALL
        )
    return Check("packages", "ok", f"{len(pinned)} as pinned in {lock.name}")


def installed_version(name: str) -> str | None:
    """Version of an installed package; None where it is absent."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def memory(meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup/memory.max")) -> Check:
    """Check the memory of the machine, or of the container when that is less."""
    size = memory_mib(meminfo, limit)
    if size is None:
        return Check("memory", "optional", "unknown on this system", f"needs {LEAST_MEMORY_MIB} MiB")
    if size < LEAST_MEMORY_MIB:
        return Check("memory", "missing", f"{size} MiB, needs {LEAST_MEMORY_MIB}", "use another machine")
    if size < COMFORTABLE_MEMORY_MIB:
        detail = f"{size} MiB, {COMFORTABLE_MEMORY_MIB} are comfortable"
        return Check("memory", "optional", detail, "run fewer jobs at once: --cores 1")
    return Check("memory", "ok", f"{size} MiB")


def cores() -> Check:
    """Count the cores that this process may use."""
    return Check("cores", "ok", str(len(os.sched_getaffinity(0))))


def gpu() -> Check:
    """List CUDA devices by the driver, and check whether the installed torch can use them."""
    if shutil.which("nvidia-smi") is None:
        return Check("GPU", "optional", "none (no nvidia-smi on PATH)", NO_GPU)
    words = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    done = _ask(words)
    names = done.stdout.strip().splitlines()
    if done.returncode or not names:
        reason = " ".join((done.stdout + done.stderr).split())[:120]
        return Check("GPU", "optional", f"none ({reason})", NO_GPU)
    if importlib.util.find_spec("torch") is None:
        return Check("GPU", "optional", f"{'; '.join(names)}, torch is not installed", INSTALL)
    import torch

    if not torch.cuda.is_available():
        detail = f"{'; '.join(names)}, but torch {torch.__version__} can't use it"
        return Check("GPU", "optional", detail, f"UV_TORCH_BACKEND=auto {INSTALL}")
    return Check("GPU", "ok", f"{'; '.join(names)}, torch {torch.__version__}")


def _ask(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command; one that hangs, as with a sick driver or a controller that is down, counts as failed."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False, encoding="utf-8")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"no answer within {WAIT_S} s")


def slurm() -> Check:
    """Check Slurm's commands and partitions."""
    absent = [name for name in ("sbatch", "sinfo", "squeue") if shutil.which(name) is None]
    if absent:
        detail = f"{', '.join(absent)} not on PATH"
        return Check("Slurm", "optional", detail, "run on a login node to use --profile slurm")
    words = ["sinfo", "--noheader", "--format=%P"]
    done = _ask(words)
    if done.returncode and any(sign in done.stderr for sign in NO_CONTROLLER):
        return Check("Slurm", "optional", "no controller is configured here", "run on a login node of the cluster")
    if done.returncode:
        message = " ".join(done.stderr.split())[:120]
        return Check("Slurm", "optional", f"sinfo: {message}", "ask the cluster's administrators")
    names = [line.strip() for line in done.stdout.splitlines() if line.strip() and ":" not in line]  # no "CLUSTER: x"
    return Check("Slurm", "ok", f"partitions {' '.join(names)}")


def hub(offline: bool, address: str = "") -> Check:
    """Check whether the model hub answers: that of HF_ENDPOINT, as huggingface_hub asks it."""
    address = address or os.environ.get("HF_ENDPOINT") or HUB
    if offline or os.environ.get("HF_HUB_OFFLINE") == "1":
        return Check("model hub", "ok", "not checked: offline is set")
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE_S) as answer:
            return Check("model hub", "ok", f"{address} answers {answer.status}")
    except urllib.error.HTTPError as error:
        state: Literal["ok", "optional"] = "ok" if error.code < 500 else "optional"
        return Check("model hub", state, f"{address} answers {error.code}", "" if error.code < 500 else "try later")
    except (OSError, ValueError) as error:
        step = "only models from the hub need it; set HTTPS_PROXY, or give folders"
        return Check("model hub", "optional", f"{address}: {getattr(error, 'reason', error)}", step)


def writable(folder: Path = Path("results")) -> Check:
    """Check whether files can be written to the results folder."""
    folder = folder if folder.exists() else Path(".")
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Check("results", "ok", f"{folder.resolve()} is writable")
    except OSError as error:
        detail = f"{folder.resolve()}: {error.strerror}"
        return Check("results", "missing", detail, f"chmod u+w {folder}, or use another checkout")


def caches() -> Check:
    """Check whether libraries can write to the user's cache folder, and use the checkout's where they can't."""
    refused = provide_caches() or os.environ.get(REFUSED, "")
    if not refused:
        return Check("caches", "ok", "the user's cache folder is writable")
    detail = f"{refused} can't be written: libraries and Snakemake's jobs use {CACHES} of the checkout"
    return Check("caches", "optional", detail, "run snakemake with a --profile of ours, or export XDG_CACHE_HOME")
