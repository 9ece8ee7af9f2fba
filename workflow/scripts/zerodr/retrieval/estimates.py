"""Decide whether a search estimates its scores in bf16 or in float32. The result is the same."""

from pathlib import Path

WORK = 3e11  # multiplications and additions from which bf16 estimates repay loading torch


def pays_half(queries: int, documents: int, dimension: int) -> bool:
    """Report whether bf16 estimates save time: the search is large, the processor has such products, and fast ones."""
    if 2.0 * queries * documents * dimension < WORK or not processor_supports_half():
        return False
    from zerodr.retrieval.half import is_faster

    return is_faster(dimension)


def processor_supports_half() -> bool:
    """Report whether the processor multiplies bf16 (AVX-512 or AMX), as Linux lists it."""
    try:
        flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
