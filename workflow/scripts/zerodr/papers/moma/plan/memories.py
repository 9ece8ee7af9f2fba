"""Plan memories: which model augments which queries, from which mixture, and the rules that search them.

An episode (a stage of kind `moma`) trains a main model on queries with the documents that the augmenter of the model
before retrieves (use `learning`), then its augmenter; whatever ranks with the model uses that one (use `search`).
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from zerodr.config.recipes import INIT
from zerodr.errors import ConfigError
from zerodr.papers.moma.checks import mixture, plugged_in
from zerodr.papers.moma.settings import SOURCE, TARGET, InferenceSettings, MemoryStage, inference_of
from zerodr.plan import paths
from zerodr.plan.dense import embedding
from zerodr.plan.lines import Link, link_of
from zerodr.plan.plan import Files, Params, Plan, embeds_queries, inputs, params, shard_numbers
from zerodr.plan.rules import RULES, VERSIONS, Need, Rule, encoding

LEARNING, SEARCH = "learning", "search"
HITS, WITH_SELF = "hits", "hits-with-self"
SAME_MODEL = "own"

VERSIONS |= {
    "papers.moma.embed_memory:embed_memory": 2,
    "papers.moma.embed_memory:embed_memory_queries": 2,
    "papers.moma.retriever:export_memory": 3,
}
RULES |= {
    "embed_memory": Rule(
        "papers.moma.embed_memory:embed_memory",
        "embed",
        encoding(6000, 3500, 30, 120, sharded=True),
        writes="embeddings",
    ),
    "embed_memory_queries": Rule(
        "papers.moma.embed_memory:embed_memory_queries", "embed", encoding(4000, 0, 30), writes="embeddings"
    ),
    "search_memory": Rule(
        "papers.moma.search_memory:search_memory",
        "search",
        Need(4000, 6500, 30, 120, threads=8, sharded=True),
        temporary=True,
    ),
    "merge_memories": Rule("papers.moma.search_memory:merge_memories", "merge", Need(6000, 100, 30, 10)),
    "embed_fused_queries": Rule(
        "papers.moma.embed_fused:embed_fused_queries",
        "embed",
        encoding(12000, 20000, 240, 1000),
        time="queries",
        writes="embeddings",
    ),
    "export_memory": Rule("papers.moma.retriever:export_memory", "export", Need(4000, 7000, 30, 30)),
}


# ---- episodes and augmenters -----------------------------------------------------------------------------------
def find_episode(plan: Plan, link: Link) -> MemoryStage | None:
    """Settings of a stage whose queries are augmented; None for other models."""
    stage = plan.chains.find_stage(link)
    return stage if isinstance(stage, MemoryStage) else None


def episode(plan: Plan, link: Link) -> MemoryStage:
    """Settings of a stage whose queries are augmented."""
    stage = find_episode(plan, link)
    assert stage is not None, f"{link.name} is no episode with memories"
    return stage


def has_augmenter(plan: Plan, link: Link) -> bool:
    """Whether a model has an augmenter apart; else it retrieves itself, without augmentation."""
    stage = find_episode(plan, link)
    return stage is not None and stage.augmenter.mode != SAME_MODEL


def named_augmenter(plan: Plan, link: Link) -> Link | None:
    """The frozen model that augments for an episode and its training; None where the episode names none."""
    stage = find_episode(plan, link)
    init = None if stage is None else stage.augmenter.init
    return None if init is None else plan.chains.parent_of(init, link.scope)


def augmenter_embeddings(plan: Plan, link: Link, collection: str, content: str, protocol: str | None = None) -> str:
    """Embeddings by a model's augmenter; one that is no network of its own reads under `protocol`, None: as trained."""
    link = named_augmenter(plan, link) or link
    if has_augmenter(plan, link):
        return paths.memory_embeddings(*link.path_keys, collection, content)
    protocol = protocol or plan.chains.trained(link.method).protocol
    return paths.embeddings(link.name, link.scope, collection, protocol, content)


def inference(plan: Plan, method: str) -> InferenceSettings:
    """Memories that are plugged in when a method ranks."""
    return inference_of(plan.chains.trained(method))


# ---- mixtures --------------------------------------------------------------------------------------------------
class QueryAugmentation(NamedTuple):
    """Augmentation of the queries of a split for a model.

    Attributes:
        memories: collections of the mixture, which are searched.
        named: the collections by which their documents are known, as `known_as` says, in the same order.
        documents: K, documents of each query.
        document_tokens: longest document.
        depth: ranks of the mixture: as many as negatives are looked for in, of training queries, else K.
        training: whether these are the queries that the chain learns from.
    """

    memories: list[str]
    named: list[str]
    documents: int
    document_tokens: int
    depth: int
    training: bool


def augmentation(plan: Plan, link: Link, use: str, collection: str, split: str) -> QueryAugmentation:
    """Find how the queries of a split are augmented for a use: as in training, or as `inference` says for targets.

    Raises:
        ConfigError: two memories are the same corpus, or they hold too few documents.
    """
    stage, source = episode(plan, link), plan.chains.source_of(link.method)
    training = (collection, split) == (source, plan.chains.trained(link.method).source_split)
    names: Sequence[str]
    names, documents, tokens = stage.memory.memories, stage.memory.documents, stage.memory.document_tokens
    if use == SEARCH and not training:
        ranking = inference(plan, link.method)
        names, documents = plugged_in(ranking, stage)
        tokens = ranking.document_tokens or tokens
    where = f"method {link.method}: memories of {collection}/{split}"
    memories = mixture(where, names, {SOURCE: source, TARGET: collection}, plan.bench.collections, documents)
    depth = max(documents, stage.augmenter.depth) if training else documents
    named = [known_as(plan, name, collection) for name in memories]
    return QueryAugmentation(memories, named, documents, tokens, depth, training)


def known_as(plan: Plan, memory: str, collection: str) -> str:
    """Return the collection by which a memory's documents are known where queries of a collection are augmented.

    A memory from the archive of the queries' own collection has its documents, and so its judgements: a relevant one is
    known as such.
    """
    rows = plan.bench.collections
    of_memory, of_queries = ((rows[name].archive, rows[name].member) for name in (memory, collection))
    return collection if of_memory[0] and of_memory == of_queries else memory


def title_joins(plan: Plan, memories: Sequence[str]) -> dict[str, str | None]:
    """Text that joins title and text, by memory."""
    return {name: plan.collection(name).title_join for name in memories}


def augmentation_files(plan: Plan, link: Link, use: str, collection: str, split: str) -> Files:
    """Inputs of whatever reads augmentation documents."""
    memories = augmentation(plan, link, use, collection, split).named
    rankings = paths.augmentations(*link.path_keys, use, collection, split)
    return {"rankings": rankings, "memories": [paths.collection(name) for name in memories]}


# ---- augmented queries -----------------------------------------------------------------------------------------
@embeds_queries("memory")
def _query_embeddings(plan: Plan, row: str, link: Link, collection: str, protocol: str, split: str) -> str:
    """Of the row's variant where it only ranks with other memories, else of the variant that trained the model."""
    variant = link._replace(method=row.partition("@")[0])
    plain, (asked, shared) = find_episode(plan, variant) is None, (inference(plan, n.method) for n in (variant, link))
    if not plain and asked.protocol != shared.protocol:
        problem = f"memories are embedded for {link.method}, whose model it shares, under another protocol"
        step = f"write a recipe `like: {link.method.partition('+')[0]}`, which trains a model"
        raise ConfigError(f"{variant.method}: inference.protocol", problem, step)
    taught = (plan.chains.source_of(link.method), plan.chains.trained(link.method).source_split)
    if asked.documents == 0 and (collection, split) != taught:  # questions of training are augmented as there
        return paths.embeddings(link.name, link.scope, collection, protocol, f"queries.{split}")
    return paths.fused_queries(*(link if plain or asked == shared else variant).path_keys, collection, protocol, split)


@inputs("embed_fused_queries")
def _fused_inputs(plan: Plan, wc: Any) -> Files:
    link = link_of(wc)
    model = plan.chains.model(plan.chains.link(link.name, link.scope))
    files = augmentation_files(plan, link, SEARCH, wc.collection, wc.split)
    return {"collection": paths.collection(wc.collection), "model": model} | files


@params("embed_fused_queries")
def _fused_params(plan: Plan, wc: Any) -> Params:
    link = link_of(wc)
    added = augmentation(plan, link, SEARCH, wc.collection, wc.split)
    return embedding(plan, wc.model, wc.collection, wc.protocol) | {
        "split": wc.split,
        "joins": title_joins(plan, added.named),
        "documents": added.documents,
        "document_limit": added.document_tokens,
        "exclude_positives": added.training and episode(plan, link).memory.exclude_positives,
    }


# ---- memories --------------------------------------------------------------------------------------------------
def pattern_of_augmenters(plan: Plan) -> str:
    """A wildcard constraint that matches every stage whose model may augment another's queries."""
    chains = [plan.chains.trained(name).chain for name in plan.chains.names()]
    names = {INIT, *(re.escape(name) for chain in chains for name in chain)}
    return rf"(?:{'|'.join(sorted(names))})(?:\.\d+)?"


def pattern_of_hits(plan: Plan) -> str:
    """A wildcard constraint that matches kinds of hits: with a protocol's name where targets are read under it."""
    return rf"(?:{HITS}|{WITH_SELF})(?:\.(?:{'|'.join(map(re.escape, sorted(plan.bench.protocols)))}))?"


@inputs("embed_memory", "embed_memory_queries")
def _embed_inputs(plan: Plan, wc: Any) -> Files:
    return {"collection": paths.collection(wc.collection), "model": plan.chains.model(plan.link(wc))}


def _embedding(plan: Plan, wc: Any, trained: bool) -> Params:
    """Params of texts that an augmenter reads: those of training with its own lengths."""
    protocol = plan.chains.trained(wc.model).protocol
    return embedding(
        plan, wc.model, wc.collection, protocol if trained else inference(plan, wc.model).protocol or protocol
    )


@params("embed_memory")
def _embed_params(plan: Plan, wc: Any) -> Params:
    source, stages = plan.chains.source_of(wc.model), plan.chains.trained(wc.model).chain.values()
    named = {name for stage in stages if isinstance(stage, MemoryStage) for name in stage.memory.memories}
    return _embedding(plan, wc, wc.collection in named | {source}) | shard_numbers(wc.shard)


@params("embed_memory_queries")
def _embed_queries_params(plan: Plan, wc: Any) -> Params:
    trained = (
        wc.collection == plan.chains.source_of(wc.model) and wc.split == plan.chains.trained(wc.model).source_split
    )
    return _embedding(plan, wc, trained) | {"split": wc.split}


@inputs("search_memory")
def _search_inputs(plan: Plan, wc: Any) -> Files:
    """Embeddings by the augmenter, the queries' collection, the memory."""
    link, protocol = plan.link(wc), wc.kind.partition(".")[2] or None
    of_memory = protocol if wc.memory == wc.collection else None  # other memories keep the lengths of training
    return {
        "queries": augmenter_embeddings(plan, link, wc.collection, f"queries.{wc.split}", protocol),
        "corpus": augmenter_embeddings(plan, link, wc.memory, f"corpus-{wc.shard}", of_memory),
        "collection": paths.collection(wc.collection),
        "memory": paths.collection(wc.memory),
    }


@params("search_memory")
def _search_params(plan: Plan, wc: Any) -> Params:
    stage = find_episode(plan, plan.link(wc))
    index = None if stage is None else stage.memory.search
    return ({} if index is None else index.model_dump(mode="json")) | {
        "collection": wc.collection,
        "split": wc.split,
        "memory": known_as(plan, wc.memory, wc.collection),
        "depth": int(wc.depth),
        "title_join": plan.collection(wc.memory).title_join,
        "exclude_self": wc.kind.partition(".")[0] == HITS,
        **shard_numbers(wc.shard),
    }


@inputs("merge_memories")
def _merge_inputs(plan: Plan, wc: Any) -> Files:
    """The hits in every shard of every memory, by the augmenter of the use."""
    link = link_of(wc)
    added, memory = augmentation(plan, link, wc.use, wc.collection, wc.split), episode(plan, link).memory
    before = plan.chains.parent(link) if wc.use == LEARNING else plan.chains.link(link.name, link.scope)
    augmenter = named_augmenter(plan, link) or named_augmenter(plan, before) or before
    kind = HITS if memory.exclude_self else WITH_SELF
    if wc.use == SEARCH and not added.training and not has_augmenter(plan, augmenter):
        kind += _read_under(plan, link, augmenter)
    hits = [
        paths.memory_hits(*augmenter.path_keys, kind, wc.collection, wc.split, added.depth, name, shard)
        for name in added.memories
        for shard in plan.shard_names("shard", name)
    ]
    memories = [paths.collection(name) for name in added.named]
    return {"hits": hits, "collection": paths.collection(wc.collection), "memories": memories}


def _read_under(plan: Plan, link: Link, augmenter: Link) -> str:
    """Return the ending of hits for which a model that is no augmenter of its own reads targets as a row asks."""
    asked = inference(plan, link.method).protocol
    return "" if asked in (None, plan.chains.trained(augmenter.method).protocol) else f".{asked}"


@params("merge_memories")
def _merge_params(plan: Plan, wc: Any) -> Params:
    added = augmentation(plan, link_of(wc), wc.use, wc.collection, wc.split)
    return {
        "collection": wc.collection,
        "split": wc.split,
        "memories": added.named,
        "depth": added.depth,
        "needed": added.documents,
    }


@inputs("export_memory")
def _export_inputs(plan: Plan, wc: Any) -> Files:
    """Documents, and their vectors by the augmenter of a row's model."""
    link = plan.chains.link(wc.model, wc.scope)
    assert find_episode(plan, link) is not None, f"{link.name} is no episode with memories"
    shards = plan.shard_names("corpus", wc.memory)
    trained = {*episode(plan, link).memory.memories, plan.chains.source_of(link.method)}
    protocol = None if wc.memory in trained else inference(plan, link.method).protocol
    vectors = [augmenter_embeddings(plan, link, wc.memory, shard, protocol) for shard in shards]
    return {"collection": paths.collection(wc.memory), "embeddings": vectors, "model": plan.chains.model(link)}


@params("export_memory")
def _export_params(plan: Plan, wc: Any) -> Params:
    return {"memory": wc.memory, "title_join": plan.collection(wc.memory).title_join}
