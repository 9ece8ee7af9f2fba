"""Estimate scores by matrix products, with bounds of their errors.

An estimate differs from the final score by at most `errors + relative * |estimate|`.
"""

from typing import Protocol

import numpy as np

TINY = 1.2e-38  # smallest normal float32


class Products(Protocol):
    """Estimates for fixed queries [q, d]."""

    relative: float

    def errors(self, norms: np.ndarray, largest: float) -> np.ndarray:
        """Bound the absolute error, float64 [q], for documents of length up to `largest`; `norms` of the queries."""

    def multiply(self, block: np.ndarray, out: np.ndarray) -> None:
        """Write estimates [q, n] of documents `block` [n, d] to `out`."""


def error_factor(dimension: int) -> float:
    """Bound |float32 product - final score| / (|q| |d|).

    Higham's gamma_n for any order of summation (Accuracy and Stability of Numerical Algorithms, section 3.1), with
    room for the final rounding.
    """
    unit = (dimension + 4) * 2.0**-24
    return 1.01 * unit / (1 - unit)


class SingleProducts:
    """Products in float32."""

    relative = 0.0

    def __init__(self, queries: np.ndarray) -> None:
        self._queries = queries

    def errors(self, norms: np.ndarray, largest: float) -> np.ndarray:
        """See `Products`."""
        dimension = self._queries.shape[1]
        return error_factor(dimension) * norms * largest + 10 * TINY * (dimension + 1)

    def multiply(self, block: np.ndarray, out: np.ndarray) -> None:
        """See `Products`."""
        np.matmul(self._queries, block.T, out=out)
