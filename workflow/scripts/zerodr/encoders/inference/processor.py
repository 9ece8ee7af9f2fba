"""Choose an arithmetic that the processor has instructions for, and keep freed memory.

glibc returns every freed block above 128 KiB to the kernel; a batch then costs thousands of page faults. Call
`keep_freed_memory` once, before the first large allocation. Without glibc it does nothing and returns False.
"""

import ctypes
import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from zerodr.artifacts.processor import kind_of_job
from zerodr.encoders.folder.contract import Precision

log = logging.getLogger("zerodr")
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # names and numbers of <malloc.h>
THRESHOLD_BYTES = 1 << 30
PAD_BYTES = 16 << 20
LASTING_BYTES = 64 << 10


def usable_precision(precision: Precision, device: str) -> Precision:
    """Return the arithmetic of a forward pass: fp32 in place of bf16 on a processor without instructions for bf16.

    Without them bf16 is emulated, at a fifth of fp32's speed (`benchmarks/kernels.md`).
    """
    if device != "cpu" or precision != "bf16" or kind_of_job().bf16 != "absent":
        return precision
    _warn_once()
    return "fp32"


@cache
def _warn_once() -> None:
    log.warning(
        "fp32 in place of bf16: no bf16 instructions are known of this kind of processor (benchmarks/kernels.md)"
    )


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
