"""Decide whether a search estimates its scores in bf16 or in float32. The result is the same."""

from zerodr.artifacts.processor import kind_of_job

WORK = 3e11  # multiplications and additions from which bf16 estimates repay loading torch


def pays_half(queries: int, documents: int, dimension: int) -> bool:
    """Report whether bf16 estimates save time: the search is large, and the processor multiplies bf16 faster."""
    return 2.0 * queries * documents * dimension >= WORK and kind_of_job().bf16 == "faster"
