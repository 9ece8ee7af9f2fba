"""Plan workflow/rules/feedback.smk: attention to documents learned on the source, queries that read documents."""

from types import SimpleNamespace
from typing import Any

from zerodr.config.feedback import AttentionTraining, FeedbackSettings
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.dense import embeddings_for, searched_queries
from zerodr.plan.lexical import ranking
from zerodr.plan.lines import SCOPE
from zerodr.plan.mining import mining_embeddings, mining_queries
from zerodr.plan.plan import Files, Params, Plan, inputs, params


@inputs("learn_attention")
def _learning_inputs(plan: Plan, wc: Any) -> Files:
    """Return the vectors of the source's questions and documents, and what the memory finds for these questions."""
    settings, training = _learned(plan, wc.model)
    of_model = SimpleNamespace(model=settings.model, scope=SCOPE, collection=plan.source, split=training.source_split)
    shards = plan.shard_names("corpus", plan.source)
    where = (settings.memory, SCOPE, plan.source, training.source_split, training.depth)
    return {
        "queries": mining_queries(plan, of_model),
        "corpus": [mining_embeddings(plan, of_model, shard) for shard in shards],
        "ranking": paths.candidates(*where),
        "collection": plan.labelled(plan.source, training.source_split),
    }


@params("learn_attention")
def _learning_params(plan: Plan, wc: Any) -> Params:
    settings, _ = _learned(plan, wc.model)
    alone = {"exclude_self": True} if plan.collection(plan.source).exclude_self else {}
    return {"collection": plan.source} | settings.model_dump(mode="json", exclude={"model", "memory"}) | alone


def _learned(plan: Plan, name: str) -> tuple[FeedbackSettings, AttentionTraining]:
    """Settings of a feedback method and of its attention's training.

    Raises:
        ConfigError: it learns none.
    """
    settings = plan.bench.settings(name, FeedbackSettings)
    if settings.attention is None:
        raise ConfigError(f"method {name}", "learns no attention", "give it settings.attention")
    return settings, settings.attention


@inputs("augment_queries")
def _augment_inputs(plan: Plan, wc: Any) -> Files:
    """Return the vectors of queries and documents, the ranking that names the documents to add, learned attention."""
    settings = plan.bench.settings(wc.model, FeedbackSettings)
    shards = plan.shard_names("corpus", wc.collection)
    learned = {} if settings.attention is None else {"attention": paths.learned_attention(wc.model)}
    return learned | {
        "queries": searched_queries(plan, settings.model, wc.collection, wc.protocol),
        "corpus": [embeddings_for(plan, settings.model, wc.collection, shard, wc.protocol) for shard in shards],
        "run": paths.run(settings.memory, wc.collection, wc.protocol),
        "collection": paths.collection(wc.collection),
    }


@params("augment_queries")
def _augment_params(plan: Plan, wc: Any) -> Params:
    settings = plan.bench.settings(wc.model, FeedbackSettings).model_dump(mode="json", exclude={"model", "attention"})
    return settings | ranking(plan, wc, "language", "depth")
