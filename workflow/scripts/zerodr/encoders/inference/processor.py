"""Read what the processor can do, choose an arithmetic that it has instructions for, and keep freed memory.

glibc returns every freed block above 128 KiB to the kernel; a batch then costs thousands of page faults. Call
`keep_freed_memory` once, before the first large allocation. Without glibc it does nothing and returns False.
"""

import ctypes
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from zerodr.artifacts.digest import object_digest
from zerodr.encoders.network.towers import Precision

log = logging.getLogger("zerodr")
CPUINFO = Path("/proc/cpuinfo")
HIDING = "ONEDNN_MAX_CPU_ISA"  # oneDNN's limit; below AVX-512 it leaves no bf16 instructions
WIDE = ("avx512", "amx", "avx10")
BF16 = ("avx512_bf16", "amx_bf16", "bf16")  # Intel and AMD, Intel, Arm
NARROW = ("SSE41", "AVX2")  # values of HIDING, and their longer forms, that leave no wide registers
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # names and numbers of <malloc.h>
THRESHOLD_BYTES = 1 << 30
PAD_BYTES = 16 << 20
LASTING_BYTES = 64 << 10


@cache
def processor() -> str:
    """Name of the processor, with a digest of its abilities: virtual machines often hide its model."""
    facts = _cpuinfo()
    if not facts:
        return platform.processor()
    flags = " ".join(sorted(facts.get("flags", facts.get("Features", "")).split()))
    return f"{facts.get('model name', platform.machine())} {object_digest(flags)[:8]}"


def _cpuinfo() -> dict[str, str]:
    """Read the facts of the first core; empty where the system has no such file."""
    try:
        lines = [line.split(":", 1) for line in CPUINFO.read_text().splitlines() if ":" in line]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, value in reversed(lines)}


@cache
def flags() -> frozenset[str]:
    """Instruction sets of the processor that oneDNN may use."""
    facts = _cpuinfo()
    listed = facts.get("flags", facts.get("Features", "")).split()
    hidden = WIDE if os.environ.get(HIDING, "").upper().startswith(NARROW) else ()
    return frozenset(flag for flag in listed if not flag.startswith(hidden))


def usable_precision(precision: Precision, device: str) -> Precision:
    """Return the arithmetic of a forward pass: fp32 in place of bf16 on a processor without instructions for bf16.

    Without them bf16 is emulated, at a fifth of fp32's speed (`benchmarks/kernels.md`).
    """
    if device != "cpu" or precision != "bf16" or not flags().isdisjoint(BF16):
        return precision
    _warn_once()
    return "fp32"


@cache
def _warn_once() -> None:
    log.warning("fp32 in place of bf16: this processor has no instructions for bf16 (one of %s)", ", ".join(BF16))


def keep_freed_memory() -> bool:
    """Return True when glibc accepted all three settings; False on another C library or a glibc that refuses one."""
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    options = ((M_MMAP_THRESHOLD, THRESHOLD_BYTES), (M_TRIM_THRESHOLD, THRESHOLD_BYTES), (M_TOP_PAD, PAD_BYTES))
    return all([library.mallopt(key, value) == 1 for key, value in options])


@contextmanager
def lasting_blocks() -> Iterator[None]:
    """Give blocks of 64 KiB and more that the heap has no room for pages of their own.

    Blocks that stay, such as an optimizer's moments, would else make the heap grow behind freed ones, which then can't
    be joined: trainings held up to 1 GB more than they used (`benchmarks/feed.md`).
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    library.mallopt(M_MMAP_THRESHOLD, LASTING_BYTES)
    try:
        yield
    finally:
        library.mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES)
