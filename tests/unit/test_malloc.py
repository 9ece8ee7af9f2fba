"""Blocks that last lie outside the heap; afterwards the process keeps freed memory as before."""

import ctypes
import platform

import pytest
import torch

from zerodr.encoders.inference.processor import keep_freed_memory, lasting_blocks

SIZE = 128 << 20  # more than the heap has free; never touched, so it costs no memory
FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()


class Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def mapped_blocks() -> int:
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Heap
    return int(library.mallinfo2().hblks)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's mallopt")
def test_lasting_blocks_have_pages_of_their_own():
    assert keep_freed_memory()
    before = mapped_blocks()
    kept = torch.empty(SIZE)
    assert mapped_blocks() == before
    with lasting_blocks():
        lasting = torch.empty(SIZE)
        assert mapped_blocks() == before + 1
    again = torch.empty(SIZE)
    assert mapped_blocks() == before + 1
    assert len(kept) == len(lasting) == len(again)
