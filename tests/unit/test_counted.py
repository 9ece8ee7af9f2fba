"""The list of what the papers hold names items, tests and keys that exist, and a reason for each deviation."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.load import load_bench
from zerodr.plan import Plan
from zerodr.plan.published import ABSENT, value_at, written_settings

STATES = {"faithful", "mode", "impossible", "short"}


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {"scale": "paper"}))


@pytest.fixture(scope="module")
def rows(plan):
    return plan.bench.counted


@pytest.fixture(scope="module")
def tests(root):
    return {
        name for path in root.glob("tests/*/*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }


def test_every_item_is_counted_once(rows):
    assert Counter(row.paper for row in rows) == {"berm": 32, "coco-dr": 39, "ddr": 31, "modir": 47, "moma": 47}
    assert max(Counter((row.paper, row.what) for row in rows).values()) == 1
    assert {row.state for row in rows} <= STATES


def test_what_is_not_as_published_has_a_reason_and_all_else_is_held(rows):
    assert [row.what for row in rows if (row.state == "faithful") == bool(row.why_not)] == []
    assert [row.what for row in rows if row.state in ("faithful", "mode") and not row.held_by] == []


def test_each_reason_is_a_note_under_a_table(rows, plan):
    """Each page of an item has the reasons of the item and of its rows, and no reason is under none."""
    notes = {
        paper: {item: remarks(plan, paper, item) for item in owner.items} for paper, owner in plan.bench.papers.items()
    }
    for row in rows:
        for item in row.named("item") if row.why_not else ():
            assert f"not as in the paper: {row.why_not}" in notes[row.paper][item], (row.what, item)
    under = {paper: "\n".join(note for page in pages.values() for note in page) for paper, pages in notes.items()}
    assert [row.what for row in rows if row.why_not not in under[row.paper]] == []


def test_the_page_of_published_values_has_the_reasons_of_its_items(plan, root, tmp_path, monkeypatch):
    """DDR's, as a stage writes it: under each table that it shows, what build_item puts under that one."""
    params = json.loads(plan.settings("build_published")(SimpleNamespace(paper="ddr")))["settings"]
    reference = str(root / plan.bench.papers["ddr"].reference)
    monkeypatch.chdir(tmp_path)
    outputs = {"table": "published.tsv", "html": "published.html"}
    run_spec(StageSpec("build_published", 1, {}, {"reference": reference}, outputs, params, 13))
    for part in Path("published.html").read_text().split("<h2")[1:]:
        item = re.search(r">([\w-]+): ", part)[1]
        reasons = [note for note in remarks(plan, "ddr", item) if "not as in the paper" in note]
        assert [note for note in reasons if html.escape(note, quote=False) not in part] == [], item
    assert "not as in the paper: ADORE and RocketQA" in Path("published.html").read_text()


def remarks(plan, paper, item):
    return json.loads(plan.settings("build_item")(SimpleNamespace(paper=paper, item=item)))["settings"]["remarks"]


def test_a_row_has_the_note_of_its_own_settings_alone(plan):
    table = "\n".join(remarks(plan, "coco-dr", "table7"))
    lamb = next(line for line in table.splitlines() if "LAMB" in line)
    assert "COCO-DR (iDRO as published)" not in lamb.partition(":")[0] and "COCO-DR" in lamb.partition(":")[0]
    mini = Plan(load_bench(plan.bench.root, {"scale": "mini"}))
    assert "not as in the paper, " not in "\n".join(remarks(mini, "coco-dr", "table7")), "mini has its own settings"


def test_what_holds_an_item_is_there(rows, plan, tests):
    missing = [
        (row.paper, kind, name)
        for row in rows
        for kind, name in row.held_by
        if not is_there(plan, tests, row.paper, kind, name)
    ]
    assert missing == []


def is_there(plan, tests, paper, kind, name):
    if kind == "item":
        return name in plan.bench.papers[paper].items
    if kind == "test":
        return name in tests
    if kind == "protocol":
        return name in plan.bench.protocols
    assert kind == "key", kind
    (method, _, path), value = name.partition("=")[0].partition(":"), name.partition("=")[2]
    ours = value_at(written_settings(plan, method), path)
    return ours is not ABSENT and (not value or ours == yaml.safe_load(value))
