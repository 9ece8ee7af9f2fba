"""Plan workflow/rules/generation.smk: queries that are made from a target's documents."""

from typing import Any

from zerodr.plan import paths
from zerodr.plan.plan import Plan
from zerodr.plan.registry import Files, Params, inputs, params


@inputs("generate_queries")
def _generate_inputs(plan: Plan, wc: Any) -> Files:
    return {"collection": paths.collection(plan.chains.only_member(wc.scope))}


@params("generate_queries")
def _generate_params(plan: Plan, wc: Any) -> Params:
    link = plan.link(wc)
    generate = plan.chains.stage(link).generate
    assert generate is not None, "only stages that generate have queries"
    split = plan.chains.taught(link)[1]
    return generate.model_dump(mode="json", exclude={"positives"}) | {"split": split}
