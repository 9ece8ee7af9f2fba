"""Plan a mixture over vectors that stay: episodes on the source, queries of targets that read memories."""

from typing import Any

from zerodr.config.feedback import MixtureSettings
from zerodr.errors import ConfigError
from zerodr.papers.moma.checks import mixture
from zerodr.papers.moma.items import MixturesItem
from zerodr.papers.moma.settings import SOURCE
from zerodr.plan import paths
from zerodr.plan.dense import embeddings_for, searched_queries
from zerodr.plan.items import Reads, counterparts, judged_split, reads
from zerodr.plan.lexical import ranking
from zerodr.plan.mining import PROTOCOL
from zerodr.plan.plan import Files, Params, Plan, inputs, params
from zerodr.plan.rules import RULES, Need, Rule

RULES |= {
    "learn_mixture": Rule(
        "papers.moma.learn_mixture:learn_mixture", "augment", Need(6000, 8000, 60, threads=8), seeded=True
    ),
    "read_memories": Rule(
        "papers.moma.read_memories:read_memories", "augment", Need(6000, 8000, 30, threads=8), reads="queries"
    ),
}


def _memories(plan: Plan, method: str, target: str, protocol: str) -> Files:
    """Return embeddings and manifests of the mixture, in which a target stands for the source."""
    settings, names = plan.bench.settings(method, MixtureSettings), _named(plan, method, target)
    shards = [(name, shard) for name in names for shard in plan.shard_names("corpus", name)]
    vectors = [embeddings_for(plan, settings.model, name, shard, protocol) for name, shard in shards]
    return {"memories": vectors, "collections": [paths.collection(name) for name in names]}


def _named(plan: Plan, method: str, target: str) -> list[str]:
    """List the collections of a mixture, each once.

    Raises:
        ConfigError: two are the same corpus.
    """
    asked, where = plan.bench.settings(method, MixtureSettings).memories, f"method {method}: memories of {target}"
    return mixture(where, asked, {SOURCE: target}, plan.bench.collections, 0)


def _held_out(plan: Plan, method: str) -> str:
    """Name the split of the source whose questions show what an episode changed.

    Raises:
        ConfigError: its questions teach.
    """
    split = judged_split(plan, plan.source)
    if split == plan.bench.settings(method, MixtureSettings).attention.source_split:
        problem = f"{split} is also the split whose questions show what an episode changed, which may not teach"
        others = " or ".join(name for name in plan.collection(plan.source).splits if name != split)
        step = f"take {others}" if others else "take another source"
        raise ConfigError(f"method {method}: attention.source_split of {plan.source}", problem, step)
    return split


@inputs("learn_mixture")
def _learning_inputs(plan: Plan, wc: Any) -> Files:
    settings, source = plan.bench.settings(wc.model, MixtureSettings), plan.source
    splits = {"queries": settings.attention.source_split, "held_out": _held_out(plan, wc.model)}
    asked = {
        name: embeddings_for(plan, settings.model, source, f"queries.{split}", PROTOCOL)
        for name, split in splits.items()
    }
    shards = plan.shard_names("corpus", source)
    corpus = [embeddings_for(plan, settings.model, source, shard, PROTOCOL) for shard in shards]
    return (
        asked | {"corpus": corpus, "collection": paths.collection(source)} | _memories(plan, wc.model, source, PROTOCOL)
    )


@params("learn_mixture")
def _learning_params(plan: Plan, wc: Any) -> Params:
    settings = plan.bench.settings(wc.model, MixtureSettings).model_dump(mode="json", exclude={"model"})
    alone = {"exclude_self": True} if plan.collection(plan.source).exclude_self else {}
    return settings | {"collection": plan.source, "held_out_split": _held_out(plan, wc.model)} | alone


@inputs("read_memories")
def _reading_inputs(plan: Plan, wc: Any) -> Files:
    model = plan.bench.settings(wc.model, MixtureSettings).model
    return {
        "queries": searched_queries(plan, model, wc.collection, wc.protocol),
        "collection": paths.collection(wc.collection),
        "attention": paths.learned_attention(wc.model),
    } | _memories(plan, wc.model, wc.collection, wc.protocol)


@params("read_memories")
def _reading_params(plan: Plan, wc: Any) -> Params:
    settings = plan.bench.settings(wc.model, MixtureSettings)
    named = {"memories": _named(plan, wc.model, wc.collection), "documents": settings.documents}
    return named | ranking(plan, wc, "language", "depth")


@reads(MixturesItem)
def _mixtures_item(plan: Plan, item: MixturesItem, targets: list[str]) -> Reads:
    """Read what each episode changed, of all seeds."""
    seeds = counterparts(plan, list(item.methods))
    learned = [paths.learned_attention(one["names"][name]) for name in item.methods for one in seeds]
    return Reads(named=list(item.methods), files={"learned": learned}, values=seeds)
