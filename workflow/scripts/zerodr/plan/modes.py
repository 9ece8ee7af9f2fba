"""Footnotes on what is not as published: the reasons of `zerodr.config.counted`, by item and by row."""

from typing import Any

from zerodr.config.methods import TrainedMethod
from zerodr.plan.plan import Plan

ABSENT = object()
NOTE = "not as in the paper"


def modes_of_item(plan: Plan, paper: str, name: str) -> list[str]:
    """Say why an item of a paper is not as published."""
    rows = [row for row in plan.bench.counted if row.paper == paper and row.why_not]
    return [f"{NOTE}: {row.why_not}" for row in rows if name in row.named("item")]


def modes_of_method(plan: Plan, name: str) -> list[str]:
    """Give the settings of a row that are not as published at scale `paper`, with the reasons.

    Those are of the row's recipe, and hold where the row has the value that the list names.
    """
    method, recipe = name.partition("@")[0], name.partition("@")[0].partition("+")[0]
    if not plan.bench.scale.as_published or not isinstance(plan.method(name), TrainedMethod):
        return []
    notes, written = [], dict[str, Any]()
    for row in plan.bench.counted:
        if not row.why_not or row.named("item"):
            continue
        for key in row.named("key"):
            of, _, path = key.partition("=")[0].partition(":")
            if of.partition("+")[0] != recipe:
                continue
            ours, theirs = (
                value_at(written.setdefault(one, written_settings(plan, one)), path) for one in (method, of)
            )
            if ours is not ABSENT and ours == theirs:
                notes.append(f"{NOTE}, {row.what}: {row.why_not}")
                break
    return notes


def written_settings(plan: Plan, method: str) -> dict[str, Any]:
    """Settings of a method as a mapping, with the encoder that its first stage has."""
    written = plan.method(method).settings.model_dump(mode="json")
    if isinstance(plan.method(method), TrainedMethod):
        written["encoder"] = plan.chains.encoder(method).model_dump(mode="json")
    return written


def value_at(written: Any, path: str) -> Any:
    """Give the value at a dotted path; ABSENT where there is none."""
    for key in path.split("."):
        if not isinstance(written, dict) or key not in written:
            return ABSENT
        written = written[key]
    return written
