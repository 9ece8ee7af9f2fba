"""Inputs and settings of models whose queries are augmented with documents of memories. Part of `Plan`.

An episode (a stage of kind `moma`) trains a main model on queries with the documents that the augmenter of the model
before finds (`learning`), then its own augmenter; whatever ranks with the model finds documents with that (`search`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from zerodr.config.methods import TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.papers.moma.mixtures import mixture, plugged_in
from zerodr.papers.moma.settings import SOURCE, TARGET, MemoryStage
from zerodr.plan import paths
from zerodr.plan.lines import Link
from zerodr.plan.training import TrainingStages

LEARNING, SEARCH = "learning", "search"
HITS, WITH_SELF = "hits", "hits-with-self"
OWN = "own"
MINING_PROTOCOL = "standard"


class MemoryStages(TrainingStages):
    """What the rules of workflow/rules/memory.smk ask for."""

    def shard_names(self, kind: str, name: str) -> list[str]:
        """Names of all parts of a collection's corpus."""
        raise NotImplementedError

    def embeddings_for(self, wc: Any, part: str, protocol: str | None = None) -> str:
        """The embeddings that the method of wildcards `wc` searches."""
        raise NotImplementedError

    def _embedding(self, wc: Any) -> dict:
        raise NotImplementedError

    def pattern_of_augmenters(self) -> str:
        """A wildcard constraint that matches every stage whose model may augment another's queries."""
        chains = [self.chains.trained(name).chain for name in self.chains.names()]
        names = {INIT, *(re.escape(name) for chain in chains for name in chain)}
        return rf"(?:{'|'.join(sorted(names))})(?:\.\d+)?"

    # ---- whose queries are searched with -----------------------------------------------------------------------
    def query_embeddings(self, wc: Any) -> str:
        """The embeddings of the queries that are evaluated, augmented where the model's are."""
        split = self.bench.collections[wc.collection].evaluation_split
        if isinstance(self.bench.methods[wc.model], TrainedMethod):
            link = self.chains.ranker(wc.model, wc.collection)
            fused = self.fused_queries(wc.model, link, wc.collection, wc.protocol, split)
            if fused is not None:
                return fused
        return self.embeddings_for(wc, f"queries.{split}")

    def mining_embeddings(self, wc: Any, part: str) -> str:
        """The embeddings of the source that negatives are searched with."""
        if not isinstance(self.bench.methods[wc.model], TrainedMethod):
            return self.embeddings_for(wc, part, MINING_PROTOCOL)
        link = self.chains.link(wc.model, wc.scope)
        protocol = self.chains.trained(link.method).protocol
        kind, _, split = part.partition(".")
        fused = self.fused_queries(link.name, link, wc.collection, protocol, split) if kind == "queries" else None
        return fused or paths.embeddings(link.name, link.scope, wc.collection, protocol, part)

    # ---- who augments, from what -------------------------------------------------------------------------------
    def _episode(self, link: Link) -> MemoryStage:
        stage = self.chains.memory_stage(link)
        assert stage is not None, f"{link.name} is no episode with memories"
        return stage

    def has_augmenter(self, link: Link) -> bool:
        """Whether a model has an augmenter of its own; else it is its own augmenter, without augmentation."""
        stage = self.chains.memory_stage(link)
        return stage is not None and stage.augmenter.mode != OWN

    def _augmenter(self, link: Link, use: str) -> Link:
        """The model whose augmenter finds documents for a stage's training, or for the model that it makes."""
        before = self.chains.parent(link) if use == LEARNING else self.chains.link(link.name, link.scope)
        return self.chains.augmenter_given(link) or self.chains.augmenter_given(before) or before

    def _is_training(self, method: str, collection: str, split: str) -> bool:
        return (collection, split) == (self.chains.source_of(method), self.chains.trained(method).source_split)

    def mixture(self, link: Link, use: str, collection: str, split: str) -> list[str]:
        """Collections of the mixture that augments the queries of a collection.

        Raises:
            ConfigError: two of them are the same corpus, or they hold too few documents.
        """
        places = {SOURCE: self.chains.source_of(link.method), TARGET: collection}
        asked, documents = self._asked_memories(link, use, collection, split)
        where = f"method {link.method}: memories of {collection}/{split}"
        return mixture(where, asked, places, self.bench.collections, documents)

    def _asked_memories(self, link: Link, use: str, collection: str, split: str) -> tuple[Sequence[str], int]:
        """Memories of a use as they are named, and K."""
        stage = self._episode(link)
        if self._searches(link, use, collection, split):
            return plugged_in(self._inference(link), stage)
        return stage.memory.memories, stage.memory.documents

    def _documents(self, link: Link, use: str, collection: str, split: str) -> int:
        """K of a use."""
        return self._asked_memories(link, use, collection, split)[1]

    def _document_tokens(self, link: Link, use: str, collection: str, split: str) -> int:
        """Longest augmentation document of a use."""
        own = self._inference(link).document_tokens if self._searches(link, use, collection, split) else None
        return own or self._episode(link).memory.document_tokens

    def _searches(self, link: Link, use: str, collection: str, split: str) -> bool:
        """Whether queries are augmented as `inference` says."""
        return use == SEARCH and not self._is_training(link.method, collection, split)

    def _depth(self, link: Link, use: str, collection: str, split: str) -> int:
        """Ranks of the mixture: of training queries as many as negatives are looked for in, else K."""
        needed = self._documents(link, use, collection, split)
        training = self._is_training(link.method, collection, split)
        return max(needed, self._episode(link).augmenter.depth) if training else needed

    def _joins(self, link: Link, names: Sequence[str]) -> dict[str, str | None]:
        protocol = self.chains.trained(link.method).protocol
        return {name: self._title_join(name, protocol) for name in names}

    def _by_augmenter(self, link: Link, collection: str, part: str) -> str:
        """Embeddings by a model's augmenter."""
        link = self.chains.augmenter_given(link) or link
        if self.has_augmenter(link):
            return paths.memory_embeddings(*link_words(link), collection, part)
        protocol = self.chains.trained(link.method).protocol
        return paths.embeddings(link.name, link.scope, collection, protocol, part)

    # ---- inputs ------------------------------------------------------------------------------------------------
    def memory_model(self, wc: Any) -> str:
        """Manifest of the model that wildcards name."""
        return self.chains.model(self.chains.made(link_of(wc)))

    def memory_search_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `search_memory`: embeddings by the augmenter, the queries' collection, the memory."""
        link = self.chains.made(link_of(wc))
        return {
            "queries": self._by_augmenter(link, wc.collection, f"queries.{wc.split}"),
            "corpus": self._by_augmenter(link, wc.memory, f"corpus-{wc.shard}"),
            "collection": paths.collection(wc.collection),
            "memory": paths.collection(wc.memory),
        }

    def mixture_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `merge_memories`: the hits in every shard of every memory."""
        link = link_of(wc)
        names = self.mixture(link, wc.use, wc.collection, wc.split)
        augmenter, depth = self._augmenter(link, wc.use), self._depth(link, wc.use, wc.collection, wc.split)
        kind = HITS if self._episode(link).memory.exclude_self else WITH_SELF
        return {
            "hits": [
                paths.memory_hits(*link_words(augmenter), kind, wc.collection, wc.split, depth, name, part)
                for name in names
                for part in self.shard_names("shard", name)
            ],
            "collection": paths.collection(wc.collection),
            "memories": [paths.collection(name) for name in names],
        }

    def _read(self, link: Link, use: str, collection: str, split: str) -> dict[str, Any]:
        """Inputs of what reads augmentation documents."""
        names = self.mixture(link, use, collection, split)
        return {
            "rankings": paths.augmentations(*link_words(link), use, collection, split),
            "memories": [paths.collection(name) for name in names],
        }

    def fused_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `embed_fused_queries`."""
        link = link_of(wc)
        model = self.chains.model(self.chains.link(link.name, link.scope))
        return {"collection": paths.collection(wc.collection), "model": model} | self._read(
            link, SEARCH, wc.collection, wc.split
        )

    def fused_queries(self, name: str, link: Link, collection: str, protocol: str, split: str) -> str | None:
        """Embeddings of augmented queries by the model `link` of row `name`; None where queries are plain."""
        if self.chains.memory_stage(link) is None:
            return None
        own = link._replace(method=name.partition("@")[0])
        if self.chains.memory_stage(own) is None or self._inference(own) == self._inference(link):
            own = link
        return paths.fused_queries(*link_words(own), collection, protocol, split)

    def _inference(self, link: Link) -> Any:
        return self.chains.trained(link.method).inference

    def exported_memory_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `export_memory`: documents, and their vectors by the augmenter of a row's model."""
        link = self._of_row(wc)
        parts = [
            self._by_augmenter(link, wc.memory, f"corpus-{part.partition('-')[2]}")
            for part in self.shard_names("shard", wc.memory)
        ]
        return {"collection": paths.collection(wc.memory), "embeddings": parts, "model": self.chains.model(link)}

    def _of_row(self, wc: Any) -> Link:
        link = self.chains.link(wc.model, wc.scope)
        self._episode(link)
        return link

    # ---- settings ----------------------------------------------------------------------------------------------
    def _embed_memory(self, wc: Any) -> dict:
        shard, shards = map(int, wc.shard.split("-of-"))
        return self._memory_embedding(wc) | {"shard": shard, "shards": shards}

    def _embed_memory_queries(self, wc: Any) -> dict:
        return self._memory_embedding(wc) | {"split": wc.split}

    def _memory_embedding(self, wc: Any) -> dict:
        protocol = self.chains.trained(wc.model).protocol
        return self._embedding(SimpleNamespace(model=wc.model, collection=wc.collection, protocol=protocol))

    def _search_memory(self, wc: Any) -> dict:
        shard, shards = map(int, wc.shard.split("-of-"))
        join = self._title_join(wc.memory, self.chains.trained(wc.model).protocol)
        return {
            "collection": wc.collection,
            "split": wc.split,
            "memory": wc.memory,
            "depth": int(wc.depth),
            "title_join": join,
            "exclude_self": wc.kind == HITS,
            "shard": shard,
            "shards": shards,
        }

    def _merge_memories(self, wc: Any) -> dict:
        link, asked = link_of(wc), (wc.use, wc.collection, wc.split)
        return {
            "collection": wc.collection,
            "split": wc.split,
            "memories": self.mixture(link, *asked),
            "depth": self._depth(link, *asked),
            "needed": self._documents(link, *asked),
        }

    def _export_model(self, wc: Any) -> dict:
        made, row = super()._export_model(wc), self.bench.methods[wc.model]
        stage = self.chains.memory_stage(Link(wc.model.partition("@")[0], row.last))  # type: ignore[union-attr]
        memories = [name for name in stage.memory.memories if name != SOURCE] if stage is not None else []
        licences = {name: self.bench.collections[name].licence for name in memories}
        made |= {"licences": made["licences"] | licences}
        if stage is None:
            return made
        method, memory = wc.model.partition("@")[0], stage.memory
        names, count = self._plugged_in(method, stage)
        longest = self.chains.trained(method).inference.document_tokens or memory.document_tokens
        return made | {
            "augmentation": {
                "memories": names,
                "documents": count,
                "document_tokens": longest,
                "exclude_self": memory.exclude_self,
            }
        }

    def _plugged_in(self, method: str, stage: MemoryStage) -> tuple[list[str], int]:
        """What augments the queries of targets, `target` for the target itself, and K."""
        asked, documents = plugged_in(self.chains.trained(method).inference, stage)
        source = self.chains.source_of(method)
        return list(dict.fromkeys(source if name == SOURCE else name for name in asked)), documents

    def _export_memory(self, wc: Any) -> dict:
        protocol = self.chains.trained(wc.model.partition("@")[0]).protocol
        return {"memory": wc.memory, "title_join": self._title_join(wc.memory, protocol)}

    def _embed_fused_queries(self, wc: Any) -> dict:
        link, asked = link_of(wc), (SEARCH, wc.collection, wc.split)
        training = self._is_training(link.method, wc.collection, wc.split)
        return self._embedding(wc) | {
            "split": wc.split,
            "joins": self._joins(link, self.mixture(link, *asked)),
            "documents": self._documents(link, *asked),
            "document_limit": self._document_tokens(link, *asked),
            "exclude_positives": training and self._episode(link).memory.exclude_positives,
        }

    def is_augmented(self, name: str) -> bool:
        """Whether the queries of a trained row are augmented."""
        row = self.bench.methods[name]
        return (
            isinstance(row, TrainedMethod)
            and self.chains.memory_stage(Link(name.partition("@")[0], row.last)) is not None
        )

    def remark_of_memories(self, name: str) -> str:
        """Which memories augment the queries of a row; empty for rows with plain queries."""
        row, method = self.bench.methods[name], name.partition("@")[0]
        stage = self.chains.memory_stage(Link(method, row.last)) if isinstance(row, TrainedMethod) else None
        if stage is None:
            return ""
        names, count = self._plugged_in(method, stage)
        return f"queries are augmented with {count} documents of: {', '.join(names)}"


def link_of(wc: Any) -> Link:
    """The model that wildcards name."""
    return Link(wc.model, wc.stage, wc.scope)


def link_words(link: Link) -> tuple[str, str, str]:
    """Method, scope and stage, as paths take them."""
    return link.method, link.scope, link.stage
