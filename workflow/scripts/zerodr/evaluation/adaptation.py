"""Compare candidates on several kinds of queries, and decide whether adapting helped: pure functions of measures.

A kind of n queries has the weight n / (n + 40): the judgements of a folder, known titles, known sentences. Differences
have intervals that hold for all comparisons of the table at once (Bonferroni).

Intervals are quantiles of the means of random subsets of the queries. Those of differences over fewer than MANY queries
also hold what no fair bet refutes, as a few queries may show none of the rare gains or losses; those over more hold
what skewness allows: see `significance`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from zerodr.collections.audit import fold
from zerodr.evaluation.numbers import interval, signed
from zerodr.evaluation.significance import STAKE, betting_bounds, bounds, skewed_bounds, subset_means

LEVEL = 0.95
HALF = 40  # queries of a kind that has half the weight of one without end: differences of queries deviate by about .2,
# those of kinds by about .03, and (.2 / .03) ** 2 is about 40
MANY = 200  # queries from which a correction for skewness is enough: errors of 5 % where one query in fifty gains much
ALL = "mean"
JUDGED = "judged"  # the kind of queries that a person graded in to_judge.tsv
Verdict = Literal["adapt", "keep", "undecided"]


@dataclass(frozen=True)
class QueryKind:
    """One kind of queries.

    Attributes:
        name: `titles`, `sentences`, or the split of the judgements.
        proxy: the queries were made from the documents, and their document is known.
        values: a measure by query (rows) and method (columns).
        decides: it counts in the mean of all kinds.
        first: whether the first document is a right one, by query and method; None: not known.
    """

    name: str
    proxy: bool
    values: pd.DataFrame
    decides: bool = True
    first: pd.DataFrame | None = None


def merge_equal(kind: QueryKind, texts: Mapping[str, str]) -> QueryKind:
    """Average the queries whose text is the same: they know as much as one, and count as one.

    Args:
        kind: its frames have ids of queries as their index.
        texts: of the queries, by id.
    """
    ids = kind.values.index.to_series()
    first_id = ids.groupby([fold(texts[key]) for key in ids], sort=False).transform("first")
    if first_id.is_unique:
        return kind
    first = None if kind.first is None else kind.first.groupby(first_id, sort=False).any()
    return replace(kind, values=kind.values.groupby(first_id, sort=False).mean(), first=first)


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
        needed: fewest queries with which anything can be decided, where there are fewer; else 0.
    """

    verdict: Verdict
    choice: str
    compared: Difference | None = None
    models: Difference | None = None
    needed: int = 0

    def plain(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return asdict(self)


class Comparison:
    """Means, intervals and differences of methods over kinds of queries.

    Args:
        kinds: with the same methods as columns.
        seed: of the subsets.
    """

    def __init__(self, kinds: Sequence[QueryKind], seed: int) -> None:
        self.kinds, self.methods = list(kinds), list(kinds[0].values.columns)
        self.deciding = [kind for kind in self.kinds if kind.decides]
        self.tail = (1 - LEVEL) / max(1, len(self.methods) - 1) / 2
        self._means = {kind.name: kind.values.mean().to_numpy() for kind in kinds}
        weights = {kind.name: weight_of(kind) for kind in self.deciding}
        self._means[ALL] = np.average([self._means[name] for name in weights], axis=0, weights=list(weights.values()))
        self._drawn = {kind.name: _typical([kind], [1.0], seed) for kind in kinds}
        shares = [weights[kind.name] / len(kind.values) for kind in self.deciding]
        alone = self.deciding[0].name if len(self.deciding) == 1 else None
        self._drawn[ALL] = self._drawn[alone] if alone else _typical(self.deciding, shares, seed)
        total = sum(weights.values())
        self._weighted = {kind.name: [(kind, 1 / len(kind.values))] for kind in self.deciding}
        self._weighted[ALL] = [(kind, share / total) for kind, share in zip(self.deciding, shares, strict=True)]

    @property
    def queries(self) -> int:
        """Number of queries of the kinds that decide."""
        return sum(len(kind.values) for kind in self.deciding)

    @property
    def needed(self) -> int:
        """Fewest queries with which an interval can leave zero out."""
        return math.ceil(-math.log(self.tail) / math.log1p(STAKE))

    def table(self) -> pd.DataFrame:
        """Return columns kind, proxy, method, queries, value, low, high: a row a kind and method, the mean last."""
        rows = []
        sizes = {kind.name: (kind.proxy, len(kind.values)) for kind in self.kinds}
        sizes[ALL] = all(kind.proxy for kind in self.deciding), self.queries
        for name, (proxy, queries) in sizes.items():
            low, high = bounds(self._drawn[name], (1 - LEVEL) / 2, 0.0)
            for row in zip(self.methods, self._means[name], low, high, strict=True):
                rows.append((name, proxy, row[0], queries, *row[1:]))
        return pd.DataFrame(rows, columns=["kind", "proxy", "method", "queries", "value", "low", "high"])

    def best(self, methods: Sequence[str]) -> str:
        """Return the method with the highest mean over kinds, the first of equal ones."""
        return max(methods, key=lambda name: self._means[ALL][self.methods.index(name)])

    def difference(self, left: str, right: str) -> Difference:
        """Compute left minus right, paired by query."""
        one, other = self.methods.index(left), self.methods.index(right)

        ends: dict[Any, tuple[float, float]] = {}  # of one kind that decides alone, they are those of all kinds

        def interval(name: str) -> tuple[float, float, float]:
            weighted = tuple((kind.name, share) for kind, share in self._weighted[name])
            if weighted not in ends:
                ends[weighted] = self._ends(name, left, right)
            return float(self._means[name][one] - self._means[name][other]), *ends[weighted]

        kinds = {kind.name: interval(kind.name) for kind in self.deciding}
        return Difference(left, right, *interval(ALL), kinds)

    def _ends(self, name: str, left: str, right: str) -> tuple[float, float]:
        one, other = self.methods.index(left), self.methods.index(right)
        low, high = bounds(self._drawn[name][:, [one]] - self._drawn[name][:, [other]], self.tail, -1.0)
        values = np.concatenate([kind.values[left] - kind.values[right] for kind, _ in self._weighted[name]])
        shares = np.concatenate([np.full(len(kind.values), share) for kind, share in self._weighted[name]])
        few = 1 / (shares @ shares) < MANY  # queries of equal shares that would tell as much
        least, most = (betting_bounds if few else skewed_bounds)(values, shares, self.tail)
        return min(float(low[0]), least), max(float(high[0]), most)


def weight_of(kind: QueryKind) -> float:
    """Weight of a kind in the mean, by what its queries can tell."""
    return len(kind.values) / (len(kind.values) + HALF)


def _typical(kinds: Sequence[QueryKind], shares: Sequence[float], seed: int) -> np.ndarray:
    """Average random subsets of the queries of some kinds, of which each query counts with its kind's share: (N, M)."""
    queries = np.concatenate([kind.values.to_numpy() for kind in kinds])
    return subset_means(queries, np.repeat(shares, [len(kind.values) for kind in kinds]), seed)


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
    models = None
    if all(pairs):
        left, right = map(comparison.best, pairs)
        same = (left, right) == (compared.left, compared.right)
        models = compared if same else comparison.difference(left, right)
    if compared.sign == 0 or compared.opposed:
        needed = comparison.needed if comparison.queries < comparison.needed else 0
        return Answer("undecided", old, compared, models, needed)
    return (
        Answer("adapt", compared.left, compared, models) if compared.sign > 0 else Answer("keep", old, compared, models)
    )


def agreement(left: Comparison, right: Comparison) -> float | None:
    """Compute Kendall's tau of the orders in which two comparisons put the same methods by their means.

    Returns:
        None where one of them puts all methods level, so that there is no order.
    """
    from scipy import stats  # takes longer to import than all else here takes to run

    means = [one.table().set_index(["kind", "method"])["value"][ALL] for one in (left, right)]
    tau = float(stats.kendalltau(means[0][left.methods], means[1][left.methods]).statistic)
    return None if math.isnan(tau) else tau


# ---- words -----------------------------------------------------------------------------------------------------
def sentences(answer: Answer, kinds: Sequence[QueryKind], labels: dict[str, str]) -> list[str]:
    """Say the answer, and what holds for models alone, in a sentence each."""
    deciding = [kind for kind in kinds if kind.decides]
    counted = " and ".join(map(_counted, deciding))
    proxy, few = "", [kind for kind in kinds if not kind.proxy]
    if all(kind.proxy for kind in deciding):
        known = f"; {' and '.join(map(_counted, few))} are too few to decide" if few else ": nobody judged them"
        proxy = f" (a proxy{known})"
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
        why += f"; fewer than {answer.needed} queries decide nothing" if answer.needed else ""
        first = f"Undecided: {left} differs from {right} by {gain} nDCG@10, on {counted}{proxy}{why}. "
        first += f"Until {'more ' if few else ''}pairs are judged, keep {right}."
    models = answer.models
    if models is None or (models.left, models.right) == (compared.left, compared.right):
        return [first]
    word = {1: "is better than", -1: "is worse than", 0: "can't be told apart from"}[models.sign]
    return [first, f"Of the models alone, {labels[models.left]} {word} {labels[models.right]}: {shown(models)}."]


def _counted(kind: QueryKind) -> str:
    """Name a kind with its number of queries: `1 title`, `3 judged queries of test`, `2 queries that you judged`."""
    count = len(kind.values)
    queries = "query" if count == 1 else "queries"
    if kind.proxy:
        return f"{count} {kind.name.removesuffix('s') if count == 1 else kind.name}"
    return f"{count} {queries} that you judged" if kind.name == JUDGED else f"{count} judged {queries} of {kind.name}"


def shown(difference: Difference) -> str:
    """Format a difference with its interval: `+0.0123 [+0.0010, +0.0236]`."""
    return f"{signed(difference.value)} {interval(difference.low, difference.high)}"
