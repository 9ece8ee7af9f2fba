"""The list of what the papers hold names items, tests and keys that exist, and a reason for each deviation."""

from __future__ import annotations

import csv
import re
from collections import Counter

import pytest

from zerodr.config.load import load_bench
from zerodr.plan import Plan

STATES = {"faithful", "mode", "impossible", "short"}


@pytest.fixture(scope="module")
def rows(root):
    with (root / "resources/reference/papers/counted.tsv").open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {"scale": "paper"}))


@pytest.fixture(scope="module")
def tests(root):
    return {
        name for path in root.glob("tests/*/*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }


def test_every_item_is_counted_once(rows):
    assert Counter(row["paper"] for row in rows) == {"berm": 30, "coco-dr": 36, "ddr": 31, "modir": 46, "moma": 45}
    assert max(Counter((row["paper"], row["what"]) for row in rows).values()) == 1
    assert {row["state"] for row in rows} <= STATES


def test_what_is_not_as_published_has_a_reason_and_all_else_is_held(rows):
    assert [row["what"] for row in rows if (row["state"] == "faithful") == bool(row["why_not"])] == []
    assert [row["what"] for row in rows if row["state"] in ("faithful", "mode") and not row["held_by"]] == []


def test_what_holds_an_item_is_there(rows, plan, tests):
    missing = [
        (row["paper"], part)
        for row in rows
        for part in row["held_by"].split(", ")
        if part and not is_there(plan, tests, row["paper"], part)
    ]
    assert missing == []


def is_there(plan, tests, paper, part):
    kind, _, name = part.partition(" ")
    if kind == "item":
        return name in plan.bench.papers[paper].items
    if kind == "test":
        return name in tests
    if kind == "protocol":
        return name in plan.bench.protocols
    assert kind == "key", part
    method, _, path = name.partition(":")
    settings = plan.method(method).settings.model_dump(mode="json")
    settings["encoder"] = plan.chains.encoder(method).model_dump(mode="json")
    for key in path.split("."):
        if not isinstance(settings, dict) or key not in settings:
            return False
        settings = settings[key]
    return True
