"""Plan workflow/rules/training.smk: the initial model, pretraining and fine-tuning stages, export."""

from collections.abc import Iterable
from typing import Any

from zerodr.config.load import files_of_model
from zerodr.config.recipes import INIT
from zerodr.config.stages import FinetuneStage
from zerodr.config.starts import SCRATCH
from zerodr.config.training import InitSettings, PairSettings
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.dense import corpus_embeddings, model_of
from zerodr.plan.lines import Link, link_of
from zerodr.plan.plan import ADDED_INPUTS, ADDED_PARAMS, Files, Params, Plan, adds_inputs, draws, inputs, params
from zerodr.plan.rules import facts_of


@inputs("init_model")
def _init_inputs(plan: Plan, wc: Any) -> Files:
    """Another recipe's model, texts for a tokenizer, or the files of a local folder."""
    encoder, scope = plan.chains.trained(wc.model).encoder, plan.link(wc, INIT).scope
    parent = plan.chains.parent_of(encoder.init, scope)
    if parent is not None:
        return {"parent": plan.chains.model(parent)}
    if not isinstance(encoder, InitSettings) or encoder.init != SCRATCH:
        return {"files": files_of_model(encoder.init)}
    if encoder.tokenizer == "train":
        return {"source": paths.collection(plan.chains.source_of(wc.model))}
    return {"files": files_of_model(encoder.tokenizer)}


@params("init_model")
def _init_params(plan: Plan, wc: Any) -> Params:
    encoder = plan.chains.encoder(wc.model)
    if isinstance(encoder, PairSettings):
        trained = encoder.trained or not plan.chains.trained(wc.model).chain
        return encoder.model_dump(mode="json", exclude={"batch_pairs"}) | {"trained": trained}
    unused = set() if encoder.init == SCRATCH else {"architecture", "tokenizer"}
    return encoder.model_dump(mode="json", exclude={"type", *unused})


@draws("init_model")
def _init_draws(plan: Plan, wc: Any) -> bool:
    encoder = plan.chains.encoder(wc.model)
    return not isinstance(encoder, InitSettings) or encoder.init == SCRATCH or encoder.head != "none"


@inputs("finetune")
def finetune_inputs(plan: Plan, wc: Any) -> Files:
    """The parent model, mined queries, the source, scores where the objective distils, and what papers add."""
    link = plan.link(wc)
    stage = plan.chains.find_stage(link)
    files = {"model": plan.chains.model(plan.chains.parent(link)), "source": plan.labelled(*plan.chains.taught(link))}
    if isinstance(stage, FinetuneStage):
        files["mined"] = paths.mined(*plan.chains.mined(link).path_keys)
    if isinstance(stage, FinetuneStage) and stage.teacher not in (None, stage.negatives.source):
        files["scored"] = paths.scored(*plan.chains.scored(link).path_keys)
    return files | plan.added(ADDED_INPUTS, "finetune", link)


@params("finetune")
def finetune_params(plan: Plan, wc: Any) -> Params:
    """The stage's settings, its place in the schedule, and what papers add."""
    link, settings = link_of(wc), plan.chains.trained(wc.model)
    source, split = plan.chains.taught(link)
    return {
        **({} if settings.ranks else {"encoder": settings.encoder.type}),
        "settings": settings.chain[link.stage].model_dump(mode="json"),
        "schedule": plan.chains.schedule(link),
        "save_optimizer": plan.chains.keeps_moments(link),
        "source_split": split,
        "title_join": plan.collection(source).title_join,
        "gpus": plan.machines.training_gpus,
        **plan.added(ADDED_PARAMS, "finetune", link),
    }


@adds_inputs("finetune", "keep_index")
def _frozen_vectors(plan: Plan, link: Link) -> Files:
    """Embeddings of the target's documents that stay as they are."""
    name, protocol = plan.chains.only_member(link.scope), plan.chains.trained(link.method).protocol
    shards = plan.shard_names("corpus", name)
    return {"vectors": [corpus_embeddings(plan, link, name, protocol, shard) for shard in shards]}


@inputs("take_step")
def _step_inputs(plan: Plan, wc: Any) -> Files:
    return {"model": plan.chains.model(link_of(wc))}


@params("take_step")
def _step_params(plan: Plan, wc: Any) -> Params:
    return {"step": int(wc.step)}


@inputs("export_model")
def _export_inputs(plan: Plan, wc: Any) -> Files:
    return {"model": model_of(plan, wc.model, wc.scope)}


@params("export_model")
def _export_params(plan: Plan, wc: Any) -> Params:
    """Licences of the collections that the model learned from, and what papers add for its last stage."""
    names = [plan.chains.source_of(wc.model), *plan.chains.members(wc.scope)]
    last = Link(wc.model.partition("@")[0], plan.chains.last(wc.model))
    added = plan.added(ADDED_PARAMS, "export_model", last)
    names += added.pop("learned_from", [])
    licences = {name: plan.collection(name).licence for name in names}
    return {"model": wc.model, "scope": wc.scope, "licences": licences} | added


# ---- texts alone -------------------------------------------------------------------------------------------------
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
    """The parent model, and spans of corpora or whole corpora.

    Raises:
        ConfigError: no corpus is left to learn from.
    """
    link = plan.link(wc)
    model, corpora = plan.chains.model(plan.chains.parent(link)), plan.chains.corpora(link)
    if not corpora:
        gated = ", ".join(plan.chains.left_out(link))
        what = f"{gated} gated and not available" if gated else "`without` leaves out all of them"
        step = f"name others in `corpora`{', or put them into a mirror folder and name them in `gated`' * bool(gated)}"
        raise ConfigError(link.name, f"has no corpus to learn from: {what}", step)
    if plan.chains.pretraining(link).cut is None:
        return {"model": model, "collections": [paths.collection(name) for name in corpora]}
    cut = plan.chains.cut(link)
    return {"model": model, "spans": [paths.spans(*cut.path_keys, name) for name in corpora]}


@params("pretrain")
def _pretrain_params(plan: Plan, wc: Any) -> Params:
    link = link_of(wc)
    stage = plan.chains.pretraining(link)
    return {
        "settings": stage.model_dump(mode="json"),
        "schedule": plan.chains.schedule(link),
        "title_join": plan.collection(plan.chains.source_of(wc.model)).title_join,
        "left_out": plan.chains.left_out(link),
        "gpus": plan.machines.training_gpus,
    }


def uneven_batches(plan: Plan, jobs: Iterable[tuple[str, Any]]) -> str:
    """Return the line on trainings that stop because the GPUs can't share their batches equally; empty without.

    Args:
        jobs: rule and wildcards of each planned job.
    """
    gpus, batches = plan.machines.training_gpus, dict[str, int]()
    for rule, wildcards in jobs if gpus > 1 else ():
        stage = plan.chains.find_stage(link_of(wildcards)) if facts_of(rule).trains else None
        training = getattr(stage, "training", None)
        if training is not None and training.batch_queries % (gpus * training.accumulation):
            batches[f"{wildcards.model}@{wildcards.stage}"] = training.batch_queries
    listed = ", ".join(f"{name} ({batch})" for name, batch in batches.items())
    return listed and (
        f"{gpus} GPUs can't share these batches equally, so these trainings will stop: {listed}. Run them with gpus=1, "
        f"or a variant of each whose training.batch_queries is a multiple of {gpus} (set=)"
    )
