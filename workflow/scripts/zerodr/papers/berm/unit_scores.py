"""Score the units of a passage for a query: BM25, a reader's score, the label. Pure functions  # BERM section 4.1"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from zerodr.papers.berm.losses import IGNORED, LEAST_UNITS


@dataclass(frozen=True)
class UnitScorer:
    """BM25 of units, with the statistics of a corpus.

    Attributes:
        documents: N, documents of the corpus.
        holders: term -> documents that have it; 0 for unknown ones.
        mean_length: terms of an average unit.
        k1, b: of BM25.
    """

    documents: int
    holders: Callable[[str], int]
    mean_length: float
    k1: float = 1.5
    b: float = 0.75

    def idf(self, term: str) -> float:
        """ln(1 + (N - df + 0.5) / (df + 0.5))."""
        df = self.holders(term)
        return math.log(1 + (self.documents - df + 0.5) / (df + 0.5))

    def scores(self, query: Sequence[str], units: Sequence[Sequence[str]]) -> np.ndarray:
        """sum_t idf(t) tf (k1 + 1) / (tf + k1 (1 - b + b |u| / mean length)), over the query's terms with repetition.

        Args:
            query: its terms.
            units: terms of each unit.

        Returns:
            (units,) float64.
        """
        counts = [Counter(unit) for unit in units]
        scores = np.zeros(len(units))
        for term, times in Counter(query).items():
            frequencies = np.array([count[term] for count in counts], np.float64)
            if not frequencies.any():
                continue
            sizes = np.array([len(unit) for unit in units], np.float64)
            below = frequencies + self.k1 * (1 - self.b + self.b * sizes / self.mean_length)
            with np.errstate(invalid="ignore"):  # 0 / 0 where k1 is 0
                scores += np.where(frequencies > 0, times * self.idf(term) * frequencies * (self.k1 + 1) / below, 0.0)
        return scores


def hybrid(bm25: np.ndarray, reader: np.ndarray | None, delta: float) -> np.ndarray:
    """S_bm25 + delta * S_reader, (units,)  # BERM section 4.1"""
    return bm25 if reader is None else bm25 + delta * reader


def essential_unit(scores: np.ndarray, without_overlap: str = "none") -> int:
    """The best unit, the first of equal ones; -100 where there is none to choose from, or none has a score.

    With `without_overlap: first` the first unit where none has a score, as the released code's argmax gives.
    """
    if len(scores) < LEAST_UNITS or np.isnan(scores).any():
        return IGNORED
    if not scores.max() > 0:
        return 0 if without_overlap == "first" else IGNORED
    return int(scores.argmax())
