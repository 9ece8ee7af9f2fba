"""Plan workflow/rules/evaluation.smk: metrics of runs, significance between them."""

from typing import Any

from zerodr.config.counterparts import seeded
from zerodr.config.custom import code_digest
from zerodr.config.measures import CUSTOM, added, custom_functions
from zerodr.config.methods import RunMethod
from zerodr.plan import paths
from zerodr.plan.lexical import ranking
from zerodr.plan.plan import Files, Params, Plan, inputs, params


@inputs("evaluate_run")
def _evaluate_inputs(plan: Plan, wc: Any) -> Files:
    imported = isinstance(plan.method(wc.model), RunMethod)
    file = {"file": plan.bench.run_file(wc.model, wc.collection)} if imported else {}
    run = paths.run(wc.model, wc.collection, wc.protocol)
    return {"run": run, "collection": paths.collection(wc.collection)} | file


@params("evaluate_run")
def _evaluate_params(plan: Plan, wc: Any) -> Params:
    row = plan.collection(wc.collection)
    named = {"model": wc.model, "protocol": wc.protocol, "bootstrap_samples": plan.config.bootstrap_samples}
    every = {"every_query": True} if row.ranked_split != row.evaluation_split else {}
    more: Params = {"measures": names} if (names := added(plan.config.measures)) else {}
    if functions := custom_functions(names):
        more["code"] = code_digest(CUSTOM, *functions)
    return ranking(plan, wc) | named | every | more | {"split": row.evaluation_split}


@inputs("compare_runs")
def _compare_inputs(plan: Plan, wc: Any) -> Files:
    return {"per_query": plan.evaluations("per_query")}


@params("compare_runs")
def _compare_params(plan: Plan, wc: Any) -> Params:
    samples = plan.config.randomization_samples
    metric = {"metric": plan.config.measures[0]} if plan.config.measures else {}
    baseline, ranked = plan.config.baseline, set(plan.ranked)
    pairs = [(seeded(row, seed), seeded(baseline, seed)) for seed in plan.config.seeds for row in plan.ranked]
    controls = {row: control for row, control in pairs if {row, control} <= ranked}
    seeds: Params = {"controls": controls} if controls else {}
    return {"baseline": baseline, "samples": samples, "methods": plan.ranked} | metric | seeds
