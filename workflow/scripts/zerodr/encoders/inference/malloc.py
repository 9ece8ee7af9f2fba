"""Keep the large temporaries of a forward pass in the process instead of returning them to the kernel after each batch.

glibc returns every freed block above 128 KiB to the kernel; a batch then costs thousands of page faults. Call it once,
before the first large allocation. Without glibc it does nothing and returns False.
"""

import ctypes
import platform

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # names and numbers of <malloc.h>
THRESHOLD_BYTES = 1 << 30
PAD_BYTES = 16 << 20


def keep_freed_memory() -> bool:
    """Return True when glibc accepted all three settings; False on another C library or a glibc that refuses one."""
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    options = ((M_MMAP_THRESHOLD, THRESHOLD_BYTES), (M_TRIM_THRESHOLD, THRESHOLD_BYTES), (M_TOP_PAD, PAD_BYTES))
    return all([library.mallopt(key, value) == 1 for key, value in options])
