"""Start Python programs as forks of a process that has imported their libraries: none imports them again.

A program is a process with a folder, environment, arguments, output and exit code of its own, as `python -m` makes one.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
PLANNING = (
    *("snakemake.cli", "snakemake.profiles", "snakemake.storage", "snakemake.report.html_reporter"),
    *("snakemake.dag", "nbformat.v4", "smart_open"),
    *("pydantic", "yaml", "rich.progress", "typer", "pandas", "pyarrow.parquet"),
    f"{__name__}:compile_patterns",
)
NETWORKS = (
    *(f"tests.unit.{name}_helpers" for name in ("training", "pretraining", "weighting")),
    *("zerodr.papers.udalm.training", "torch._dynamo"),
    *(f"transformers.models.{name}" for name in ("auto.modeling_auto", "bert.modeling_bert", "t5.modeling_t5")),
)


class Program:
    """A program that runs, with the methods of `subprocess.Popen` that tests need."""

    def __init__(self, words: Sequence[str], channel: socket.socket, outputs: tempfile.TemporaryDirectory) -> None:
        self.args, self.returncode, self._channel, self._outputs = list(words), None, channel, outputs
        self._answers = channel.makefile("r", encoding="utf-8")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Exit code, None while it runs."""
        ended = self.returncode is None and select.select([self._channel], [], [], 0)[0]
        return self.wait() if ended else self.returncode

    def wait(self) -> int:
        """Wait for its end; exit code."""
        if self.returncode is None:
            self.returncode = int(self._answers.readline())
            self._channel.close()
        return self.returncode

    def communicate(self) -> tuple[str, str]:
        """Wait for its end; what it wrote."""
        self.wait()
        with self._outputs as folder:
            return (Path(folder) / "out").read_text(encoding="utf-8"), (Path(folder) / "err").read_text(
                encoding="utf-8"
            )

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """A process with libraries, which programs are forked from."""

    def __init__(self, *libraries: str) -> None:
        from zerodr.operations.warm import LIBRARY, SINGLE  # not in that process

        self._requests, theirs = socket.socketpair()
        code = f"from {__name__} import serve; serve({theirs.fileno()}, {libraries})"
        environment = os.environ | SINGLE | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(LIBRARY.parent)])}
        with theirs:
            subprocess.Popen([sys.executable, "-P", "-c", code], pass_fds=[theirs.fileno()], env=environment)

    def start(self, *words: str, cwd: Path, env: Mapping[str, str], session: bool = False) -> Program:
        """Start `python -m` with these words (`python` where the first is -c), on demand in a session of its own."""
        ours, theirs = socket.socketpair()
        outputs = tempfile.TemporaryDirectory()
        request = {"words": words, "cwd": str(cwd), "env": dict(env), "outputs": outputs.name, "session": session}
        with theirs:
            socket.send_fds(self._requests, [b"1"], [theirs.fileno()])
        ours.sendall(f"{json.dumps(request)}\n".encode())
        return Program(words, ours, outputs)

    def run(self, *words: str, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run `python -m` with these words to its end."""
        program = self.start(*words, cwd=cwd, env=env)
        texts = program.communicate()
        return subprocess.CompletedProcess(program.args, program.wait(), *texts)


@cache
def planners() -> Forks:
    """Forks that have what Snakemake imports, but nothing of zerodr: each checkout has its own."""
    return Forks(*PLANNING)


@cache
def shipped_planners() -> Forks:
    """Forks that also have zerodr and what is shipped in `config/`, for folders in which both are as they are here."""
    return Forks(*PLANNING, "zerodr.operations.loading", "tests.shipped:read_all")


@cache
def trainers() -> Forks:
    """Forks that have what training imports."""
    return Forks(*NETWORKS)


def serve(requests: int, libraries: tuple[str, ...]) -> None:
    """Import libraries, call a function of those with one, then fork a watcher and its program for each request."""
    for name in libraries:
        module, _, function = name.partition(":")
        library = importlib.import_module(module)
        if function:
            getattr(library, function)()
    assert len(os.listdir("/proc/self/task")) == 1, "no thread survives a fork"
    gc.freeze()
    with socket.socket(fileno=requests) as channel:
        while descriptors := socket.recv_fds(channel, 1, 1)[1]:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            with socket.socket(fileno=descriptors[0]) as tests:
                if not os.fork():
                    channel.close()
                    _watch(tests)


def compile_patterns() -> None:
    """Compile the patterns of the shipped rules, long lists of names. A child reads the rules: zerodr stays out."""
    reads, writes = os.pipe()
    if not os.fork():
        try:
            os.chdir(ROOT)
            with os.fdopen(writes, "w", encoding="utf-8") as stream:
                json.dump(sorted(_patterns()), stream)
        finally:
            os._exit(0)
    os.close(writes)
    re._MAXCACHE = 4096  # type: ignore[attr-defined]
    with os.fdopen(reads, encoding="utf-8") as stream:
        for pattern in json.load(stream):
            re.compile(pattern)


def _patterns() -> set[str]:
    from snakemake.api import SnakemakeApi
    from snakemake.io import regex_from_filepattern
    from snakemake.settings.types import ConfigSettings, OutputSettings, Quietness, ResourceSettings

    sys.path.append(str(ROOT / "workflow/scripts"))
    settings = ResourceSettings(cores=1), ConfigSettings(config={"scale": "mini"})
    with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
        rules = api.workflow(*settings, snakefile=ROOT / "Snakefile")._workflow.rules
        return {regex_from_filepattern(str(output.file)) for rule in rules for output in rule.output}


def _watch(tests: socket.socket) -> NoReturn:
    request = json.loads(tests.makefile("r", encoding="utf-8").readline())
    program = os.fork()
    if not program:
        tests.close()
        _become(**request)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # the tests were stopped
        tests.sendall(f"{program}\n".encode())
        tests.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])}\n".encode())
    os._exit(0)


def _become(words: list[str], cwd: str, env: dict[str, str], outputs: str, session: bool) -> NoReturn:
    if session:
        os.setsid()
    for number, kind in enumerate(("out", "err"), start=1):
        os.dup2(os.open(f"{outputs}/{kind}", os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    tempfile.tempdir = None  # TMPDIR may have changed
    sys.path[:2] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    if (library := str(ROOT / "workflow/scripts")) not in sys.path:  # the installation of this checkout names it, once
        sys.path.append(library)
    sys.argv = ["-m", *words[1:]]
    sys.orig_argv = [sys.executable, *([] if words[0] == "-c" else ["-m"]), *words]
    code: Any = 0
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 (Python's own end of a program)
        traceback.print_exc()
        code = 1
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)
