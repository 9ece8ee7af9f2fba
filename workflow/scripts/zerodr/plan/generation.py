"""Plan workflow/rules/generation.smk: queries that are made from a target's documents."""

from typing import Any

from zerodr.config.generation import GenerateSettings
from zerodr.plan import paths
from zerodr.plan.lines import Link
from zerodr.plan.mining import INDEX
from zerodr.plan.plan import Plan
from zerodr.plan.registry import Files, Params, inputs, params


@inputs("generate_queries")
def _generate_inputs(plan: Plan, wc: Any) -> Files:
    """The target, and its BM25 index where questions make a round trip."""
    name, writer = plan.chains.only_member(wc.scope), _generation(plan, plan.link(wc)).writer
    files = {"collection": paths.collection(name)}
    return files | ({"index": paths.bm25_index(INDEX, name)} if writer and writer.round_trip else {})


@params("generate_queries")
def _generate_params(plan: Plan, wc: Any) -> Params:
    link = plan.link(wc)
    (name, split), generate = plan.chains.taught(link), _generation(plan, link)
    settings = generate.model_dump(mode="json", exclude={"positives"}, exclude_none=True) | {"split": split}
    joined = {"title_join": plan.title_join(name, plan.chains.trained(link.method).protocol)}
    return settings | (joined if generate.writer else {})


def _generation(plan: Plan, link: Link) -> GenerateSettings:
    generate = plan.chains.stage(link).generate
    assert generate is not None, "only stages that generate have queries"
    return generate
