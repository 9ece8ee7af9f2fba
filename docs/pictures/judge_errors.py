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
import pandas as pd

matplotlib.use("svg")
from matplotlib import pyplot as plt

from zerodr.evaluation.adaptation import Comparison, QueryKind, decide
from zerodr.evaluation.significance import bootstrap_means

SIZES, TRIALS, SAMPLES = (1, 2, 3, 5, 8, 12, 20, 40, 100, 300), 1000, 1000
EQUAL = (0.2, 0.8)  # shares of queries on which both candidates find the same
NAMES = ["start", "new"]


def equal_candidates(generator: np.random.Generator, size: int, equal: float) -> pd.DataFrame:
    """Draw measures of candidates that are equally good: on a share `equal` of the queries both find the same."""
    ranks = 1 / generator.uniform(0, 1, (size, len(NAMES)))
    same = generator.random(size) < equal
    ranks[same] = ranks[same, :1]
    return pd.DataFrame(np.where(ranks > 10, 0.0, 1 / np.log2(ranks + 1)), columns=NAMES)


def decided(values: pd.DataFrame) -> bool:
    """True when the judge takes one of equal candidates for better."""
    return decide(Comparison([QueryKind("test", False, values)], 13), NAMES[1:], NAMES).verdict != "undecided"


def decided_by_resampling(values: pd.DataFrame) -> bool:
    """The same by percentiles of resampled queries, as it was before."""
    drawn = bootstrap_means((values["new"] - values["start"]).to_numpy()[:, None], SAMPLES, 13)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return bool(low > 0 or high < 0)


def main(path: Path = Path("docs/pictures/judge-errors.svg")) -> None:
    """Simulate each size, write the picture and print the shares."""
    shares: dict[str, list[float]] = {}
    for equal, size in product(EQUAL, SIZES):
        generator = np.random.default_rng([13, size])
        trials = [equal_candidates(generator, size, equal) for _ in range(TRIALS)]
        for name, decision in {"percentiles of resamples": decided_by_resampling, "zerodr": decided}.items():
            row = shares.setdefault(f"{name}, {equal:.0%} equal", [])
            row.append(sum(map(decision, trials)) / TRIALS)
            sys.stdout.write(f"{size} queries, {equal:.0%} equal: {name} {row[-1]:.3f}\n")
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
