"""Say in everyday words which candidate to use, and how much better it is: counts of 100 searches, no measures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from zerodr.config.params import Candidate
from zerodr.evaluation.adaptation import Answer, QueryKind, weight_of

DETAIL = re.compile(r" \((?:bm25s|z-scores|RRF|scores|flat|flat, bm25s)\)")


def short_label(label: str) -> str:
    """Leave settings out of a label.

    >>> short_label("BM25 (bm25s) + zero (z-scores)")
    'BM25 + zero'
    """
    return DETAIL.sub("", label)


def right_first(kinds: Sequence[QueryKind]) -> dict[str, float]:
    """Share of searches whose first document is a right one, by method: the mean of the kinds that decide."""
    known = [(kind.first.mean(), weight_of(kind)) for kind in kinds if kind.decides and kind.first is not None]
    if not known:
        return {}
    shares, weights = zip(*known, strict=True)
    return dict(zip(shares[0].index, np.average(shares, axis=0, weights=weights).tolist(), strict=True))


def replaced(choice: str, methods: Sequence[Candidate]) -> str | None:
    """Name the single method that a choice is shown against: the bi-encoder as it was, else BM25; None without any."""
    others = [method.name for kind in ("encoder", "lexical") for method in methods if method.kind == kind]
    return next((name for name in others if name != choice), None)


def advice(answer: Answer, methods: Sequence[Candidate], first: Mapping[str, float]) -> str:
    """Say what to use, and how often the right document is first with it and with what it replaces.

    Args:
        answer: the decision.
        methods: the candidates.
        first: of `right_first`.
    """
    labels = {method.name: short_label(method.label) for method in methods}
    other = replaced(answer.choice, methods)
    words = f"Use {labels[answer.choice]}"
    if other is None or answer.choice not in first:
        return f"{words}."
    here, there = (round(100 * first[name]) for name in (answer.choice, other))
    gain, than = here - there, f"with {labels[other]} alone"
    if not gain:
        return f"{words}: of 100 searches, {here} have the right document first, as many as {than}."
    count = f"{abs(gain)} {'more' if gain > 0 else 'fewer'} {'has' if abs(gain) == 1 else 'have'}"
    return f"{words}: of 100 searches, {count} the right document first than {than} ({here} against {there})."
