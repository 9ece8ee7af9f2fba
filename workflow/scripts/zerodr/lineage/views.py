"""Describe the experiment in MLflow: groups of runs, short names, views with the columns that matter, links to them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from zerodr.artifacts.record import Record

MAIN_METRIC = "ndcg_cut_10"
PAGE = "http://127.0.0.1:5000"  # of `make mlflow`
VIEW_TAG = "mlflow.sharedViewState."  # MLflow's own views that are shared by address
DATA, TABLES = "data", "tables and figures"
TABLE_RULES = ("build_", "compare_", "plot_")  # rules of tables and figures
DETAILS = ("collection", "archive", "index", "target", "split", "kind", "memory", "item", "shard")
DESCRIPTION = """Artifacts of zerodr: one run is one artifact, with settings, metrics, inputs and small files.

* **Groups**: method > stage > collection. A method's own run has its nDCG@10 by collection.
* **Filter**: `tags.method = 'bm25-flat'`, `tags.collection = 'scifact'`, `tags.rule = 'finetune'`, `tags.stage`,
  `tags.scale`, `tags.git_commit`, `tags.paper`.
* **From a number to its archive**: open a run, take a digest of its tags `in.<name>`, search `tags.out = '<digest>'`;
  repeat.
* **Back**: search `dataset.digest = '<the first 36 letters of tag out>'` for all that used an artifact.
* The full record is the run's file `lineage.json`.
"""


def method_of(record: Record) -> str:
    """Return the method that an artifact is of; empty for data and tables."""
    return record["wildcards"].get("model", "").partition("@")[0]


def groups_of(record: Record) -> tuple[str, str]:
    """Return the groups of an artifact's run: its method, paper, or kind; its stage."""
    words, rule = record["wildcards"], record["rule"]
    if words.get("paper"):
        return f"paper {words['paper']}", rule
    first = TABLES if rule.startswith(TABLE_RULES) else method_of(record) or DATA
    return first, " ".join(filter(None, [rule, words.get("stage", "")]))


def level_of(groups: tuple[str, ...]) -> str:
    """Return the level of a group: `method`, `stage`, or `other` for data, tables and papers."""
    if len(groups) > 1:
        return "stage"
    return "other" if groups[0] in (DATA, TABLES) or groups[0].startswith("paper ") else "method"


def run_name(record: Record) -> str:
    """Return a short name: what tells an artifact from others of its stage."""
    words = record["wildcards"]
    scope = words.get("scope", "shared")
    named = [words[name] for name in DETAILS if words.get(name)]
    named += [scope] if scope != "shared" and scope not in named else []
    name = " ".join(named) or words.get("stage") or record["rule"]
    if record["output"] == "summary":
        return f"{words['model']} {name}"  # evaluations are read in one list
    return f"{name} ({record['output']})" if len(record["outputs"]) > 1 else name


def constants(record: Record) -> dict[str, float]:
    """Return curves that never change: they are settings, and a chart would draw small ones as 0."""
    points: dict[str, list[float]] = {}
    for metric in record["metrics"]:
        points.setdefault(metric["name"], []).append(metric["value"])
    return {name: v[0] for name, v in points.items() if len(v) > 1 and min(v) == max(v) == v[0]}


def views(collections: Iterable[str]) -> dict[str, str]:
    """Return the views by key: `methods` (a row a method, a column a collection) and `evaluations`."""
    by_collection = [f"metrics.`{MAIN_METRIC}.{name}`" for name in collections]
    tags = [f"tags.`{name}`" for name in ("method", "collection", "scale")]
    measures = [f"metrics.`{name}`" for name in (MAIN_METRIC, "recall_100", "recip_rank_cut_10", "seconds")]
    chosen = {
        "methods": _view("tags.level = 'method'", by_collection, by_collection[0] if by_collection else ""),
        "evaluations": _view("tags.output = 'summary'", [*tags, *measures], measures[0]),
    }
    return {key: json.dumps(view, sort_keys=True) for key, view in chosen.items()}


def _view(search: str, columns: list[str], order: str) -> dict[str, Any]:
    ordered = {"orderByKey": order, "orderByAsc": False} if order else {}
    return {"searchFilter": search, "selectedColumns": columns, "runListHidden": False} | ordered


def link(uri: str, experiment: str, view: str) -> str:
    """Return the address of a view; of a database, on the page that `make mlflow` opens."""
    page = uri.rstrip("/") if uri.startswith(("http:", "https:")) else PAGE
    return f"{page}/#/experiments/{experiment}/runs?viewStateShareKey={view}"
