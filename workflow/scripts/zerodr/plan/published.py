"""Find the items of papers, which printed values each shows, and footnotes on what is not as published."""

from typing import Any

from zerodr.config.files import known
from zerodr.config.item import Item, TargetItem
from zerodr.config.methods import TrainedMethod
from zerodr.config.papers import LAB, Paper
from zerodr.config.registry import Collection
from zerodr.errors import ConfigError
from zerodr.plan.lines import remembered
from zerodr.plan.plan import Params, Plan

ABSENT = object()
NOTE = "not as in the paper"
PUBLISHED, WHOLE = "published", "all"


def comparison(selection: str) -> str:
    """Name of the comparison of a main table with a paper; tables of some collections have their own."""
    return PUBLISHED if selection == WHOLE else f"{PUBLISHED}-{selection}"


def modes_of_item(plan: Plan, paper: str, name: str) -> list[str]:
    """Say why an item of a paper is not as published."""
    rows = [row for row in plan.bench.counted if row.paper == paper and row.why_not]
    return [f"{NOTE}: {row.why_not}" for row in rows if name in row.named("item")]


@remembered
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


@remembered
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


def find_item(plan: Plan, paper: str, name: str) -> Item:
    """Find the item called `name`, with the protocol that its rankings have here."""
    owner = known("paper", paper, plan.bench.papers)
    item = known(f"{paper}: item", name, owner.items)
    protocol = protocol_of(plan, owner, item) if plan.bench.scale.as_published else plan.config.protocol
    return item.model_copy(update={"protocol": protocol})


def protocol_of(plan: Plan, paper: Paper, item: Item) -> str:
    """Name the protocol that an item's paper ranks with.

    Raises:
        ConfigError: there is no such protocol.
    """
    name = item.protocol or paper.protocol or plan.config.protocol
    known(f"{paper.label}: protocol", name, plan.bench.protocols)
    return name


def items_of(plan: Plan, paper: str) -> list[str]:
    """Names of the items on a paper's page."""
    left_out = (True,) if plan.bench.scale.as_published else (True, "small")
    return [name for name, item in known("paper", paper, plan.bench.papers).items.items() if item.apart not in left_out]


def item_collections(plan: Plan, paper: str, name: str) -> list[str]:
    """Collections of an item: those that it names where they are planned, else the main table's columns.

    Raises:
        ConfigError: none is left, because the source is no target.
    """
    item = find_item(plan, paper, name)
    chosen = [row for row in plan.columns if row.name != plan.source]
    named = named_collections(plan, item) if item.collections and not plan.config.collections else []
    if plan.bench.scale.as_published or (paper == LAB and named):
        chosen = [row for row in named if row.access == "public" or row.name in plan.config.gated] or chosen
    if isinstance(item, TargetItem):
        chosen = [row for row in chosen if row.column == row.name]
    if not chosen:
        raise ConfigError(f"{paper}: {name}", "has no collection: the source is no target", "choose collections")
    return [row.name for row in chosen]


def named_collections(plan: Plan, item: Item) -> list[Collection]:
    """Collections that an item names, in the registry's order; the main table's columns where it names none.

    Raises:
        ConfigError: a name is unknown.
    """
    if item.collections is None:
        return plan.columns
    words, rows = set(item.collections), plan.bench.collections.values()
    names = {word for row in rows for word in (row.name, row.column, *row.groups)}
    for word in item.collections:
        known(f"item {item.title!r}: collection", word, dict.fromkeys(names))
    return [row for row in rows if words & {row.name, row.column, *row.groups} and row.evaluation_split]


def published_cells(plan: Plan, paper: str, name: str, collections: list[str]) -> Params | None:
    """Find which printed values an item shows, what is ours of each, and what keeps both from being compared."""
    owner, item = plan.bench.papers[paper], find_item(plan, paper, name)
    if item.published is None or owner.reference is None:
        return None
    main = name == item.published or (item.cells is not None and not item.rows)
    rows = {row: method for row, method in ((owner.rows if main else {}) | item.rows).items() if method}
    for method in rows.values():
        known(f"{paper}: {name}: row", method.partition(",")[0], plan.bench.methods)
    alike = {n: i for n, i in owner.items.items() if i.published == item.published and not i.cells}
    others = [i for n, i in alike.items() if n != name and not i.repeats]
    claims = [item] if not main else [] if item.cells else others
    registry, open_ones = plan.bench.collections, {name for doubt in owner.doubts.values() for name in doubt.read_as}
    # An item may lack some of its table's targets: the printed mean is over all of them.
    wholes = (_targets(plan, i) for i in (item, *alike.values()))
    targets = max((whole for whole in wholes if set(_targets(plan, item)) <= set(whole)), key=len)
    means = {c: [r.column for r in registry.values() if g in r.groups] for c, g in owner.averages.items()}
    means["avg"] = [] if open_ones & set(targets) else targets
    columns = [registry[name].column for name in collections]
    of_table = list(dict.fromkeys(column for i in (item, *alike.values()) for column in _columns(plan, i)))
    return {
        "table": item.published,
        "rows": list(rows.items()),
        "whole": main,
        "claims": [(list(i.rows), _columns(plan, i), sorted(i.rows.keys() - _main_rows(owner, i))) for i in claims],
        "columns": of_table,
        "cells": item.cells,
        "members": {column: plan.chains.members(column) for column in columns},
        "averages": {c: list(dict.fromkeys(names)) for c, names in means.items()},
        "doubts": {key: doubt.model_dump(mode="json") for key, doubt in owner.doubts.items()},
        "kinds": {name: plan.method(name.partition(",")[0]).kind for name in rows.values()},
        "baseline": getattr(item, "baseline", ""),
        "protocol": protocol_of(plan, owner, item),
        "as_published": plan.bench.scale.as_published,
        "labels": {
            name: registry[name].label for name in [*of_table, *columns, *sorted(open_ones)] if name in registry
        },
    }


def _main_rows(owner: Paper, item: Item) -> set[str]:
    """Rows whose methods are in the item with the table's name: their means and the like are shown there."""
    main = owner.items.get(str(item.published))
    if main is None or item.repeats or item.cells is not None:
        return set()
    return {row for row, method in (owner.rows | main.rows).items() if method in getattr(main, "methods", ())}


def _columns(plan: Plan, item: Item) -> list[str]:
    return list(dict.fromkeys(row.column for row in named_collections(plan, item)))


def _targets(plan: Plan, item: Item) -> list[str]:
    return [row.column for row in named_collections(plan, item) if row.name != plan.source]
