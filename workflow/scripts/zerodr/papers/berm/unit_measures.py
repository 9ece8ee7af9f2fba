"""Measures of a model's units: balance, extractability, dispersion, orthogonality (BERM tables 5 and 6).

Pure functions of arrays: P pairs, U units at most, D components; `valid` (P, U) says which units there are.
"""

import numpy as np
from scipy.special import erf


def unit_dots(vectors: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Inner product of a vector with each unit. (P, D), (P, U, D) -> (P, U) float64."""
    return np.einsum("pd,pud->pu", vectors.astype(np.float64), units.astype(np.float64))


def balance_variance(scores: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Population variance over a passage's units of its raw similarity with them, (P,)  # table 5, Var."""
    counts = np.maximum(valid.sum(1), 1)
    means = np.where(valid, scores, 0.0).sum(1) / counts
    return np.where(valid, (scores - means[:, None]) ** 2, 0.0).sum(1) / counts


def relative_variance(scores: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The same over the mean square of the similarities, so that the length of vectors does not count; (P,)."""
    squares = np.where(valid, scores**2, 0.0).sum(1) / np.maximum(valid.sum(1), 1)
    return balance_variance(scores, valid) / np.maximum(squares, np.finfo(np.float64).tiny)


def extracted(
    queries: np.ndarray, passages: np.ndarray, units: np.ndarray, valid: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Whether GELU(query * passage) is nearest to the essential unit, (P,) bool  # table 5, Acc."""
    product = queries.astype(np.float64) * passages.astype(np.float64)
    matching = product * 0.5 * (1.0 + erf(product / np.sqrt(2.0)))
    scores = np.where(valid, unit_dots(matching, units), -np.inf)
    return scores.argmax(1) == labels


def random_guess(valid: np.ndarray) -> np.ndarray:
    """Probability that a unit drawn at random is the essential one, (P,)."""
    return 1.0 / np.maximum(valid.sum(1), 1)


def absolute_cosine(units: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Mean |cosine| of two different units of a passage, (P,); 0 means orthogonal; NaN for fewer than two units."""
    rows = units.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    rows = np.where(valid[..., None], rows / np.maximum(lengths, np.finfo(np.float64).tiny), 0.0)
    cosines = np.abs(np.einsum("pud,pvd->puv", rows, rows))
    diagonal = np.einsum("puu->p", cosines)
    counts = valid.sum(1)
    pairs = counts * (counts - 1)
    return np.where(pairs > 0, (cosines.sum((1, 2)) - diagonal) / np.maximum(pairs, 1), np.nan)


def two_axes(points: np.ndarray) -> np.ndarray:
    """The first two principal axes of points (N, D), (D, 2); signs are such that an axis's largest part is positive."""
    centred = points.astype(np.float64) - points.astype(np.float64).mean(0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :2]
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
    return axes * np.where(signs == 0, 1.0, signs)


def dispersion(units: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Variance of a passage's units along each of two principal axes of all units, (P, 2)  # table 6

    The paper's projection and unit are not known: compare models, not papers.
    """
    projected = units.astype(np.float64) @ two_axes(units[valid])
    return np.stack([balance_variance(projected[..., axis], valid) for axis in (0, 1)], 1)


def mean_with_interval(values: np.ndarray) -> dict[str, float]:
    """Mean over passages that have a value, with a 95 % interval of the normal approximation."""
    known = values[np.isfinite(values)].astype(np.float64)
    mean = float(known.mean()) if len(known) else float("nan")
    wide = float(1.96 * known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("nan")
    return {"mean": mean, "low": mean - wide, "high": mean + wide, "count": len(known)}
