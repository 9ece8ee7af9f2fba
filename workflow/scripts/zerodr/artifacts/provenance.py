"""Record the code, environment and machine of an artifact, and the warnings of its stage."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import platform
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[4]
LOCK = PROJECT / "envs" / "requirements.lock"
PACKAGES = """torch transformers openvino sentence-transformers faiss-cpu bm25s pyserini pytrec-eval-terrier
    numpy pyarrow pandas snakemake mlflow""".split()
# A git hook, or a shell of another project, sets these; they would stand for another repository than the checkout's.
ELSEWHERE = {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"}
LOGGER = logging.getLogger("zerodr")


@cache
def code() -> dict:
    """Return the git commit and the digest of uncommitted changes (None when clean); without a commit the `reason`."""
    try:
        top = _git("rev-parse", "--show-toplevel")
    except OSError as error:
        return _no_commit(f"git does not run: {error.strerror}")
    if top.returncode:
        is_foreign = "dubious ownership" in " ".join(top.stderr.split())
        refusal = "git refuses a repository of another owner (safe.directory)"
        return _no_commit(refusal if is_foreign else "no git repository")
    if Path(top.stdout.strip()).resolve() != PROJECT:
        return _no_commit(f"the repository {top.stdout.strip()} is not the checkout's own")
    folders = ("Snakefile", "workflow", "config", "envs")
    patch = _git("diff", "HEAD", "--", *folders).stdout
    for name in _git("ls-files", "-z", "--others", "--exclude-standard", "--", *folders).stdout.split("\0"):
        if name:
            patch += f"{name} {_untracked_digest(PROJECT / name)}\n"
    head = _git("rev-parse", "--verify", "--quiet", "HEAD").stdout.strip()
    if not head:
        return _no_commit("the repository has no commit")
    return {"commit": head, "dirty_patch_sha256": hashlib.sha256(patch.encode()).hexdigest() if patch else None}


def _untracked_digest(path: Path) -> str:
    """Return the SHA-256 of a file; empty of what can't be read, such as Emacs' dangling link `.#config.yaml`."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _no_commit(reason: str) -> dict:
    return {"commit": None, "dirty_patch_sha256": None, "reason": reason}


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    whole = ["git", "-C", str(PROJECT), *words]
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    return subprocess.run(whole, capture_output=True, encoding="utf-8", errors="replace", check=False, env=environment)


@cache
def environment() -> dict:
    """Return the lock file's digest, Python, the versions that affect numbers, the processor, and the job of Slurm."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "lock_sha256": hashlib.sha256(LOCK.read_bytes()).hexdigest() if LOCK.exists() else None,
        "python": platform.python_version(),
        "versions": versions,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "device": _device(),
        **_slurm_job(),
    }


def _slurm_job() -> dict[str, str]:
    """Return number and node of the Slurm job that this process belongs to; nothing elsewhere."""
    number, node = (os.environ.get(name) for name in ("SLURM_JOB_ID", "SLURMD_NODENAME"))
    return {"slurm_job": f"{number} on {node}"} if number and node else {}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _device() -> str:
    """Return `cpu`, or the name of the CUDA device if this process already uses torch with one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return "cpu"


def gpus_used(notes: dict) -> int:
    """Count the GPUs of a stage, one a process: by its note `device`, else by this process's use of torch."""
    torch = sys.modules.get("torch")
    if "device" in notes:
        on_gpu = str(notes["device"]).startswith("cuda")
    else:
        on_gpu = torch is not None and torch.cuda.is_initialized()
    return int(notes.get("processes", 1)) if on_gpu else 0


def peak_memory_mib() -> float:
    """Return the peak resident memory of this process or its largest child, in MiB."""
    kib = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round(kib / 1024, 1)


def peak_gpu_mib() -> float:
    """Return the most memory that this process had on its GPU, in MiB; 0 where it used none."""
    torch = sys.modules.get("torch")
    used = torch is not None and torch.cuda.is_initialized()
    return round(torch.cuda.max_memory_allocated() / 2**20, 1) if torch and used else 0.0


class Warnings(logging.Handler):
    """A context that collects messages of level WARNING and above.

    Attributes:
        messages: different messages, in the order of their first appearance.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message once."""
        message = record.getMessage()
        if message not in self.messages:
            self.messages.append(message)

    def __enter__(self) -> Warnings:
        LOGGER.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        LOGGER.removeHandler(self)
