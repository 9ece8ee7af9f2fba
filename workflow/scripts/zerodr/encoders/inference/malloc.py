"""Keep the large temporaries of a forward pass in the process instead of returning them to the kernel after each batch.

glibc returns every freed block above 128 KiB to the kernel; a batch then costs thousands of page faults. Call it once,
before the first large allocation. Without glibc it does nothing and returns False.
"""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # names and numbers of <malloc.h>
THRESHOLD_BYTES = 1 << 30
PAD_BYTES = 16 << 20
LASTING_BYTES = 64 << 10


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
