"""zerodr: a bench for zero-shot dense retrieval, run as one Snakemake DAG.

`from zerodr import Retriever` is what programs need to search with a retriever that `zerodr adapt` chose.

Importing the package sets two defaults that libraries read once, when they are loaded (values of the user's stay):
* OMP_WAIT_POLICY: threads that wait sleep instead of spinning. On a busy 2-core machine embedding ran 2.3 times faster.
* OPENBLAS_CORETYPE: OpenBLAS takes its AVX2 kernels on recent AMD processors though they have AVX-512.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _set_defaults() -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and " avx512f" in cpuinfo.read_text(encoding="utf-8"):
        os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")


_set_defaults()


def __getattr__(name: str) -> Any:
    """Import `Retriever` when it is asked for: commands start without torch."""
    if name != "Retriever":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("zerodr.lookup.retriever").Retriever
