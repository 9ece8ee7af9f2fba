"""The table of a drill: stage, fault, outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.drill.drill import Row


def render(rows: list[Row], damaged: list[str], stages: dict[str, int]) -> str:
    """Write totals, outcomes by kind of fault, and faults by rule and kind, as Markdown."""
    lost, partial = (sum(len(getattr(row, name)) for row in rows) for name in ("lost", "partial"))
    unequal = sum(len(row.unequal) for row in rows) + len(damaged)
    left, raw = sum(len(row.left) for row in rows), sum("traceback" in row.outcome for row in rows)
    minutes = sum(row.seconds for row in rows) / 60
    totals = (
        f"{len(rows)} faults in {len({row.rule for row in rows})} rules ({sum(stages.values())} stages), "
        f"{minutes:.1f} minutes: {lost} lost, {partial} partial, {unequal} not bit-equal at the end, {left} left over, "
        f"{raw} ended with a traceback.\n"
    )
    kinds = sorted({row.kind for row in rows})
    ends = sorted({row.outcome for row in rows})
    outcomes = ((kind, Counter(row.outcome for row in rows if row.kind == kind)) for kind in kinds)
    by_kind = table(
        ["fault", "injected", *ends], ([k, c.total(), *(c[end] or "" for end in ends)] for k, c in outcomes)
    )
    rules = sorted({row.rule for row in rows})
    counts = Counter((row.rule, row.kind) for row in rows)
    ends_of = {rule: Counter(row.outcome for row in rows if row.rule == rule) for rule in rules}
    by_rule = table(
        ["stage", *kinds, "outcomes"],
        ([rule, *(counts[rule, kind] or "" for kind in kinds), _listed(ends_of[rule])] for rule in rules),
    )
    return f"{totals}\n{by_kind}\n{by_rule}"


def table(head: list[str], rows: Iterable[list[object]]) -> str:
    """Write a Markdown table."""
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())
