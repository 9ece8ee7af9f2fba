"""Compute intervals and paired tests over queries: pure functions of arrays, random choices from a given seed.

Resampling gives intervals that are too narrow of a few queries, and of more where most differences are 0. So
differences, and measures of fewer than FEW queries, have quantiles of the means of random subsets instead (typical
values, Hartigan 1969, JASA 64). With N subsets the truth lies below the k-th smallest mean with probability
k / (N + 1), exactly, whatever the number of queries is, where queries deviate from it in both directions alike. Fewer
than DECIDING queries have too few subsets for an interval of 95 %: theirs is the whole range of the measure.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from scipy.special import stdtr

INTERVAL = ((1 - 0.95) / 2, (1 + 0.95) / 2)  # not .025, .975: another last bit
BLOCK = 256
TIE, TINY = 1e-12, 1e-9
FEW, DECIDING = 40, 6
SUBSETS = 20_000
FLIPS, AT_ONCE = 1 << 18, 1 << 14  # so many that Holm's correction over a thousand tests leaves .004
WIDE = 1024  # bytes, a bit a query: collections share what is drawn
STAKE, SPREAD = 0.95, 0.2  # largest share of the capital in a bet; deviation of differences for which bets are best
HALVINGS = 40
ENUMERATED = 14  # queries of which all subsets are taken: 16,383


@dataclass(frozen=True)
class PairedTest:
    """A method against a baseline on the same queries.

    Attributes:
        queries: number of pairs.
        difference: mean of method minus baseline.
        low, high: 95 % interval of the difference.
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


def mean_interval(values: np.ndarray, samples: int, seed: int, lowest: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute the 95 % interval of the means over queries: percentile bootstrap, or typical values (see above).

    Args:
        values: (Q, M), a row a query. All M columns see the same resamples.
        samples: number of resamples.
        lowest: least value of the measure, whose largest is 1: 0, or -1 for differences.

    Returns:
        lower and upper bounds, (M,) each.

    >>> low, high = mean_interval(np.array([[0.0], [1.0], [1.0], [0.0]] * 10), 1000, 13, 0.0)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.35], [0.65])
    >>> mean_interval(np.array([[0.4], [0.4], [0.4]]), 1000, 13, 0.0)
    (array([0.]), array([1.]))
    """
    if lowest < 0 or len(values) < FEW:
        return bounds(subset_means(values, np.ones(len(values)), seed), INTERVAL[0], lowest)
    means = bootstrap_means(values, samples, seed)
    low, high = np.quantile(means, INTERVAL, axis=0)
    return low, high


def interval_over_seeds(values: np.ndarray, samples: int, seed: int) -> tuple[float, float]:
    """Compute the 95 % interval of a mean over queries and seeds, both of which other draws would change.

    Queries are drawn as `drawn_means` does. The mean over seeds is drawn from Student's t of S - 1 degrees of freedom,
    as few values say little about how much seeds differ: two leave next to everything open.

    Args:
        values: (S, Q), a row a seed, at least two.
        samples: number of draws.
        seed: of the draws.

    >>> low, high = interval_over_seeds(np.array([[0.4] * 20, [0.5] * 20, [0.6] * 20]), 10_000, 13)
    >>> round(low, 1), round(high, 1)  # queries are all alike: what is left is .1 / sqrt(3), 4.3 times
    (0.3, 0.7)
    """
    count = len(values)
    means = drawn_means(values.mean(0)[:, None], samples, seed, 0.0)[:, 0]
    error = values.mean(1).std(ddof=1) / math.sqrt(count)
    drawn = error * np.random.default_rng([seed, count]).standard_t(count - 1, samples)
    low, high = np.quantile(np.clip(means + drawn, 0, 1), INTERVAL)
    return float(low), float(high)


def drawn_means(values: np.ndarray, samples: int, seed: int, lowest: float) -> np.ndarray:
    """Draw means of `values` (Q, M), to be averaged with those of other collections: (samples, M).

    Those of resamples, of differences and of a few queries those of random subsets, and of fewer than DECIDING the
    ends of the range.

    >>> drawn_means(np.array([[0.5], [0.5]]), 4, 13, -1.0).ravel().tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """
    count = len(values)
    if count < DECIDING:
        return np.where(np.arange(samples) % 2, 1.0, lowest)[:, None] + 0 * values[:1]  # NaN where there is no number
    if lowest == 0 and count >= FEW:
        return bootstrap_means(values, samples, seed)
    means = subset_means(values, np.ones(count), seed)
    return means[np.random.default_rng([seed, count]).integers(len(means), size=samples)]


def subset_means(values: np.ndarray, weights: np.ndarray, seed: int) -> np.ndarray:
    """Average subsets of the rows of `values` (Q, M) with `weights` (Q,): all of a few, else SUBSETS random ones.

    >>> subset_means(np.array([[0.0], [1.0]]), np.array([1.0, 3.0]), 13).ravel().tolist()
    [0.0, 1.0, 0.75]
    """
    count = len(values)
    if count <= ENUMERATED:
        chosen = (np.arange(1, 2**count)[:, None] >> np.arange(count)) & 1
        return (chosen * weights) @ values / (chosen @ weights)[:, None]
    generator, means = np.random.default_rng(seed), np.empty((SUBSETS, values.shape[1]))
    weighted = bool((weights != 1).any())
    for start in range(0, SUBSETS, BLOCK):
        size = min(BLOCK, SUBSETS - start)
        bits = np.frombuffer(generator.bytes(size * -(-count // 8)), np.uint8).reshape(size, -1)
        drawn = np.unpackbits(bits, axis=1, count=count).astype(np.float64)
        if weighted:
            drawn *= weights
        means[start : start + size] = drawn @ values / np.maximum(drawn.sum(axis=1), weights.min())[:, None]
    return means


def bounds(means: np.ndarray, tail: float, lowest: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute the interval that typical values give a mean, with `tail` on each side.

    Args:
        means: of subsets, (N, M).
        tail: probability that the truth lies below the interval, and above it.
        lowest: least value that the mean can have; its largest is 1.

    Returns:
        lower and upper limits, (M,) each; the range of the mean where the subsets are too few for the tail.

    >>> all_subsets_of = np.array([[0.1], [0.2], [0.15]])  # two queries: .1, .2, and their mean
    >>> bounds(all_subsets_of, 0.025, -1.0)
    (array([-1.]), array([1.]))
    >>> bounds(all_subsets_of, 0.25, -1.0)
    (array([0.1]), array([0.2]))
    """
    rank = tail * (len(means) + 1) + TINY
    if len(means) == SUBSETS:  # drawn: two standard errors further out, so that drawing adds no error
        rank -= 2 * math.sqrt(rank * (1 - tail))
    rank = int(rank)
    if rank < 1:
        none = 0 * means[0]  # NaN where there is no number
        return lowest + none, 1.0 + none
    ordered = np.sort(means, axis=0)
    return ordered[rank - 1], ordered[-rank]


def betting_bounds(values: np.ndarray, shares: np.ndarray, tail: float) -> tuple[float, float]:
    """Compute an interval of a weighted mean of values in [-1, 1] that holds for any distribution and number of them.

    The truth lies below the interval, and above it, with probability `tail` at most: a fair bet seldom multiplies the
    capital by 1 / tail (Waudby-Smith and Ramdas 2023, JRSS-B 86, with stakes that are fixed before any value is seen).

    Args:
        values: (Q,).
        shares: of each value in the mean, (Q,), with the sum 1.
        tail: probability on each side.

    >>> low, high = betting_bounds(np.full(40, 0.4), np.full(40, 1 / 40), 0.025)
    >>> round(low, 2), round(high, 2)
    (0.27, 0.46)
    """
    return _lower_bet(values, shares, tail), -_lower_bet(-values, shares, tail)


def skewed_bounds(values: np.ndarray, shares: np.ndarray, tail: float) -> tuple[float, float]:
    """Compute an interval of a weighted mean by Student's statistic, corrected for skewness (Hall 1992, JRSS-B 54).

    With skewness s of the mean, g(t) = t + s t^2 / 3 + s^2 t^3 / 27 + s / 6 is normal to the second order. The interval
    is the range of means for which g lies within the normal quantiles of `tail` on each side.

    Args:
        values: (Q,).
        shares: of each value in the mean, (Q,), with the sum 1.
        tail: probability on each side.

    >>> low, high = skewed_bounds(np.repeat([0.5, -0.1], [50, 250]), np.full(300, 1 / 300), 0.025)
    >>> round(low, 3), round(high, 3)
    (-0.024, 0.027)
    """
    mean = float(shares @ values)
    apart = values - mean
    error = math.sqrt(shares**2 @ apart**2)
    skewness = float(shares**3 @ apart**3) / error**3 if error > TINY else 0.0
    quantile = NormalDist().inv_cdf(1 - tail)
    low, high = (mean - error * _inverse(sign * quantile, skewness) for sign in (1, -1))
    return low, high


def _inverse(normal: float, skewness: float) -> float:
    """Return the Student's statistic whose g is `normal`."""
    if abs(skewness) < TINY:
        return normal
    return 3 / skewness * (float(np.cbrt(1 + skewness * (normal - skewness / 6))) - 1)


def _lower_bet(values: np.ndarray, shares: np.ndarray, tail: float) -> float:
    """Halve [-1, 1] down to the largest mean that the capital of bets on more than it refutes."""
    low, high = -1.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if log_capital(values, shares, tail, middle) >= -math.log(tail) else (low, middle)
    return low


def log_capital(values: np.ndarray, shares: np.ndarray, tail: float, mean: float) -> float:
    """Compute the logarithm of what a capital of 1 becomes by bets that the weighted mean is above `mean`.

    A value of share s multiplies the capital by 1 + c s (value - mean), whose expectation is at most
    exp(c s (its mean - mean)), so that the product's is at most 1. Where that could be negative, exp(-c s (1 + mean))
    takes its place. One capital is divided among as many c as there are different shares.

    >>> round(log_capital(np.full(40, 0.4), np.full(40, 1 / 40), 0.025, 0.0), 2)
    12.88
    """
    room, logs = 1 + mean, []
    usual = math.sqrt(-2 * math.log(tail) / (shares @ shares)) / SPREAD
    for share in np.unique(shares.round(12)):
        stakes = min(usual, STAKE / (room * share)) * shares
        bold = stakes * room > STAKE + TINY
        logs.append(np.where(bold, -stakes * room, np.log1p(np.where(bold, 0, stakes * (values - mean)))).sum())
    return float(np.logaddexp.reduce(logs)) - math.log(len(logs))


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

    Of few queries the deviation says little, and equal differences have none. So no p-value of fewer than FEW queries
    is below that of the sign-flip test, and none of more is below 2 ** (1 - Q), the least that this test can give.
    Fewer than DECIDING queries are never below .05. Equal pairs give 1.

    >>> t_test(np.array([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]])).tolist()
    [0.25, 1.0]
    """
    count = len(differences)
    if count < 2:
        return np.ones(differences.shape[1])
    mean = differences.mean(axis=0)
    constant = (differences == differences[:1]).all(axis=0)
    deviation = np.where(constant, 1.0, differences.std(axis=0, ddof=1))
    p_values = 2 * stdtr(count - 1, -np.abs(mean) / (deviation / np.sqrt(count)))
    p_values = np.where(constant, np.where(mean == 0, 1.0, 0.0), p_values)
    if count >= FEW:
        return np.maximum(p_values, 2.0 ** (1 - count))
    return np.maximum(p_values, (_exact_flips if count <= ENUMERATED else _drawn_flips)(differences))


def _exact_flips(differences: np.ndarray) -> np.ndarray:
    """Compute two-sided p-values of the test with all 2 ** Q sign flips of differences (Q, M), (M,)."""
    signs = 2.0 * ((np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences))) & 1) - 1
    return (np.abs(signs @ differences) >= np.abs(differences.sum(axis=0)) * (1 - TIE) - TIE).mean(axis=0)


def _drawn_flips(differences: np.ndarray) -> np.ndarray:
    """Compute the same from FLIPS random ones, which one generator draws: (M,)."""
    generator, extreme = np.random.default_rng(0), np.zeros(differences.shape[1], np.int64)
    for _ in range(0, FLIPS, AT_ONCE):
        drawn = generator.bytes(AT_ONCE * -(-len(differences) // 8))
        extreme += _extreme(differences, np.frombuffer(drawn, np.uint8).reshape(AT_ONCE, -1))
    return (1 + extreme) / (1 + FLIPS)


def _extreme(differences: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Count sign flips that give a sum at least as extreme as that of differences (Q, M): (M,).

    Args:
        bits: (P, bytes), a bit a query in each row of flips.
    """
    flips = np.unpackbits(bits, axis=1, count=len(differences)) * 2.0 - 1.0
    return (np.abs(flips @ differences) >= np.abs(differences.sum(axis=0)) * (1 - TIE) - TIE).sum(axis=0)


def randomization_test(differences: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Compute two-sided p-values of sign-flip permutation tests, (M,), of differences (Q, M).

    p = (1 + permutations at least as extreme) / (1 + samples). Permutation i has a separate generator, seeded by
    (seed, i), so that the result depends on no block size and no number of threads. All columns see the same flips.

    >>> randomization_test(np.array([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]]), 99, 13).tolist()
    [0.32, 1.0]
    """
    count, columns = differences.shape
    extreme = np.zeros(columns, np.int64)
    packed = _random_bits(seed, samples, max(WIDE, 1 << (count // 8).bit_length()))
    for start in range(0, samples, BLOCK):
        extreme += _extreme(differences, packed[start : start + BLOCK, : -(-count // 8)])
    return (1 + extreme) / (1 + samples)


@lru_cache(maxsize=2)
def _random_bits(seed: int, samples: int, width: int) -> np.ndarray:
    """Draw bytes for each permutation, (samples, width): those of fewer queries are the first of them."""
    drawn = [np.random.default_rng([seed, number]).bytes(width) for number in range(samples)]
    return np.frombuffer(b"".join(drawn), np.uint8).reshape(samples, width)


def paired_tests(values: np.ndarray, baseline: np.ndarray, samples: int, seed: int) -> list[PairedTest]:
    """Test each column of `values` (Q, M) against `baseline` (Q,), same queries in the same order.

    >>> (test,) = paired_tests(np.array([[0.4], [0.5], [0.9]]), np.array([0.3, 0.5, 0.6]), 99, 13)
    >>> test.wins, test.ties, test.losses, round(test.difference, 4)
    (2, 1, 0, 0.1333)
    """
    differences = values - baseline[:, None]
    low, high = mean_interval(differences, samples, seed, -1.0)
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


def few_queries(counts: Iterable[int]) -> list[str]:
    """Write the note of a table some of whose tests are over few queries.

    >>> few_queries([40, 300])
    []
    """
    fewest = min(counts, default=FEW)
    if fewest >= FEW:
        return []
    note = f"of fewer than {FEW} queries an interval has quantiles of the means of subsets of them as its ends"
    if fewest < DECIDING:
        note += f"; fewer than {DECIDING} decide nothing: their interval is the whole range, no test is below .05"
    return [note]


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
