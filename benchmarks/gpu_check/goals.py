"""Goals of the check of a GPU, their verdicts, and how facts are shown.

Goals are for an H100. A figure of another card is judged, too: the table names the card.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"
TRAININGS = ("train queries", "train queries, LAMB", "train coco", "train mlm", "train moma")


@dataclass(frozen=True)
class Goal:
    """A limit on one fact of a row; `least`: a lower one."""

    row: str
    fact: str
    limit: float
    least: bool = True


@dataclass(frozen=True)
class Verdict:
    """A goal with what was measured."""

    row: str
    fact: str
    limit: float
    least: bool
    value: float | None
    verdict: str

    @property
    def goal(self) -> str:
        """Say what is asked for."""
        return f"{NAMES.get(self.fact, self.fact)} {'>=' if self.least else '<='} {number(self.fact, self.limit)}"


GOALS = (
    Goal("encode, bf16", "times_sentence_transformers", 2),
    Goal("encode, bf16", "share_of_peak", 0.45),
    Goal("train queries", "share_of_peak", 0.40),
    Goal("train coco", "share_of_peak", 0.40),
    *(Goal(row, "waited_for_data", 0.05, least=False) for row in TRAININGS),
    Goal("train queries, LAMB", "optimizer_share", 0.05, least=False),
)

SHARES = {"share_of_peak", "waited_for_data", "optimizer_share"}
NAMES = {
    "tera_flops": "TFLOP/s",
    "tokens_per_second": "tokens/s",
    "queries_per_second": "queries/s",
    "questions_per_second": "questions/s from text to ranking",
    "share_of_peak": "of the measured peak",
    "waited_for_data": "waited for data",
    "optimizer_share": "of a step is the optimiser",
    "peak_gib": "GiB at most",
    "times_sentence_transformers": "x sentence-transformers",
    "times_plain": "x plain layers",
    "seconds_a_step": "s a step",
}


def judge(rows: dict[str, dict[str, Any]]) -> list[Verdict]:
    """Compare facts of finished rows, by name, with the goals."""
    verdicts = []
    for goal in GOALS:
        value = rows.get(goal.row, {}).get(goal.fact)
        verdict = NOT_MEASURED
        if value is not None:
            verdict = MET if (value >= goal.limit if goal.least else value <= goal.limit) else MISSED
        verdicts.append(Verdict(goal.row, goal.fact, goal.limit, goal.least, value, verdict))
    return verdicts


def number(fact: str, value: float) -> str:
    """Format a number in the unit of its fact."""
    if fact in SHARES:
        return f"{100 * value:.3g} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def shown(facts: dict[str, Any]) -> str:
    """Format facts in one line; `right` has a column of its own."""
    parts = []
    for name, value in facts.items():
        if name == "right" or value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            parts.append(f"{name.replace('_', ' ')} {value}")
        elif name in NAMES:
            parts.append(f"{number(name, value)} {NAMES[name]}")
        else:
            parts.append(f"{name.replace('_', ' ')} {number(name, value)}")
    return ", ".join(parts)
