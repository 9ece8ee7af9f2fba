"""Plan workflow/rules/reporting.smk: the main table, its rows and figure, the lineage publisher."""

import json
from collections.abc import Sequence
from typing import Any

from zerodr.config.base import Settings
from zerodr.config.methods import FeedbackMethod, FusionMethod, MixtureMethod, RunMethod, ScoresMethod, TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.settings import Config
from zerodr.plan import paths
from zerodr.plan.plan import REMARKS, Files, Params, Plan, inputs, params
from zerodr.plan.published import comparison, modes_of_method

TEXTS = {"queries": 20, "documents": 10}  # on a page: queries that gained and that lost most; documents of each
SHOWN = {
    *("name", "label", "kind", "evaluation_split", "aggregate", "groups", "remark", "exclude_self", "language"),
    "licence",
}


@inputs("build_table")
def _table_inputs(plan: Plan, wc: Any) -> Files:
    return {
        "summaries": plan.evaluations("summary"),
        "scores": list(dict.fromkeys(method.settings.file for method in published(plan).values())),
        "significance": paths.compared(plan.selection, "significance.tsv"),
        "references": [reference.path for reference in plan.config.references],
        "papers": [
            paths.item(name, comparison(plan.selection), "tsv") for name, p in plan.bench.papers.items() if p.reference
        ],
        **({"per_query": paths.compared(plan.selection, "per_query.parquet")} if plan.config.seeds else {}),
    }


@params("build_table")
def table_params(plan: Plan, wc: Any = None) -> Params:
    """Return the settings of the main table."""
    references = [reference.model_dump(mode="json") for reference in plan.config.references]
    several = {name: plan.bench.by_seed(name) for name in plan.ranked}
    seeds = {name: names for name, names in several.items() if len(names) > 1}
    samples, baseline = plan.config.bootstrap_samples, plan.config.baseline
    drawn = {"seeds": seeds, "bootstrap_samples": samples} if seeds else {}
    drawn |= {"baseline": baseline} if baseline in seeds else {}
    return table(plan, plan.methods) | {"references": references} | drawn


@inputs("build_row")
def _row_inputs(plan: Plan, wc: Any) -> Files:
    return {"summaries": plan.evaluations("summary", wc.model)}


@params("build_row")
def _row_params(plan: Plan, wc: Any) -> Params:
    return table(plan, [wc.model])


@inputs("plot_table")
def _plot_inputs(plan: Plan, wc: Any) -> Files:
    per_query = paths.compared(plan.selection, "per_query.parquet")
    return {"per_query": per_query, "table": paths.beir(f"{plan.selection}.tsv")}


@params("plot_table")
def _plot_params(plan: Plan, wc: Any) -> Params:
    return table(plan, plan.ranked) | {"bootstrap_samples": plan.config.bootstrap_samples}


@inputs("publish_lineage")
def _publish_inputs(plan: Plan, wc: Any) -> Files:
    return {"artifacts": [*tables(plan), *(paths.statistics(row.name) for row in plan.columns)]}


@params("publish_lineage")
def _publish_params(plan: Plan, wc: Any) -> Params:
    return {"scale": plan.config.scale}


def tables(plan: Plan) -> list[str]:
    """Files of the main table: numbers, page, figure, tests, comparison with published numbers, pages by query."""
    files = [paths.beir(f"{plan.selection}.{kind}") for kind in ("tsv", "notes.md", "md", "html", "svg", "png")]
    files += [paths.compared(plan.selection, f"{name}.tsv") for name in ("significance", "published", "holes")]
    return [*files, paths.compared(plan.selection, "per_query.parquet"), paths.query_pages(plan.selection)]


def table(plan: Plan, methods: Sequence[str]) -> Params:
    """Params of every rule that shows a table: rows, columns, what is missing, column groups, protocol."""
    known = plan.bench.collections.values()
    gated = [each.name for each in plan.wanted if each.access == "gated" and each not in plan.columns]
    brought = [each for each in known if each.kind == "own"]
    unjudged = [each.name for each in brought if not each.evaluation_split and each.name not in plan.bench.faults]
    groups = dict.fromkeys(group for each in known for group in each.groups)
    return {
        "methods": [row(plan, name) for name in methods],
        "collections": [each.model_dump(mode="json", include=SHOWN) for each in plan.columns],
        "missing": [{"name": name, "reason": "gated: needs registration"} for name in gated]
        + [{"name": name, "reason": _unjudged(plan, name)} for name in unjudged]
        + [{"name": name, "reason": f"left out: {fault}"} for name, fault in plan.bench.faults.items()],
        "groups": {name: list(dict.fromkeys(each.column for each in known if name in each.groups)) for name in groups},
        "aggregates": {each.aggregate: plan.chains.members(each.aggregate) for each in known if each.aggregate},
        "protocol": {"name": plan.config.protocol} | plan.protocol(plan.config.protocol).model_dump(mode="json"),
        "scale": plan.config.scale,
        "source": plan.source,
        **({"metric": plan.config.measures[0]} if plan.config.measures else {}),
        **({"further": plan.config.measures[1:]} if plan.config.measures[1:] else {}),
    }


def _unjudged(plan: Plan, name: str) -> str:
    unread = plan.bench.folders[name].unread
    return f"no judgements: not evaluated{f'; {unread}' if unread else ''}"


def row(plan: Plan, name: str) -> Params:
    """A row of a table. Rows that the configuration names have no family."""
    family = plan.bench.family(name)
    facts = {"name": name, "label": plan.label(name), "remark": remark_of(plan, name), "family": family}
    method = plan.method(name)
    if isinstance(method, ScoresMethod):
        return facts | {"scores": method.settings.model_dump(mode="json")}
    return facts | {"absent": [row.name for row in plan.columns if not plan.has_run(name, row.name)]}


def published(plan: Plan) -> dict[str, ScoresMethod]:
    """Rows of the main table that are published numbers, by name."""
    rows = {name: plan.method(name) for name in plan.methods}
    return {name: method for name, method in rows.items() if isinstance(method, ScoresMethod)}


# ---- footnotes of rows -----------------------------------------------------------------------------------------
def remark_of(plan: Plan, name: str) -> str:
    """A row's footnote, with what follows from how its model was trained."""
    remarks, chains = remarks_of(plan, name), plan.chains
    if isinstance(plan.method(name), TrainedMethod) and chains.is_adapted(name):
        source = chains.source_of(name.partition("@")[0])
        if any(column.name == source for column in plan.columns):
            shared = chains.ranker(name, source).name
            remarks.append(f"no model is adapted to the source: {source} is ranked by {shared}")
    return "; ".join(remarks)


def _budget(method: TrainedMethod, scale: str) -> list[str]:
    """Say how many steps a row's stages train at a scale below the published one."""
    until, _, saved = method.stage.partition(".")
    steps: dict[str, int] = {}
    for stage, settings in method.settings.chain.items():
        if until == INIT:
            break
        training = getattr(settings, "training", None)
        steps |= {stage: training.steps} if training is not None else {}
        if stage == until:
            steps |= {stage: int(saved)} if saved else {}
            break
    listed = ", ".join(f"{stage} {count:,}" for stage, count in steps.items())
    return [f"training steps at scale {scale}: {listed}"] if steps else []


def remarks_of(plan: Plan, name: str, protocol: str | None = None) -> list[str]:
    """Remarks on a row's targets, one by one.

    Args:
        plan: the plan.
        name: of the row.
        protocol: that it is read under. None: the configuration's.
    """
    method, protocol = plan.method(name), protocol or plan.config.protocol
    remarks = [method.remark]
    if isinstance(method, RunMethod | ScoresMethod):
        what = "imported run, made elsewhere" if method.ranks else "published numbers alone, in no test"
        remarks.insert(0, f"{what}: {method.settings.source}")
    if isinstance(method, FusionMethod) and not method.remark:
        remarks += dict.fromkeys(remark for run in method.settings.runs for remark in remarks_of(plan, run))
    if isinstance(method, FeedbackMethod | MixtureMethod) and not method.remark:
        remarks += remarks_of(plan, method.settings.model)
    if isinstance(method, TrainedMethod):
        if method.stage and method.stage != [INIT, *method.settings.chain][-1]:
            remarks.append(f"after stage {method.stage} of {', '.join(method.settings.chain)}")
        remarks += ["one model for each target"] if plan.chains.is_adapted(name) else []
        remarks += [] if plan.bench.scale.as_published else _budget(method, plan.config.scale)
        remarks += [remark for function in REMARKS for remark in function(plan, name)]
        remarks += modes_of_method(plan, name)
    if method.read_under not in (None, protocol):
        remarks.append(f"read under protocol {protocol}, its paper's is {method.read_under}")
    return [remark for remark in remarks if remark]


# ---- pages -------------------------------------------------------------------------------------------------------
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
    config = plan.config
    folder = [f"byo={','.join(config.byo)}"] if config.byo else []
    words = [f"scale={config.scale}", *folder, *unusual(config, MAKING)]
    chosen = {"collections": config.collections, "methods": config.methods}
    choice = [f"{key}=[{','.join(names)}]" for key, names in chosen.items() if names]
    named = {"selection": plan.selection, "seed": config.seed, "words": words}
    return {"table": table(plan, plan.methods)} | named | {"choice": [*choice, *unusual(config, SHOWING)]}


MAKING = (
    *("byo_name", "byo_language", "byo_columns", "byo_cut", "byo_exclude_self", "byo_drop_missing"),
    *("gated", "revisions", "seed", "protocol", "source", "set", "seeds", "measures"),
)
SHOWING = ("baseline",)


def unusual(config: Config, keys: Sequence[str]) -> list[str]:
    """Give the words of settings that are not the usual ones."""
    usual = {key: Config.model_fields[key].get_default(call_default_factory=True) for key in keys}
    values = {key: getattr(config, key) for key in keys if getattr(config, key) != usual[key]}
    return [f"{key}={written(value)}" for key, value in values.items()]


def written(value: Any) -> str:
    """Write the value of a setting as words of `--config` have it."""
    if isinstance(value, Settings | dict):
        mapping = value if isinstance(value, dict) else value.model_dump(mode="json", exclude_defaults=True)
        return json.dumps(mapping, ensure_ascii=False)
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


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
    labels = {name: plan.label(name) for name in plan.ranked}
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
    labels = {name: plan.label(name) for name in methods}
    runs = [[name, row.name] for name in methods]
    return TEXTS | {"runs": runs, "labels": labels, "collections": [shown], "baseline": wc.baseline}


def _runs(plan: Plan) -> list[tuple[str, Any]]:
    return [(name, row) for name in plan.ranked for row in plan.columns if plan.has_run(name, row.name)]
