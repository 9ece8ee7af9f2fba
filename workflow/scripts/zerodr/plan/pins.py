"""Find models of the hub that planned jobs would fetch without a revision: a run resolves and locks them first."""

from collections.abc import Iterable
from pathlib import Path

from zerodr.config.methods import EncoderSettings
from zerodr.config.stages import FinetuneStage
from zerodr.config.starts import PACKAGE, SCRATCH
from zerodr.config.training import InitSettings
from zerodr.plan.plan import Plan

TRAIN, GENERATE = "train", "generate_queries"


def unpinned(plan: Plan, rule: str, method: str) -> list[str]:
    """List the hub models that a job fetches without a revision.

    Args:
        plan: the plan.
        rule: of the job; `import_model`, `init_model` and `generate_queries` fetch models.
        method: the job's wildcard `model`.
    """
    models: dict[str, str | None] = {}
    if rule == "import_model":
        settings = plan.bench.settings(method, EncoderSettings)
        models = {settings.model: settings.revision}
        if settings.document_model is not None:
            models[settings.document_model] = settings.document_revision
    elif rule == GENERATE:
        models = _writers(plan, method)
    elif rule == "init_model" and plan.chains.start_of_chain(method) is None:
        encoder = plan.chains.trained(method).encoder
        model = encoder.tokenizer if isinstance(encoder, InitSettings) and encoder.init == SCRATCH else encoder.init
        models = {model: encoder.revision}
    return [model for model, pin in models.items() if pin is None and _is_of_hub(model)]


def planned_writers(plan: Plan, jobs: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """List the hub's language models of planned jobs, with their commits.

    Their jobs run on a GPU, where there may be no way to the hub: a run fetches these models before its first job.

    Args:
        plan: the plan.
        jobs: (rule, wildcard `model`) of each.
    """
    methods = dict.fromkeys(method for rule, method in jobs if rule == GENERATE)
    return {model: pin for method in methods for model, pin in _writers(plan, method).items()}


def _writers(plan: Plan, method: str) -> dict[str, str | None]:
    stages = plan.chains.trained(method).chain.values()
    writers = [stage.generate.writer for stage in stages if isinstance(stage, FinetuneStage) and stage.generate]
    return {writer.model: writer.revision for writer in writers if writer and _is_of_hub(writer.model)}


def _is_of_hub(model: str) -> bool:
    return model != TRAIN and not model.startswith(PACKAGE) and not Path(model).exists()


def loose_models(plan: Plan, jobs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """List the hub models without a revision that planned jobs, (rule, wildcard `model`), fetch, each with a method."""
    models: dict[str, str] = {}
    for rule, method in jobs:
        for model in unpinned(plan, rule, method):
            models.setdefault(model, method)
    return models
