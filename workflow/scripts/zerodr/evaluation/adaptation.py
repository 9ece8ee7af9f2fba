"""Compare candidates on several kinds of queries, and decide whether adapting helped: pure functions of measures.

Kinds count equally, whatever their sizes: the judgements of a folder, known titles, known sentences. Intervals resample
the queries of each kind. Differences have intervals that hold for all comparisons of the table at once (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from zerodr.evaluation.numbers import interval, signed
from zerodr.evaluation.significance import bootstrap_means

LEVEL = 0.95
ALL = "mean"
Verdict = Literal["adapt", "keep", "undecided"]


@dataclass(frozen=True)
class QueryKind:
    """One kind of queries.

    Attributes:
        name: `titles`, `sentences`, or the split of the judgements.
        proxy: the queries were made from the documents, and their document is known.
        values: a measure by query (rows) and method (columns).
        decides: it counts in the mean of all kinds.
    """

    name: str
    proxy: bool
    values: pd.DataFrame
    decides: bool = True


@dataclass(frozen=True)
class Difference:
    """A method minus another: mean over kinds with its interval, and by kind."""

    left: str
    right: str
    value: float
    low: float
    high: float
    kinds: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    @property
    def sign(self) -> int:
        """1 where the interval is above zero, -1 below, 0 where it holds zero."""
        return int(self.low > 0) - int(self.high < 0)

    @property
    def opposed(self) -> list[str]:
        """Kinds whose interval lies on the other side of zero than the mean."""
        return [
            name for name, (_, low, high) in self.kinds.items() if (low > 0 > self.value) or (high < 0 < self.value)
        ]


@dataclass(frozen=True)
class Answer:
    """The decision.

    Attributes:
        verdict: an adapted candidate is better (`adapt`), one that learned nothing is (`keep`), or neither is shown.
        choice: the method to use; when undecided, the best that learned nothing.
        compared: best adapted candidate minus best of the others; None without an adapted one.
        models: the same of models alone, without fusion; None where there is none of both.
    """

    verdict: Verdict
    choice: str
    compared: Difference | None = None
    models: Difference | None = None

    def plain(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return asdict(self)


class Comparison:
    """Means, intervals and differences of methods over kinds of queries.

    Args:
        kinds: with the same methods as columns.
        samples: resamples of the intervals.
        seed: of the resamples.
    """

    def __init__(self, kinds: Sequence[QueryKind], samples: int, seed: int) -> None:
        self.kinds, self.methods = list(kinds), list(kinds[0].values.columns)
        self._means = {kind.name: kind.values.mean().to_numpy() for kind in kinds}
        self._drawn = {kind.name: bootstrap_means(kind.values.to_numpy(), samples, seed) for kind in kinds}
        deciding = [kind.name for kind in kinds if kind.decides]
        self._means[ALL] = np.mean([self._means[name] for name in deciding], axis=0)
        self._drawn[ALL] = np.mean([self._drawn[name] for name in deciding], axis=0)

    def table(self) -> pd.DataFrame:
        """Return columns kind, proxy, method, queries, value, low, high: a row a kind and method, the mean last."""
        rows = []
        sizes = {kind.name: (kind.proxy, len(kind.values)) for kind in self.kinds}
        deciding = [kind for kind in self.kinds if kind.decides]
        sizes[ALL] = all(kind.proxy for kind in deciding), sum(len(kind.values) for kind in deciding)
        for name, (proxy, queries) in sizes.items():
            low, high = np.quantile(self._drawn[name], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
            for row in zip(self.methods, self._means[name], low, high, strict=True):
                rows.append((name, proxy, row[0], queries, *row[1:]))
        return pd.DataFrame(rows, columns=["kind", "proxy", "method", "queries", "value", "low", "high"])

    def best(self, methods: Sequence[str]) -> str:
        """Return the method with the highest mean over kinds, the first of equal ones."""
        return max(methods, key=lambda name: self._means[ALL][self.methods.index(name)])

    def difference(self, left: str, right: str) -> Difference:
        """Compute left minus right, paired by query."""
        tail = (1 - LEVEL) / max(1, len(self.methods) - 1) / 2
        at = self.methods.index(left), self.methods.index(right)

        def interval(name: str) -> tuple[float, float, float]:
            drawn = self._drawn[name][:, at[0]] - self._drawn[name][:, at[1]]
            low, high = np.quantile(drawn, [tail, 1 - tail])
            return float(self._means[name][at[0]] - self._means[name][at[1]]), float(low), float(high)

        kinds = {kind.name: interval(kind.name) for kind in self.kinds if kind.decides}
        return Difference(left, right, *interval(ALL), kinds)


def decide(comparison: Comparison, adapted: Sequence[str], alone: Sequence[str]) -> Answer:
    """Decide between what learned from the documents and what did not.

    Args:
        comparison: of all candidates.
        adapted: candidates that learned from the documents.
        alone: candidates that are one model, without fusion.
    """
    others = [name for name in comparison.methods if name not in adapted]
    new, old = [name for name in comparison.methods if name in adapted], comparison.best(others)
    if not new:
        return Answer("keep", old)
    compared = comparison.difference(comparison.best(new), old)
    pairs = [[name for name in group if name in alone] for group in (new, others)]
    models = comparison.difference(*map(comparison.best, pairs)) if all(pairs) else None
    if compared.sign == 0 or compared.opposed:
        return Answer("undecided", old, compared, models)
    return (
        Answer("adapt", compared.left, compared, models) if compared.sign > 0 else Answer("keep", old, compared, models)
    )


def agreement(left: Comparison, right: Comparison) -> float:
    """Compute Kendall's tau of the orders in which two comparisons put the same methods by their means."""
    means = [one.table().set_index(["kind", "method"])["value"][ALL] for one in (left, right)]
    return float(stats.kendalltau(means[0][left.methods], means[1][left.methods]).statistic)


# ---- words -----------------------------------------------------------------------------------------------------
def sentences(answer: Answer, kinds: Sequence[QueryKind], labels: dict[str, str]) -> list[str]:
    """Say the answer, and what holds for models alone, in a sentence each."""
    deciding = [kind for kind in kinds if kind.decides]
    counted = " and ".join(
        f"{len(kind.values)} {'' if kind.proxy else 'judged queries of '}{kind.name}" for kind in deciding
    )
    proxy = " (a proxy: nobody judged them)" if all(kind.proxy for kind in deciding) else ""
    compared, choice = answer.compared, labels[answer.choice]
    if compared is None:
        return [f"Nothing was adapted: {choice} is the best of what you have, on {counted}{proxy}."]
    left, right, gain = labels[compared.left], labels[compared.right], shown(compared)
    if answer.verdict == "adapt":
        first = f"Adapting helped: {left} is better than {right} by {gain} nDCG@10, on {counted}{proxy}."
    elif answer.verdict == "keep":
        first = f"Keep what you have, {right}: {left}, the best adapted candidate, differs by {gain} nDCG@10, "
        first += f"on {counted}{proxy}."
    else:
        why = f"; {' and '.join(compared.opposed)} say the opposite of the mean" if compared.opposed else ""
        first = f"Undecided: {left} differs from {right} by {gain} nDCG@10, on {counted}{proxy}{why}. "
        first += f"Until pairs are judged, keep {right}, which needs no training."
    models = answer.models
    if models is None or (models.left, models.right) == (compared.left, compared.right):
        return [first]
    word = {1: "is better than", -1: "is worse than", 0: "can't be told apart from"}[models.sign]
    return [first, f"Of the models alone, {labels[models.left]} {word} {labels[models.right]}: {shown(models)}."]


def shown(difference: Difference) -> str:
    """Format a difference with its interval: `+0.0123 [+0.0010, +0.0236]`."""
    return f"{signed(difference.value)} {interval(difference.low, difference.high)}"
