"""Plan what MoMA's items tell of sizes of memories and of hours, which jobs record (tables 3, 9 and 11)."""

from zerodr.config.methods import LexicalSettings
from zerodr.papers.moma.items import HoursItem, LatencyItem, MemoriesItem
from zerodr.papers.moma.plan.episodes import LEXICAL, learning_queries, stages_of
from zerodr.papers.moma.plan.memories import augmentation, augmenter_embeddings, episode
from zerodr.plan import paths
from zerodr.plan.dense import corpus_embeddings
from zerodr.plan.items import Reads, reads
from zerodr.plan.lines import Link
from zerodr.plan.plan import Plan


@reads(LatencyItem)
def _latency_item(plan: Plan, item: LatencyItem, targets: list[str]) -> Reads:
    """Times of components, and the index and the vectors whose records tell the hours of whole corpora."""
    link = plan.chains.link(f"{item.method}@{stages_of(plan, item.method)[-1]}")
    splits = {name: plan.collection(name).evaluation_split for name in targets}
    lexical = plan.bench.settings(LEXICAL, LexicalSettings)
    index, protocol = f"{lexical.backend}-{lexical.fields}", plan.config.protocol
    files = {
        "latency": [paths.latency(*link.path_keys, name, split) for name, split in splits.items()],
        "lexical": [paths.bm25_index(index, name) for name in targets],
        "corpus": [
            paths.embeddings(link.name, link.scope, name, protocol, shard)
            for name in targets
            for shard in plan.shard_names("corpus", name)
        ],
    }
    return Reads(named=[item.method], files=files)


@reads(MemoriesItem)
def _memories_item(plan: Plan, item: MemoriesItem, targets: list[str]) -> Reads:
    """Memories that queries of the source are augmented with in training."""
    links = [Link(method, stages_of(plan, method)[-1]) for method in item.methods]
    named = [name for link in links for name in augmentation(plan, link, *learning_queries(plan, link)).memories]
    memories = list(dict.fromkeys(named))
    files = {
        "statistics": [paths.statistics(name) for name in memories],
        "collections": [paths.collection(name) for name in memories],
    }
    return Reads(named=list(item.methods), files=files)


@reads(HoursItem)
def _hours_item(plan: Plan, item: HoursItem, targets: list[str]) -> Reads:
    """Components that episodes train, and the vectors that these are trained with: of the source, of all memories."""
    stages = stages_of(plan, item.method)
    links = [plan.chains.link(f"{item.method}@{stage}") for stage in stages]
    learned = [link for link in links if episode(plan, link).augmenter.mode == "learned"]
    source, protocol = plan.chains.source_of(item.method), plan.chains.trained(item.method).protocol
    parents = [plan.chains.parent(link) for link in links]
    files = {
        "main": [paths.component(*link.path_keys, "main") for link in links],
        "augmenter": [paths.component(*link.path_keys, "augmenter") for link in learned],
        "index": [
            corpus_embeddings(plan, parent, source, protocol, shard)
            for parent in parents
            for shard in plan.shard_names("corpus", source)
        ],
        "memory_index": [
            augmenter_embeddings(plan, parent, name, shard)
            for parent, link in zip(parents, links, strict=True)
            for name in augmentation(plan, link, *learning_queries(plan, link)).memories
            for shard in plan.shard_names("corpus", name)
        ],
    }
    return Reads(named=[item.method], stages={item.method: stages}, files=files)
