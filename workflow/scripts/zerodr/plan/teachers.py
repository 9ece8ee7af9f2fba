"""Plan workflow/rules/teachers.smk: scores of mined pairs by cross-encoders, for distillation."""

from typing import Any

from zerodr.plan import paths
from zerodr.plan.lines import Link, link_of
from zerodr.plan.plan import Plan
from zerodr.plan.registry import Files, Params, inputs, params


@inputs("score_pairs")
def _score_inputs(plan: Plan, wc: Any) -> Files:
    return {
        "teacher": plan.chains.model(_teacher(plan, wc)),
        "mined": paths.mined(*plan.chains.mined(link_of(wc)).path_keys),
        "source": plan.labelled(*plan.chains.taught(link_of(wc))),
    }


@params("score_pairs")
def _score_params(plan: Plan, wc: Any) -> Params:
    protocol = plan.chains.trained(wc.model).protocol
    joined = {"title_join": plan.title_join(plan.chains.taught(link_of(wc))[0], protocol)}
    return plan.chains.scoring(_teacher(plan, wc)) | joined


def _teacher(plan: Plan, wc: Any) -> Link:
    teacher = plan.chains.stage(link_of(wc)).teacher
    assert teacher is not None, "only distilling stages have scores"
    return plan.chains.server(teacher, wc.scope)
