"""Plan workflow/rules/pages.smk: the leaderboard, and two methods query by query."""

from typing import Any

from zerodr.plan import paths
from zerodr.plan.plan import Plan
from zerodr.plan.registry import Files, Params, inputs, params
from zerodr.plan.reporting import table

TEXTS = {"queries": 20, "documents": 10}  # on a page: queries that gained and that lost most; documents of each


@inputs("build_leaderboard")
def leaderboard_inputs(plan: Plan, wc: Any) -> Files:
    """Everything of the main table."""
    return {
        "summaries": plan.evaluations("summary"),
        "table": paths.beir(f"{plan.selection}.tsv"),
        "notes": paths.beir(f"{plan.selection}.notes.md"),
        "figure": paths.beir(f"{plan.selection}.svg"),
        "significance": paths.compared(plan.selection, "significance.tsv"),
        "published": paths.compared(plan.selection, "published.tsv"),
        "queries": paths.query_pages(plan.selection),
    }


@params("build_leaderboard")
def leaderboard_params(plan: Plan, wc: Any) -> Params:
    """Rows and columns of the table, and the words of the configuration that choose them."""
    folder = [f"byo={','.join(plan.config.byo)}"] if plan.config.byo else []
    chosen = {"collections": plan.config.collections, "methods": plan.config.methods}
    named = {"selection": plan.selection, "seed": plan.config.seed, "words": [f"scale={plan.config.scale}", *folder]}
    named["choice"] = [f"{key}=[{','.join(names)}]" for key, names in chosen.items() if names]
    return {"table": table(plan, plan.methods)} | named


@inputs("build_queries")
def _queries_inputs(plan: Plan, wc: Any) -> Files:
    protocol = plan.config.protocol
    return {
        "runs": [paths.run(name, row.name, protocol) for name, row in _runs(plan)],
        "collections": [paths.collection(row.name) for row in plan.columns],
        "per_query": paths.compared(plan.selection, "per_query.parquet"),
    }


@params("build_queries")
def _queries_params(plan: Plan, wc: Any) -> Params:
    first = plan.config.baseline if plan.config.baseline in plan.ranked else plan.ranked[0]
    shown = [{"name": row.name, "label": row.label, "split": row.evaluation_split} for row in plan.columns]
    labels = {name: plan.method(name).label for name in plan.ranked}
    pairs = [[name, row.name] for name, row in _runs(plan)]
    return TEXTS | {"runs": pairs, "labels": labels, "collections": shown, "baseline": first}


@inputs("build_query_page")
def _page_inputs(plan: Plan, wc: Any) -> Files:
    methods = (wc.model, wc.baseline)
    return {
        "runs": [paths.run(name, wc.collection, wc.protocol) for name in methods],
        "collections": [paths.collection(wc.collection)],
        "per_query": [paths.per_query(name, wc.collection, wc.protocol) for name in methods],
    }


@params("build_query_page")
def _page_params(plan: Plan, wc: Any) -> Params:
    row, methods = plan.collection(wc.collection), (wc.model, wc.baseline)
    shown = {"name": row.name, "label": row.label, "split": row.evaluation_split}
    labels = {name: plan.method(name).label for name in methods}
    runs = [[name, row.name] for name in methods]
    return TEXTS | {"runs": runs, "labels": labels, "collections": [shown], "baseline": wc.baseline}


def _runs(plan: Plan) -> list[tuple[str, Any]]:
    return [(name, row) for name in plan.ranked for row in plan.columns if plan.has_run(name, row.name)]
