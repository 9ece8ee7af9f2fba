"""Keep the big temporaries of a forward pass in the process instead of handing them to the kernel after each batch.

glibc returns every freed block above 128 KiB to the kernel; a batch then costs thousands of page faults. Called once,
before the first large allocation. Elsewhere than on glibc it does nothing and says so.
"""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # names and numbers of <malloc.h>
KEEP_BYTES = 1 << 30
PAD_BYTES = 16 << 20


def keep_freed_memory() -> bool:
    """True when glibc took all three settings; False on another C library or a glibc that refuses one."""
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    wanted = ((M_MMAP_THRESHOLD, KEEP_BYTES), (M_TRIM_THRESHOLD, KEEP_BYTES), (M_TOP_PAD, PAD_BYTES))
    return all([library.mallopt(key, value) == 1 for key, value in wanted])
