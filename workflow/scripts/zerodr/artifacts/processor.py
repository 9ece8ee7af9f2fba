"""Read what this machine's processor can do, and which kind of the table a job computes as.

The first attempt of a job writes its kind into the job's state. Later attempts compute as the same kind, on whatever
machine they run: its ways to multiply decide the last bits.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from zerodr.artifacts.record import read_state, write_json
from zerodr.config.base import Settings, validate

TABLE = Path(__file__).parents[1] / "config" / "kernels.yaml"


class ProcessorKind(Settings):
    """A kind of processor, and what it gets."""

    name: str
    """Its name in lineage."""
    vendor: str | None
    """As Linux lists it. None: any, for the row that all others fall back to."""
    flags: tuple[str, ...]
    """Instructions that it has."""
    bf16: Literal["faster", "slower", "absent"]
    """bf16 against fp32. `absent`: it has no instructions for bf16."""
    linear: Literal["onednn", "torch"]
    """Multiplications of training in fp32."""


@cache
def kinds() -> dict[str, ProcessorKind]:
    """Read the table, by name."""
    rows = [validate(ProcessorKind, row, str(TABLE)) for row in yaml.safe_load(TABLE.read_text(encoding="utf-8"))]
    return {row.name: row for row in rows}


def nearest_kind(vendor: str, flags: Set[str]) -> ProcessorKind:
    """Choose the row of a vendor with the most flags among those whose flags are all there; else the row for any."""
    fitting = [kind for kind in kinds().values() if kind.vendor in (vendor, None) and flags >= set(kind.flags)]
    return max(fitting, key=lambda kind: len(kind.flags))


log = logging.getLogger("zerodr")
FILE = "processor.json"  # in a job's state
CPUINFO = Path("/proc/cpuinfo")
HIDING = "ONEDNN_MAX_CPU_ISA"  # oneDNN's limit; below AVX-512 it leaves no bf16 instructions
NARROW = ("SSE41", "AVX2")  # values of HIDING, and their longer forms, that leave no wide registers
WIDE = ("avx512", "amx", "avx10")
_STATE: ContextVar[Path | None] = ContextVar("state", default=None)


@cache
def vendor_and_flags() -> tuple[str, frozenset[str]]:
    """Read vendor and instructions that oneDNN may use; empty where the system does not list them."""
    try:
        lines = [line.split(":", 1) for line in CPUINFO.read_text(encoding="utf-8").splitlines() if ":" in line]
    except OSError:
        return "", frozenset()
    facts = {name.strip(): value.strip() for name, value in reversed(lines)}
    hidden = WIDE if os.environ.get(HIDING, "").upper().startswith(NARROW) else ()
    listed = facts.get("flags", facts.get("Features", "")).split()
    return facts.get("vendor_id", ""), frozenset(flag for flag in listed if not flag.startswith(hidden))


@cache
def kind_of_machine() -> ProcessorKind:
    """Look up this machine in the table; one that is not listed gets the nearest row, and that is logged once."""
    vendor, flags = vendor_and_flags()
    kind = nearest_kind(vendor, flags)
    if kind.vendor is None and (not flags or any(flag.startswith(WIDE) for flag in flags)):
        log.info(
            "this kind of processor (%s) is not in the table of kernels: it computes as %r; benchmarks/kernels.md "
            "says how to add it",
            vendor or "unknown vendor",
            kind.name,
        )
    return kind


def kind_of_job() -> ProcessorKind:
    """Return the kind that the running job computes as; outside of a job, the machine's."""
    state = _STATE.get()
    if state is None:
        return kind_of_machine()
    recorded = recorded_kind(state)
    if recorded not in kinds():
        write_json(state / FILE, {"kind": kind_of_machine().name})
        return kind_of_machine()
    return kinds()[recorded]


def recorded_kind(state: Path) -> str:
    """Read the kind that a job computed as; empty where it did not ask."""
    recorded = read_state(state / FILE)
    return recorded["kind"] if recorded else ""


@contextmanager
def job_kind(state: Path) -> Iterator[None]:
    """Let a job compute as the kind that is recorded in its folder."""
    token = _STATE.set(state)
    try:
        yield
    finally:
        _STATE.reset(token)
