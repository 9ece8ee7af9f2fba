"""Draw docs/pictures/judge-errors.svg: how often the judge of `zerodr adapt` decides although nothing is better.

Two candidates, one of which learned from the documents, rank equally well: for each query both draw their nDCG@10 from
the same values. A verdict other than undecided is an error. `python docs/pictures/judge_errors.py` takes five minutes.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib import pyplot as plt

from zerodr.evaluation.adaptation import LEVEL
from zerodr.evaluation.significance import bootstrap_means, bounds, subset_means

SIZES, SAMPLES, BLOCKS, BLOCK = (1, 2, 3, 5, 8, 12, 20, 40, 100, 300), 1000, 20, 500
TAIL = (1 - LEVEL) / 2
EQUAL = (0.2, 0.8)  # shares of queries on which both candidates find the same


def equal_candidates(generator: np.random.Generator, size: int, equal: float) -> np.ndarray:
    """Draw differences of candidates that are equally good, (size, BLOCK): 0 on a share `equal` of the queries."""
    ranks = 1 / generator.uniform(0, 1, (2, size, BLOCK))
    start, new = np.where(ranks > 10, 0.0, 1 / np.log2(ranks + 1))
    return np.where(generator.random((size, BLOCK)) < equal, 0.0, new - start)


def decided(differences: np.ndarray) -> int:
    """Count the trials in which an interval of the judge's, of two candidates, leaves zero out."""
    low, high = bounds(subset_means(differences, np.ones(len(differences)), 13), TAIL, -1.0)
    return int(((low > 0) | (high < 0)).sum())


def decided_by_resampling(differences: np.ndarray) -> int:
    """The same by percentiles of resampled queries, as it was before."""
    low, high = np.quantile(bootstrap_means(differences, SAMPLES, 13), [TAIL, 1 - TAIL], axis=0)
    return int(((low > 0) | (high < 0)).sum())


def main(path: Path = Path("docs/pictures/judge-errors.svg")) -> None:
    """Simulate each size, write the picture and print the shares."""
    shares: dict[str, list[float]] = {}
    for equal, size in product(EQUAL, SIZES):
        generator = np.random.default_rng([13, size])
        trials = [equal_candidates(generator, size, equal) for _ in range(BLOCKS)]
        for name, decision in {"percentiles of resamples": decided_by_resampling, "zerodr": decided}.items():
            row = shares.setdefault(f"{name}, {equal:.0%} equal", [])
            row.append(sum(map(decision, trials)) / (BLOCKS * BLOCK))
            sys.stdout.write(f"{size} queries, {equal:.0%} equal: {name} {row[-1]:.4f}\n")
    plt.rcParams.update({"svg.hashsalt": "zerodr", "font.size": 9})
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    for (name, row), marker in zip(shares.items(), "osDx", strict=True):
        axes.plot(range(len(SIZES)), row, marker=marker, label=name)
    axes.axhline(0.05, color="gray", linewidth=0.8, linestyle="--", label="5 %")
    axes.set_xticks(range(len(SIZES)), [str(size) for size in SIZES])
    axes.set(xlabel="judged queries", ylabel="share of wrong verdicts", ylim=(-0.01, None))
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
