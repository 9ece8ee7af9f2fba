"""Plan workflow/rules/pretraining.smk: stages that learn from texts alone."""

from typing import Any

from zerodr.plan import paths
from zerodr.plan.lines import Link, link_of
from zerodr.plan.plan import Plan
from zerodr.plan.registry import Files, Params, inputs, params


@inputs("cut_spans")
def _cut_inputs(plan: Plan, wc: Any) -> Files:
    model = plan.chains.model(plan.chains.parent(link_of(wc)))
    return {"collection": paths.collection(wc.collection), "model": model}


@params("cut_spans")
def _cut_params(plan: Plan, wc: Any) -> Params:
    cut = plan.chains.pretraining(Link(wc.model, wc.stage)).cut
    assert cut is not None, "only stages that learn from spans cut documents"
    return cut.model_dump(mode="json")


@inputs("pretrain")
def _pretrain_inputs(plan: Plan, wc: Any) -> Files:
    """The parent model, and spans of corpora or whole corpora."""
    link = plan.link(wc)
    model, corpora = plan.chains.model(plan.chains.parent(link)), plan.chains.corpora(link)
    if plan.chains.pretraining(link).cut is None:
        return {"model": model, "collections": [paths.collection(name) for name in corpora]}
    cut = plan.chains.cut(link)
    return {"model": model, "spans": [paths.spans(*cut.path_keys, name) for name in corpora]}


@params("pretrain")
def _pretrain_params(plan: Plan, wc: Any) -> Params:
    link = Link(wc.model, wc.stage)
    stage, protocol = plan.chains.pretraining(link), plan.chains.trained(wc.model).protocol
    return {
        "settings": stage.model_dump(mode="json"),
        "schedule": plan.chains.schedule(link),
        "title_join": plan.title_join(plan.chains.source_of(wc.model), protocol),
        "left_out": plan.chains.left_out(link),
        "gpus": plan.machines.training_gpus,
    }
