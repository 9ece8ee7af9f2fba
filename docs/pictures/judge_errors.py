"""Draw docs/pictures/judge-errors.svg: how often the judge of `zerodr adapt` decides although nothing is better.

For each query the difference of two equally good candidates is drawn from a distribution with the mean zero. A verdict
other than undecided is an error. The script also prints how often the judge finds a candidate that is better.
`python docs/pictures/judge_errors.py` takes some minutes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib import pyplot as plt

from zerodr.evaluation.adaptation import LEVEL, MANY
from zerodr.evaluation.significance import bounds, log_capital, skewed_bounds, subset_means

SIZES, TRIALS = (2, 3, 5, 8, 12, 20, 40, 80, 120, 200, 300), 4000
TAIL = (1 - LEVEL) / 2
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def equal_candidates(equal: float) -> Draw:
    """Draw differences of nDCG@10 of two rankings of the same quality: 0 on a share `equal` of the queries."""

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        ranks = 1 / generator.uniform(0, 1, (2, *shape))
        start, new = np.where(ranks > 10, 0.0, 1 / np.log2(ranks + 1))
        return np.where(generator.random(shape) < equal, 0.0, new - start)

    return draw


def rare(share: float, gain: float, equal: float = 0.0) -> Draw:
    """Draw differences that are `gain` on a `share` of those that are not 0, and a small loss on the others."""

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        values = np.where(generator.random(shape) < share, gain, -gain * share / (1 - share))
        return np.where(generator.random(shape) < equal, 0.0, values)

    return draw


def better(mean: float, deviation: float) -> Draw:
    """Draw differences of a candidate that is better by `mean`."""
    return lambda generator, shape: np.clip(generator.normal(mean, deviation, shape), -1, 1)


def decided(differences: np.ndarray) -> np.ndarray:
    """Tell by trial whether the judge decides: its intervals, both, leave zero out."""
    count, answers = len(differences), np.ones(differences.shape[1], bool)
    shares, enough = np.full(count, 1 / count), -math.log(TAIL)
    if count >= MANY:
        limits = np.array([skewed_bounds(row, shares, TAIL) for row in differences.T])
        answers = (limits[:, 0] > 0) | (limits[:, 1] < 0)
    else:
        capitals = [[log_capital(sign * row, shares, TAIL, 0.0) for sign in (1, -1)] for row in differences.T]
        answers = np.max(capitals, axis=1) >= enough
    if answers.any():
        low, high = bounds(subset_means(differences[:, answers], np.ones(count), 13), TAIL, -1.0)
        answers[answers] = (low > 0) | (high < 0)
    return answers


def main(path: Path = Path("docs/pictures/judge-errors.svg")) -> None:
    """Simulate each size, write the picture of errors and print all shares."""
    wrong = {"20 % equal": equal_candidates(0.2), "80 % equal": equal_candidates(0.8)}
    wrong |= {"+.5 on one in ten": rare(0.1, 0.5), "-.5 on one in ten": rare(0.1, -0.5)}
    wrong |= {"+.9 on one in twenty": rare(0.05, 0.9), "80 % equal, +.9 on one in fifty": rare(0.1, 0.9, 0.8)}
    right = {
        f"+{mean}, deviation {spread}": better(mean, spread) for spread in (0.2, 0.3) for mean in (0.03, 0.05, 0.1)
    }
    shares: dict[str, list[float]] = {}
    for name, draw in (wrong | right).items():
        for size in SIZES:
            trials = TRIALS if name in wrong else TRIALS // 10
            shares.setdefault(name, []).append(decided(draw(np.random.default_rng([13, size]), (size, trials))).mean())
            sys.stdout.write(f"{name}: {size} queries {shares[name][-1]:.4f}\n")
            sys.stdout.flush()
    plt.rcParams.update({"svg.hashsalt": "zerodr", "font.size": 9})
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    for name, marker in zip(wrong, "osDxv^", strict=True):
        axes.plot(range(len(SIZES)), shares[name], marker=marker, markersize=4, label=name)
    axes.axhline(0.05, color="gray", linewidth=0.8, linestyle="--", label="5 %")
    axes.set_xticks(range(len(SIZES)), [str(size) for size in SIZES])
    axes.set(xlabel="judged queries", ylabel="share of wrong verdicts", ylim=(-0.002, None))
    axes.legend(frameon=False, ncols=2, fontsize=7)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
