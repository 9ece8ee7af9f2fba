"""Fork the jobs of a local run from one process that has imported their libraries (setting `warm_start`, Linux).

Snakemake runs `python SCRIPT` for each job, and each pays for its imports. `fork_jobs` lets Snakemake ask the warm
process instead. That process has one thread and no pool of threads at each fork. A job is a process of its own as
before: with its memory, exit code, threads and environment. Between both waits a watcher, which reports the exit code
to Snakemake, so that a job and its result survive the warm process. Where that is gone, a job starts as before.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from zerodr.artifacts import provenance
from zerodr.plan.rules import RULES

LIBRARY = Path(__file__).parents[1]
COMMON = ("pandas", "pyarrow.parquet", "zerodr.artifacts.adapter", "snakemake.iocontainers", "snakemake.logging")
NETWORKS = (
    "torch",
    "tokenizers",
    "transformers.models.bert.modeling_bert",
    "transformers.models.t5.modeling_t5",
    "zerodr.encoders.network.loading",
)
NETWORK_KINDS = ("embed", "init", "train", "pretrain", "assemble", "augment", "score", "cluster", "export", "measure")
SINGLE = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}  # an import starts no pool of threads
SINGLE["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # nor Arrow's thread of an allocator that it does not use
SINGLE["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # who asks for a GPU while importing does not begin with CUDA
CUDA = "/dev/nvidia-uvm"  # opened by CUDA's first call, after which no fork of a process can use it


class WarmProcess:
    """The process that jobs are forked from, started at the first job and again where the library's code changed."""

    def __init__(self) -> None:
        self._lock, self._edited, self._requests = threading.Lock(), 0, socket.socket()

    def run(self, request: dict[str, Any], record: Any) -> int | None:
        """Run a job; return its exit code, None where it did not start.

        Args:
            request: script, rule, threads and environment.
            record: Snakemake's record of the job's time and memory, which is filled in.
        """
        begun = time.monotonic()
        ours, theirs = socket.socketpair()
        with ours, ours.makefile("r", encoding="utf-8") as answers:
            with self._lock, theirs:
                self._start()
                with suppress(OSError):  # the process was killed: the next job starts it again
                    socket.send_fds(self._requests, [b"1"], [theirs.fileno()])
            with suppress(OSError):
                ours.sendall(f"{json.dumps(request)}\n".encode())
            if not answers.readline():
                self._edited = 0
                return None
            end = json.loads(answers.readline() or f'{{"code": {128 + signal.SIGKILL}}}')
        if record is not None:  # Snakemake's own takes a sample twice a second, which costs more than many a job
            record.running_time, record.data_collected = time.monotonic() - begun, "cpu_time" in end
            for name in end.keys() - {"code"}:
                setattr(record, name, end[name])
        return int(end["code"])

    def _start(self) -> None:
        edited = max(path.stat().st_mtime_ns for path in LIBRARY.rglob("[!.]*.py"))
        if edited == self._edited:
            return
        self._requests.close()  # an earlier process ends; its jobs go on
        self._requests, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-c", f"from {__name__} import serve; serve({theirs.fileno()})"]
        paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(LIBRARY.parent)]))
        with theirs:
            subprocess.Popen(command, pass_fds=[theirs.fileno()], env=os.environ | SINGLE | {"PYTHONPATH": paths})
        self._edited = edited


def fork_jobs() -> None:
    """Let Snakemake fork the jobs of this process, where it is Linux."""
    if not sys.platform.startswith("linux"):
        return
    from snakemake.script import PythonScript

    warm, start = WarmProcess(), PythonScript.execute_script

    def execute(script: Any, fname: str, edit: bool = False) -> None:
        threads = str(script.threads)
        variables = ("OMP", "GOTO", "OPENBLAS", "MKL", "VECLIB", "NUMEXPR")
        environment = dict(os.environ) | {
            f"{name}_{'MAXIMUM' if name == 'VECLIB' else 'NUM'}_THREADS": threads for name in variables
        }
        if folder := script.resources.get("tmpdir"):
            environment |= dict.fromkeys(("TMPDIR", "TMP", "TEMPDIR", "TEMP"), folder)
        request = {"script": fname, "rule": script.rulename, "threads": script.threads, "environment": environment}
        other = script.container_img or script.conda_env or script.env_modules or script.rulename not in RULES
        code = None if other else warm.run(request, script.bench_record)
        if code is None:
            start(script, fname, edit)
        elif code:
            raise subprocess.CalledProcessError(code, f"{sys.executable} {fname}")

    PythonScript.execute_script = execute


def serve(requests: int) -> None:
    """Fork a watcher and its job for each request, until Snakemake ends."""
    interrupts: list[int] = []  # Ctrl-C is for Snakemake and the jobs, of which one may be about to begin
    signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    _import(COMMON)
    provenance.code()  # what was imported here is what the records of the jobs name
    with socket.socket(fileno=requests) as channel:
        while descriptors := socket.recv_fds(channel, 1, 1)[1]:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            with socket.socket(fileno=descriptors[0]) as snakemake:
                request = json.loads(snakemake.makefile("r", encoding="utf-8").readline())
                facts = RULES[request["rule"]]
                _import([*(NETWORKS if facts.kind in NETWORK_KINDS else ()), f"zerodr.{facts.function.split(':')[0]}"])
                gc.freeze()  # a job that counts the references of what it did not make copies all of it
                if _forkable() and not os.fork():
                    channel.close()
                    _watch(snakemake, request, interrupts)


def _forkable() -> bool:
    """Tell whether this process has one thread and has not begun with CUDA; else a job starts as without it."""
    opened = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return len(os.listdir("/proc/self/task")) == 1 and CUDA not in opened


def _import(names: Any) -> None:
    for name in names:
        with suppress(Exception):  # the job, which imports it too, says what is wrong
            importlib.import_module(name)


def _watch(snakemake: socket.socket, request: dict[str, Any], interrupts: list[int]) -> NoReturn:
    """Fork the job and report its end and what it used, in this process; run the job, in the forked one."""
    job = os.fork()
    if not job:
        snakemake.close()
        _run(request, interrupts)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the job decides how it ends
    with suppress(OSError):  # Snakemake was killed
        snakemake.sendall(b"started\n")
        _, status, used = os.wait4(job, 0)
        code = os.waitstatus_to_exitcode(status)
        end: dict[str, float] = {"code": code if code >= 0 else 128 - code}  # as shells report a signal
        end |= {"max_rss": used.ru_maxrss / 1024, "cpu_time": used.ru_utime + used.ru_stime}
        end |= {"io_in": used.ru_inblock / 2048, "io_out": used.ru_oublock / 2048}  # MiB, from blocks of 512 bytes
        end["cpu_usage"] = 100 * end["cpu_time"]
        snakemake.sendall(f"{json.dumps(end)}\n".encode())
    os._exit(0)


def _run(request: dict[str, Any], interrupts: list[int]) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupts:
        _end(128 + signal.SIGINT)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # TMPDIR may have changed
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(request["threads"])
    from threadpoolctl import threadpool_limits

    threadpool_limits(request["threads"], "blas")
    sys.argv = [request["script"]]
    code: Any = 1
    try:
        runpy.run_path(request["script"], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        if sys.exc_info()[1] is not None:
            traceback.print_exc()
        _end(code)


def _end(code: Any) -> NoReturn:
    """End this process as Python would, but for its modules: to take them all apart takes .9 s."""
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)
