"""Estimate scores from bf16 factors: twice as fast on most processors that have such products, and less exact.

The bound is looser than that of float32, so more candidates get a final score; the result is the same.
"""

import warnings

import numpy as np
import torch

from zerodr.retrieval.candidates import TINY, error_factor

warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing here writes to it
UNIT = 2.0**-8  # largest relative error of rounding to bf16


class HalfProducts:
    """Products of bf16 factors, summed in float32, rounded to bf16."""

    relative = 1.01 * UNIT

    def __init__(self, queries: np.ndarray) -> None:
        wide = torch.from_numpy(queries)
        self._queries = wide.bfloat16()
        # float64 norms are rounded too; the factor keeps the bound an upper one.
        self._residuals = (wide.double() - self._queries.double()).norm(dim=1).numpy() * (1 + 1e-6)

    def errors(self, norms: np.ndarray, largest: float) -> np.ndarray:
        """See `candidates.Products`: |q - q'| |d| + |q'| |d - d'|, the sum's rounding, and numbers flushed to zero."""
        dimension = self._queries.shape[1]
        rounding = self._residuals + (norms + self._residuals) * UNIT * 1.001
        flushed = TINY * dimension**0.5 * (norms + largest) + 10 * TINY * (dimension + 1)
        return (rounding + 1.02 * error_factor(dimension) * norms) * largest + flushed

    def multiply(self, block: np.ndarray, out: np.ndarray) -> None:
        """See `candidates.Products`."""
        documents = torch.from_numpy(block).bfloat16()
        torch.from_numpy(out).copy_(self._queries @ documents.T)
