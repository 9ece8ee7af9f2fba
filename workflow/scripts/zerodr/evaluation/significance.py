"""Compute intervals and paired tests over queries: pure functions of arrays, random choices from a given seed."""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

INTERVAL = ((1 - 0.95) / 2, (1 + 0.95) / 2)  # not .025, .975: another last bit
BLOCK = 256
TIE = 1e-12


@dataclass(frozen=True)
class PairedTest:
    """A method against a baseline on the same queries.

    Attributes:
        queries: number of pairs.
        difference: mean of method minus baseline.
        low, high: 95 % bootstrap interval of the difference.
        effect: Cohen's d of paired differences (mean / standard deviation); 0 when all differences are 0, None when
            they are all equal but not 0.
        wins, ties, losses: queries on which the method is better, equal, worse.
        p_t: two-sided paired t-test.
        p_randomization: two-sided sign-flip permutation test.
    """

    queries: int
    difference: float
    low: float
    high: float
    effect: float | None
    wins: int
    ties: int
    losses: int
    p_t: float
    p_randomization: float


def bootstrap_interval(values: np.ndarray, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the 95 % percentile bootstrap interval of the means over queries.

    Args:
        values: (Q, M), a row a query. All M columns see the same resamples.
        samples: number of resamples.

    Returns:
        lower and upper bounds, (M,) each.

    >>> low, high = bootstrap_interval(np.array([[0.0], [1.0], [1.0], [0.0]]), 1000, 13)
    >>> low.tolist(), high.tolist()
    ([0.0], [1.0])
    """
    means = bootstrap_means(values, samples, seed)
    low, high = np.quantile(means, INTERVAL, axis=0)
    return low, high


def bootstrap_means(values: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Average resamples of the rows of `values` (Q, M), drawn with replacement: (samples, M).

    >>> bootstrap_means(np.array([[0.5], [0.5]]), 3, 13).tolist()
    [[0.5], [0.5], [0.5]]
    """
    count = len(values)
    generator = np.random.default_rng(seed)
    weights = np.full(count, 1.0 / count)
    means = np.empty((samples, values.shape[1]))
    for start in range(0, samples, BLOCK):
        drawn = generator.multinomial(count, weights, size=min(BLOCK, samples - start))
        means[start : start + BLOCK] = drawn @ values / count
    return means


def t_test(differences: np.ndarray) -> np.ndarray:
    """Compute two-sided p-values of paired t-tests, (M,), of differences (Q, M).

    Equal pairs give 1. Differences that are all equal but not 0 give 0, the limit of the statistic. One query is no
    evidence and gives 1.

    >>> t_test(np.array([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]])).round(4).tolist()
    [0.0742, 1.0]
    """
    count = len(differences)
    mean = differences.mean(axis=0)
    constant = (differences == differences[:1]).all(axis=0)
    if count < 2:
        return np.ones(differences.shape[1])
    deviation = np.where(constant, 1.0, differences.std(axis=0, ddof=1))
    p_values = 2 * stdtr(count - 1, -np.abs(mean) / (deviation / np.sqrt(count)))
    return np.where(constant, np.where(mean == 0, 1.0, 0.0), p_values)


def randomization_test(differences: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Compute two-sided p-values of sign-flip permutation tests, (M,), of differences (Q, M).

    p = (1 + permutations at least as extreme) / (1 + samples). Permutation i has a separate generator, seeded by
    (seed, i), so that the result depends on no block size and no number of threads. All columns see the same flips.

    >>> randomization_test(np.array([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]]), 99, 13).tolist()
    [0.32, 1.0]
    """
    count, columns = differences.shape
    observed = np.abs(differences.sum(axis=0))
    extreme = np.zeros(columns, np.int64)
    for start in range(0, samples, BLOCK):
        flips = np.stack([_signs(seed, i, count) for i in range(start, min(start + BLOCK, samples))])
        extreme += (np.abs(flips @ differences) >= observed * (1 - TIE) - TIE).sum(axis=0)
    return (1 + extreme) / (1 + samples)


def _signs(seed: int, number: int, count: int) -> np.ndarray:
    """Draw `count` random signs of permutation `number`, float64."""
    generator = np.random.default_rng([seed, number])
    bits = np.unpackbits(np.frombuffer(generator.bytes(-(-count // 8)), np.uint8), count=count)
    return bits * 2.0 - 1.0


def paired_tests(values: np.ndarray, baseline: np.ndarray, samples: int, seed: int) -> list[PairedTest]:
    """Test each column of `values` (Q, M) against `baseline` (Q,), same queries in the same order.

    >>> (test,) = paired_tests(np.array([[0.4], [0.5], [0.9]]), np.array([0.3, 0.5, 0.6]), 99, 13)
    >>> test.wins, test.ties, test.losses, round(test.difference, 4)
    (2, 1, 0, 0.1333)
    """
    differences = values - baseline[:, None]
    low, high = bootstrap_interval(differences, samples, seed)
    p_t = t_test(differences)
    p_random = randomization_test(differences, samples, seed)
    return [_paired(differences[:, m], low[m], high[m], p_t[m], p_random[m]) for m in range(values.shape[1])]


def _paired(difference: np.ndarray, low: float, high: float, p_t: float, p_random: float) -> PairedTest:
    wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
    interval = float(difference.mean()), float(low), float(high)
    counts = wins, len(difference) - wins - losses, losses
    return PairedTest(len(difference), *interval, effect_size(difference), *counts, float(p_t), float(p_random))


def effect_size(difference: np.ndarray) -> float | None:
    """Compute Cohen's d of paired differences; see PairedTest.effect.

    >>> effect_size(np.array([0.1, 0.3])), effect_size(np.zeros(2)), effect_size(np.ones(2))
    (1.4142135623730951, 0.0, None)
    """
    if (difference == 0).all():
        return 0.0
    if (difference == difference[0]).all():
        return None
    return float(difference.mean() / difference.std(ddof=1))


def holm(p_values: np.ndarray) -> np.ndarray:
    """Adjust the p-values of one family of tests by Holm's step-down method, in the same order, (T,).

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    stepped = np.minimum(np.maximum.accumulate(p_values[order] * (count - np.arange(count))), 1.0)
    adjusted = np.empty(count)
    adjusted[order] = stepped
    return adjusted
