"""Plan the episodes of MoMA: main model, its attention, the augmenter that learns it, and the items that show them."""

from types import SimpleNamespace
from typing import Any

from zerodr.config.methods import LexicalSettings
from zerodr.config.training import ObjectiveSettings
from zerodr.errors import ConfigError
from zerodr.papers.moma.checks import plugged_in
from zerodr.papers.moma.items import CasesItem, ComponentsItem, SharesItem
from zerodr.papers.moma.plan.memories import (
    LEARNING,
    SEARCH,
    augmentation,
    augmentation_files,
    augmenter_embeddings,
    episode,
    find_episode,
    has_augmenter,
    inference,
    named_augmenter,
    title_joins,
)
from zerodr.papers.moma.settings import SOURCE, AugmenterStage, MemoryStage, Selection
from zerodr.plan import paths
from zerodr.plan.dense import embedding
from zerodr.plan.items import Reads, reads
from zerodr.plan.lexical import ranking
from zerodr.plan.lines import SCOPE, Link, link_of
from zerodr.plan.plan import Files, Params, Plan, adds_params, inputs, params, remarks
from zerodr.plan.rules import ADDITIONS, RULES, VERSIONS, Need, Rule, training
from zerodr.plan.targets import Placeholder, Target, add_targets
from zerodr.plan.training import finetune_params

LEXICAL = "bm25-flat"  # whose time stands next to the model's
TIMING = Need(12000, 20000, 60, gpu=True)
READING = Need(12000, 40000, 240, 1000, threads=8, gpu=True)
VERSIONS |= {
    "papers.moma.measure_attention:measure_attention": 3,
    "papers.moma.augmenter:mine_memories": 2,
    "papers.moma.augmenter:train_augmenter": 2,
    "papers.moma.measure_attention:measure_shares": 2,
}
ADDITIONS |= {"memory": 1, "objective.adist": 1}
RULES |= {
    "train_main": training("training.finetune:finetune", 24000, 1440),
    "measure_attention": Rule("papers.moma.measure_attention:measure_attention", "measure", READING, time="queries"),
    "mine_memories": Rule("papers.moma.augmenter:mine_memories", "mine", Need(16000, 0, 120), seeded=True),
    "train_augmenter": training("papers.moma.augmenter:train_augmenter", 12000, 1440),
    "join_components": Rule(
        "papers.moma.augmenter:join_components", "assemble", Need(4000, 0, 30), writes="model", brief=True
    ),
    "measure_latency": Rule("papers.moma.embed_fused:measure_latency", "measure", TIMING),
    "measure_shares": Rule("papers.moma.measure_attention:measure_shares", "measure", Need(8000, 500, 60)),
}


def learning_queries(plan: Plan, link: Link) -> tuple[str, str, str]:
    """Use, source and split of the queries that an episode learns from."""
    return LEARNING, plan.chains.source_of(link.method), plan.chains.trained(link.method).source_split


# ---- the main model --------------------------------------------------------------------------------------------
@inputs("train_main")
def _main_inputs(plan: Plan, wc: Any) -> Files:
    link = plan.link(wc)
    queries = learning_queries(plan, link)
    return {
        "model": plan.chains.model(plan.chains.parent(link)),
        "mined": paths.mined(*plan.chains.mined(link).path_keys),
        "source": paths.collection(queries[1]),
    } | augmentation_files(plan, link, *queries)


@params("train_main")
def _main_params(plan: Plan, wc: Any) -> Params:
    link = link_of(wc)
    memories = augmentation(plan, link, *learning_queries(plan, link)).named
    return finetune_params(plan, wc) | {"joins": title_joins(plan, memories)}


@inputs("measure_attention")
def _attention_inputs(plan: Plan, wc: Any) -> Files:
    """Of training queries, those that were mined."""
    link = link_of(wc)
    files = {"collection": paths.collection(wc.collection)}
    files |= augmentation_files(plan, link, wc.use, wc.collection, wc.split)
    if wc.use == LEARNING:
        main, mined = paths.component(*link.path_keys, "main"), paths.mined(*plan.chains.mined(link).path_keys)
        return files | {"model": main, "mined": mined}
    return files | {"model": plan.chains.model(plan.chains.link(link.name, link.scope))}


@params("measure_attention")
def _attention_params(plan: Plan, wc: Any) -> Params:
    link = link_of(wc)
    added, memory = augmentation(plan, link, wc.use, wc.collection, wc.split), episode(plan, link).memory
    return {
        "split": wc.split,
        "joins": title_joins(plan, added.named),
        "documents": added.documents,
        "document_tokens": added.document_tokens,
        "aggregation": memory.aggregation,
        "exclude_positives": memory.exclude_positives and added.training,
        "source": wc.collection,
        "precision": plan.chains.trained(link.method).precision,
    }


# ---- the augmenter ---------------------------------------------------------------------------------------------
@inputs("mine_memories")
def _learned_inputs(plan: Plan, wc: Any) -> Files:
    link = link_of(wc)
    queries = learning_queries(plan, link)
    attention, source = paths.attention(*link.path_keys, *queries), paths.collection(queries[1])
    return {"attention": attention, "source": source} | augmentation_files(plan, link, *queries)


@params("mine_memories")
def _learned_params(plan: Plan, wc: Any) -> Params:
    link = link_of(wc)
    augmenter, queries = episode(plan, link).augmenter, learning_queries(plan, link)
    memories = dict.fromkeys([*augmentation(plan, link, *queries).named, queries[1]])
    chosen = augmenter.model_dump(mode="json", include={"selected", "depth", "count"})
    return (
        chosen
        | Selection.retired
        | {
            "source": queries[1],
            "split": queries[2],
            "joins": title_joins(plan, list(memories)),
            "distils": augmenter.distils,
            "stage_index": list(plan.chains.trained(link.method).chain).index(link.stage),
        }
    )


@inputs("train_augmenter")
def _augmenter_inputs(plan: Plan, wc: Any) -> Files:
    link = plan.link(wc)
    return {"model": plan.chains.model(plan.chains.parent(link)), "learned": paths.learned(*link.path_keys)}


@params("train_augmenter")
def _augmenter_params(plan: Plan, wc: Any) -> Params:
    link = link_of(wc)
    stage, chains = episode(plan, link), plan.chains
    objective: ObjectiveSettings = stage.augmenter.objective or stage.objective
    if stage.augmenter.distils:
        objective = objective.model_copy(update={"negatives_per_query": stage.memory.documents})
    settings = {"objective": objective.model_dump(), "training": stage.training.model_dump()}
    return {
        "settings": AugmenterStage.model_validate(settings).model_dump(mode="json"),
        "schedule": chains.schedule(link),  # of the main model, which is trained for as many steps
        "save_optimizer": chains.keeps_moments(link),
        "source_split": chains.trained(link.method).source_split,
        "title_join": None,
        "gpus": plan.machines.training_gpus,
        "parent_learned": has_augmenter(plan, chains.parent(link)),
    }


# ---- both ------------------------------------------------------------------------------------------------------
def _frozen(plan: Plan, link: Link) -> Link:
    """The model whose augmenter an episode does not train."""
    return named_augmenter(plan, link) or plan.chains.parent(link)


@inputs("join_components")
def _join_inputs(plan: Plan, wc: Any) -> Files:
    link = plan.link(wc)
    mode, main = episode(plan, link).augmenter.mode, paths.component(*link.path_keys, "main")
    if mode == "learned":
        return {"main": main, "augmenter": paths.component(*link.path_keys, "augmenter")}
    return {"main": main} | ({"parent": plan.chains.model(_frozen(plan, link))} if mode == "frozen" else {})


@params("join_components")
def _join_params(plan: Plan, wc: Any) -> Params:
    return {"parent_learned": has_augmenter(plan, _frozen(plan, link_of(wc)))}


@inputs("measure_shares")
def _shares_inputs(plan: Plan, wc: Any) -> Files:
    link, queries = link_of(wc), (wc.use, wc.collection, wc.split)
    memories = augmentation(plan, link, *queries).named
    return {
        "attention": paths.attention(*link.path_keys, *queries),
        "collection": paths.collection(wc.collection),
        "memories": [paths.collection(name) for name in memories],
    }


@params("measure_shares")
def _shares_params(plan: Plan, wc: Any) -> Params:
    memories = augmentation(plan, link_of(wc), wc.use, wc.collection, wc.split).named
    joins = title_joins(plan, memories)
    return {"collection": wc.collection, "split": wc.split, "evaluated": wc.use == SEARCH, "joins": joins}


@inputs("measure_latency")
def _latency_inputs(plan: Plan, wc: Any) -> Files:
    """The model with the documents of its queries, the vectors that they search, and BM25's index."""
    link, protocol = link_of(wc), plan.config.protocol
    shards = [
        paths.embeddings(link.name, link.scope, wc.collection, protocol, s)
        for s in plan.shard_names("corpus", wc.collection)
    ]
    lexical = plan.bench.settings(LEXICAL, LexicalSettings)
    return {
        "collection": paths.collection(wc.collection),
        "model": plan.chains.model(link),
        "corpus": shards,
        "index": paths.bm25_index(f"{lexical.backend}-{lexical.fields}", wc.collection),
        "memory_vectors": [
            augmenter_embeddings(plan, link, name, shard)
            for name in augmentation(plan, link, SEARCH, wc.collection, wc.split).memories
            for shard in plan.shard_names("corpus", name)
        ],
        **augmentation_files(plan, link, SEARCH, wc.collection, wc.split),
    }


@params("measure_latency")
def _latency_params(plan: Plan, wc: Any) -> Params:
    link, protocol = link_of(wc), plan.config.protocol
    added = augmentation(plan, link, SEARCH, wc.collection, wc.split)
    named = SimpleNamespace(collection=wc.collection, protocol=protocol)
    return embedding(plan, wc.model, wc.collection, protocol) | {
        "split": wc.split,
        "joins": title_joins(plan, added.named),
        "documents": added.documents,
        "document_limit": added.document_tokens,
        "shards": {name: len(plan.shard_names("corpus", name)) for name in added.memories},
        "separate": has_augmenter(plan, link),
        "lexical": plan.method(LEXICAL).settings.model_dump(mode="json") | ranking(plan, named),
    }


# ---- rows ------------------------------------------------------------------------------------------------------
def _last_episode(plan: Plan, row: str) -> MemoryStage | None:
    """The stage that makes a trained row's model, where its queries are augmented."""
    return find_episode(plan, Link(row.partition("@")[0], plan.chains.last(row)))


def _plugged_in(plan: Plan, method: str, stage: MemoryStage) -> tuple[list[str], int]:
    """Memories that augment the queries of targets, `target` for the target itself, and K."""
    names, documents = plugged_in(inference(plan, method), stage)
    source = plan.chains.source_of(method)
    return list(dict.fromkeys(source if name == SOURCE else name for name in names)), documents


@adds_params("export_model", "memory")
def _augmented_export(plan: Plan, link: Link) -> Params:
    """Memories that the model learned from, and what augments its queries."""
    memory = episode(plan, link).memory
    names, documents = _plugged_in(plan, link.method, episode(plan, link))
    learned = {"learned_from": [name for name in memory.memories if name != SOURCE]}
    if not documents:
        return learned
    return learned | {
        "augmentation": {
            "memories": names,
            "documents": documents,
            "document_tokens": inference(plan, link.method).document_tokens or memory.document_tokens,
            "exclude_self": memory.exclude_self,
        },
    }


@remarks
def _memories_of_row(plan: Plan, name: str) -> list[str]:
    stage = _last_episode(plan, name)
    if stage is None:
        return []
    names, documents = _plugged_in(plan, name.partition("@")[0], stage)
    if not documents:
        return ["learned with augmented queries, ranks without"]
    return [f"queries are augmented with {documents} documents of: {', '.join(names)}"]


def augmented_rows(plan: Plan) -> list[str]:
    """Trained rows, not adapted to targets, whose queries are augmented."""
    rows = [name for name, method in plan.bench.methods.items() if method.kind == "trained"]
    return [name for name in rows if _last_episode(plan, name) is not None and not plan.chains.is_adapted(name)]


add_targets(
    Target(paths.exported_memory("{augmented}", SCOPE, "{collection}"), "a memory for its search from Python"),
    augmented=Placeholder(augmented_rows, "{trained} whose chain ends with stages of kind moma, such as moma-t5ance"),
)


# ---- items -----------------------------------------------------------------------------------------------------
def stages_of(plan: Plan, method: str) -> list[str]:
    """Stages with memories in a method's line.

    Raises:
        ConfigError: the method has none.
    """
    line = plan.chains.line(method, plan.chains.last(method))
    stages = [name for name in line if find_episode(plan, Link(method, name)) is not None]
    if not stages:
        raise ConfigError(
            f"method {method}",
            "has no stage of kind moma, so no memories to look at",
            "name a method with one, such as moma-t5ance",
        )
    return stages


def _shares(plan: Plan, links: list[Link], use: str, splits: dict[str, str], file: str = "shares.tsv") -> list[str]:
    """Shares of memories or cases, by episode and collection."""
    return [
        paths.shares(*link.path_keys, use, collection, split, file)
        for link in links
        for collection, split in splits.items()
    ]


@reads(SharesItem)
def _shares_item(plan: Plan, item: SharesItem, targets: list[str]) -> Reads:
    """A variant that only ranks otherwise shares the training."""
    stages = stages_of(plan, item.method)
    links = [Link(item.method, stage) for stage in stages]
    source = {plan.source: plan.chains.trained(item.method).source_split}
    evaluated = {name: plan.collection(name).evaluation_split for name in targets}
    files = {
        "learning": _shares(plan, [plan.chains.link(link.name) for link in links], LEARNING, source),
        "search": _shares(plan, links, SEARCH, evaluated),
    }
    return Reads(named=[item.method], stages={item.method: stages}, files=files)


@reads(CasesItem)
def _cases_item(plan: Plan, item: CasesItem, targets: list[str]) -> Reads:
    link = Link(item.method, stages_of(plan, item.method)[-1])
    source = {plan.source: plan.chains.trained(item.method).source_split}
    evaluated = {name: plan.collection(name).evaluation_split for name in targets}
    files = {
        "learning": _shares(plan, [plan.chains.link(link.name)], LEARNING, source, "cases.tsv"),
        "search": _shares(plan, [link], SEARCH, evaluated, "cases.tsv"),
    }
    return Reads(named=[item.method], files=files)


@reads(ComponentsItem)
def _components_item(plan: Plan, item: ComponentsItem, targets: list[str]) -> Reads:
    stages = {name: stages_of(plan, name) for name in item.methods}
    links = [plan.chains.link(f"{name}@{stage}") for name, names in stages.items() for stage in names]
    learned = [link for link in links if episode(plan, link).augmenter.mode == "learned"]
    files = {
        "main": [paths.component(*link.path_keys, "main") for link in links],
        "augmenter": [paths.component(*link.path_keys, "augmenter") for link in learned],
    }
    return Reads(named=list(item.methods), stages=stages, files=files)
