"""Plan workflow/rules/teachers.smk: cross-encoders that score pairs for distillation."""

from __future__ import annotations

from typing import Any

from zerodr.config.load import files_of_model
from zerodr.config.recipes import INIT
from zerodr.config.stages import LearningStage
from zerodr.config.training import HelperSettings, TeacherSettings
from zerodr.plan import paths
from zerodr.plan.lines import SCOPE, link_of
from zerodr.plan.plan import Plan
from zerodr.plan.registry import Files, Params, inputs, params

TEACHER = "teacher"


def teacher_settings(plan: Plan, name: str) -> TeacherSettings:
    """Settings of a teacher."""
    return plan.bench.settings(name, TeacherSettings)


def source_of_teacher(plan: Plan, name: str) -> str:
    """The collection that a teacher learns from."""
    return teacher_settings(plan, name).source or plan.source


def start_of_helper(plan: Plan, name: str) -> Files:
    """Inputs of the initial model of a teacher or reader: another recipe's model, or the files of a local folder."""
    init = plan.bench.settings(name, HelperSettings).init
    parent = plan.chains.parent_of(init)
    return {"parent": plan.chains.model(parent)} if parent is not None else {"files": files_of_model(init)}


def model_of_helper(plan: Plan, name: str, stage: str) -> str:
    """Manifest of a helper's finished model: of its one `stage`, or of `init` where it comes trained."""
    trained = plan.bench.settings(name, HelperSettings).training is None
    return paths.model(name, SCOPE, INIT if trained else stage)


@inputs("init_teacher")
def _init_inputs(plan: Plan, wc: Any) -> Files:
    return start_of_helper(plan, wc.model)


@params("init_teacher")
def _init_params(plan: Plan, wc: Any) -> Params:
    settings = teacher_settings(plan, wc.model)
    named = settings.model_dump(mode="json", include={"init", "revision", "layers", "max_tokens"})
    return named | {"trained": settings.training is None}


@inputs("train_teacher")
def _train_inputs(plan: Plan, wc: Any) -> Files:
    return {
        "teacher": paths.model(wc.model, SCOPE, INIT),
        "mined": paths.mined(wc.model, SCOPE, TEACHER),
        "source": paths.collection(source_of_teacher(plan, wc.model)),
    }


@params("train_teacher")
def _train_params(plan: Plan, wc: Any) -> Params:
    settings = teacher_settings(plan, wc.model)
    assert settings.training is not None, f"{wc.model} comes trained"
    stage = LearningStage(objective=settings.objective, training=settings.training)
    return {
        "settings": stage.model_dump(mode="json"),
        "schedule": {"stage": TEACHER, "stage_index": 0, "first_step": 0, "total_steps": settings.training.steps},
        "source_split": settings.source_split,
        "title_join": plan.title_join(source_of_teacher(plan, wc.model), settings.protocol),
        "gpus": plan.machines.training_gpus,
    }


def _teacher_of(plan: Plan, wc: Any) -> str:
    teacher = plan.chains.stage(link_of(wc)).teacher
    assert teacher is not None, "only distilling stages have scores"
    return teacher


@inputs("score_pairs")
def _score_inputs(plan: Plan, wc: Any) -> Files:
    return {
        "teacher": model_of_helper(plan, _teacher_of(plan, wc), TEACHER),
        "mined": paths.mined(*plan.chains.mined(link_of(wc)).place),
        "source": paths.collection(plan.chains.source_of(wc.model)),
    }


@params("score_pairs")
def _score_params(plan: Plan, wc: Any) -> Params:
    settings, teacher = plan.chains.trained(wc.model), teacher_settings(plan, _teacher_of(plan, wc))
    title_join = plan.title_join(plan.chains.source_of(wc.model), settings.protocol)
    return teacher.model_dump(mode="json", include={"precision", "batch_pairs"}) | {"title_join": title_join}
